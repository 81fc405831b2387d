"""The articles as data: what is in them is whole and refers to things that exist."""

import dataclasses
import re
import shutil
import tomllib

import pytest

from bench import backends
from scripts import articles, pins
from scripts.articles import model, references
from scripts.errors import KitError, UsageError

EVERY = articles.load_all()


def test_a_module_that_imports_its_libraries_at_its_top_is_refused_on_a_host_without_them(tmp_path, monkeypatch):
    (tmp_path / "eager.py").write_text("import a_library_of_the_image\n")
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    told = r"docker/pins.toml, \[backend.eager\]: a module of a backend or a form imports its libraries inside its functions: No module named 'a_library_of_"
    with pytest.raises(KitError, match=told):
        references.check_module("eager")


@pytest.mark.parametrize("article", EVERY.values(), ids=EVERY)
def test_an_article_refers_to_backends_and_stacks_that_exist(article):
    known = pins.load()
    assert article.stack in known.stacks
    assert {case.backend for case in article.cases} <= set(known.backends)


def test_the_third_article_is_quoted():
    cases = {case.name: case for case in EVERY["batch-generate"].cases}
    minutes = {name: case.published["minutes_per_10000_items"] for name, case in cases.items() if case.published}
    assert minutes == {"single": 7 * 60, "batch": 7}
    assert {run["new_tokens"] for variant in EVERY["batch-generate"].variants.values() for run in variant["runs"]} == {256}
    assert {case.load["dtype"] for case in cases.values()} == {"bfloat16"}


def test_the_first_article_is_quoted_to_the_last_digit():
    published = {case.name: case.published for case in EVERY["inference-tools"].cases if case.published}
    assert published["layer-parallel"] == {"mean_ms": 117.72, "std_ms": 0.58, "p95_ms": 118.402308691293}
    assert published["deepspeed"]["p95_ms"] == 31.88958093523979
    assert set(published) == {"layer-parallel", "tensor-parallel", "int8", "deepspeed", "bminf"}


#: The articles whose texts the kit has. Another article may round a ratio as it likes, or print one whose numbers it does not give.
QUOTED = ("batch-generate", "deepspeed-inference", "inference-tools")


def published_ms(article, case, batch_size):
    """The number of a case that a relation compares: ms/token in the batch size, or the mean of a call."""
    found = next(one for one in article.cases if one.name == case)
    return found.published_at("ms_per_token", batch_size) if batch_size else found.published["mean_ms"]


def published_ratios(article, relation):
    """(ratio that the relation names, ratio that follows from the article's numbers) of each that it names."""
    if "gains_more_than" in relation:
        gains = [published_gain(article, case, relation) for case in (relation["case"], relation["gains_more_than"])]
        return [(relation["ratio"], gains[0] / gains[1])]
    if "from_batch" in relation:
        return [(relation["ratio"], published_gain(article, relation["case"], relation))]
    if "ratios" in relation:
        pairs = [(relation["fastest"], other) if "fastest" in relation else (other, relation["slowest"]) for other in relation["than"]]
        return [(ratio, published_speed(article, *pair)) for ratio, pair in zip(relation["ratios"], pairs, strict=True)]
    ratio = relation.get("ratio") or relation.get("size")
    return [(ratio, published_speed(article, relation["faster"], relation["slower"], relation.get("batch_size")))] if ratio and "faster" in relation else []


def published_speed(article, faster, slower, batch_size=None):
    return published_ms(article, slower, batch_size) / published_ms(article, faster, batch_size)


def published_gain(article, case, relation):
    return published_ms(article, case, relation["from_batch"]) / published_ms(article, case, relation["to_batch"])


def test_each_ratio_of_a_claim_of_the_three_articles_follows_from_the_published_numbers():
    checked = 0
    for article in (EVERY[slug] for slug in QUOTED):
        for relation in [relation for claim in article.claims for relation in claim["relations"]]:
            for named, follows in published_ratios(article, relation):
                assert named == pytest.approx(follows, abs=0.006), relation
                checked += 1
    assert checked > 10


def test_the_second_article_is_quoted_to_the_last_digit():
    cases = {case.name: case for case in EVERY["deepspeed-inference"].cases}
    assert cases["gptj-deepspeed"].published == {"mean_ms": 2413.18, "std_ms": 1.47, "p95_ms": 2415.4563972260803}
    assert cases["pipeline-deepspeed-4"].published["p95_ms"] == 553.2004246022552
    table = {name: [cases[name].published_at("ms_per_token", size) for size in (1, 8, 16, 32, 64, 128)] for name in ("accelerate-int8", "ds-zero")}
    assert table == {"accelerate-int8": [89.64, 15.41, 9.16, 5.83, 4.52, 3.82], "ds-zero": [145.6, 18.56, 9.26, 4.62, 2.35, 1.17]}
    fused = {
        name: cases["fusion-deepspeed"].published_at(f"speed_up_{name}", 1)
        for name in ("layernorm_qkv_bias", "attention", "layernorm_ff_gelu", "bias_residual")
    }
    assert list(fused.values()) == [1.5, 2.9, 3.0, 1.2]  # the article's numbers in its order; it names no second region


def test_a_case_that_compiles_runs_in_an_image_with_the_compilers():
    known = pins.load()
    compiling = [case for article in EVERY.values() for case in article.cases if "compile" in case.options.get("implementations", [])]
    for case in compiling:
        for stack in set(known.backends[case.backend]["stacks"]) - {"demo"}:  # which has no images
            assert {"gcc", "g++"} <= set(known.image(case.backend, stack).debian_pins), (case.name, stack)
    assert compiling


def test_a_case_has_what_it_does_not_say_from_its_article_and_variant():
    article = EVERY["deepspeed-inference"]
    cases = {case.name: case for case in article.cases}
    assert article.prompt_of(cases["schedule-2"])["text"] == article.prompt["text"] and article.prompt_of(cases["schedule-2"])["tokens"] == 128
    assert article.protocol_of(cases["ds-zero"])["timed_runs"] == 5 and article.protocol_of(cases["gptj-deepspeed"])["timed_runs"] == 10
    assert (
        article.runs_of(cases["ds-zero"], "published")[0]["new_tokens"] == 100 and article.runs_of(cases["gptj-deepspeed"], "published")[0]["new_tokens"] == 128
    )


def test_a_published_number_is_one_or_one_a_batch_size():
    case = articles.Case("x", "x", 1, {}, published={"mean_ms": 5.0, "ms_per_token": {"1": 34.04, "8": 7.41}})
    assert (case.published_at("mean_ms", 8), case.published_at("ms_per_token", 8)) == (5.0, 7.41)
    assert case.published_at("ms_per_token", 2) is None and case.published_at("p95_ms", 1) is None


def test_a_case_has_batch_sizes_of_its_own_else_the_variant_s_else_the_article_s():
    article = EVERY["inference-tools"]
    sweeping = dataclasses.replace(article, variants={**article.variants, "published": {**article.variants["published"], "batch_sizes": [1, 8]}})
    case = article.cases[0]
    assert article.batch_sizes_of(case, "published") == [1]
    assert sweeping.batch_sizes_of(case, "published") == [1, 8]
    assert sweeping.batch_sizes_of(dataclasses.replace(case, batch_sizes=[4]), "published") == [4]


def test_an_unknown_article_explains_itself():
    with pytest.raises(UsageError, match=f"ARTICLE is 'nope', allowed are {', '.join(EVERY)}; try"):
        articles.find("nope")


def test_a_backend_that_the_article_never_ran_has_a_controlled_case_of_its_own():
    (case,) = EVERY["inference-tools"].cases_of("my-backend")
    assert (case.name, case.backend, case.published) == ("my-backend", "my-backend", None)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(articles.ARTICLES, tmp_path / "articles")
    shutil.copy(articles.ARTICLES.parent / "tolerances.toml", tmp_path)
    return tmp_path / "articles"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('slug = "inference-tools"', "slug = ", "inference-tools.toml: not TOML"),
        ('title = "LLM inference tools compared"', "", "inference-tools.toml: Object missing required field `title`"),
        (
            'slug = "inference-tools"',
            'slug = "demo"',
            "inference-tools.toml: slug is 'demo', allowed is the name of the file; write slug = \"inference-tools\"",
        ),
        ('shape = "bloomz-7b1"', 'shape = "opt-125m"', r"\[model\]: shape 'opt-125m' is unknown, known are bloomz-7b1, bloom-7b1, gpt-j-6B, llama-3-8B"),
        ('architecture = "bloom"', 'architecture = "opt"', r"\[model\]: architecture is 'opt', the shape bloomz-7b1 has 'bloom'; write"),
        ("runs = [{ new_tokens = 1, arguments = {} }]", 'runs = []\nbatch_sizes = { until = "full" }', r"\[variants.published\]: a sweep is"),
        ("runs = [{ new_tokens = 1, arguments = {} }]", "", r"\[cases\[transformers\]\]: neither the case nor the variant 'published' says"),
        ('name = "transformers"\n', 'name = "transformers"\nvariants = ["tiny"]\n', "variant 'tiny' is unknown, known are published, controlled"),
        ('faster = "tensor-parallel"', 'faster = "tensor-paralel"', "claim 1.2: case 'tensor-paralel' is unknown"),
        ("timed_runs = 10", "timed_run = 10", r"\[protocol\]: unknown key 'timed_run'; did you mean 'timed_runs'\? allowed are timed_runs, warmup_runs"),
        ("timed_runs = 10", "timed_runs = true", r"\[protocol.timed_runs\]: True: Expected `int`, got `bool`"),
        ("timed_runs = 10", "timed_runs = 0", r"\[protocol.timed_runs\]: 0: Expected `int` >= 1"),
        ("gpus = 1", 'gpus = "1"', r"\[cases\[transformers\].gpus\]: '1': Expected `int`, got `str`"),
        ('dtype = "int8"', 'dtyp = "int8"', r"\[cases\[int8\]\]: load names no dtype"),
        (
            'max_memory = "24GB"',
            'max_memry = "24GB"',
            r"\[cases\[int8\].load\]: unknown key 'max_memry'; did you mean 'max_memory'\? allowed are device_map, dtype, max",
        ),
        ('device_map = "auto", max', 'replace_method = "auto", max', r"\[cases\[int8\].load\]: unknown key 'replace_method'"),
        (
            'load = { dtype = "float16" }',
            'load = { dtype = "float16", cudnn_attention = "no" }',
            r"load\]: load.cudnn_attention is 'no', allowed are true and false",
        ),
        (
            'load = { dtype = "float16" }',
            'load = { dtype = "float16" }\nin_variant = { controlled = { load = { cudnn_attention = 1 } } }',
            r"\[cases\[transformers\].in_variant.controlled.load\]: load.cudnn_attention is 1, allowed are true and false",
        ),
        (
            'products = "waiting-combined"',
            'products = "waiting-combined", attention = ["sdpa"]',
            r"\[cases\[compiled\].load\]: load.attention is \['sdpa'\], allowed are eager, sdpa, grouped",
        ),
        (
            'load = { dtype = "float16" }',
            'load = { dtype = "float16", cudnn_atention = false }',
            r"load\]: unknown key 'cudnn_atention'; did you mean 'cudnn_attention'\? allowed are cudnn_attention, dtype",
        ),
        ('dtype = "float16"\nruns', 'dtype = "float15"\nruns', r"\[variants.controlled\]: dtype 'float15' is unknown, known are float32"),
        ('backend = "int8"', 'backend = "int9"', r"\[cases\[int8\]\]: backend 'int9' has no module bench/backends/int9.py"),
        ('backend = "int8"', 'backend = "int8"\nform = "genrate"', r"\[cases\[int8\]\]: form 'genrate' has no module"),
        ('backend = "int8"', 'backend = "int8"\noptions = { rows = 4 }', r"\[cases\[int8\].options\]: unknown key 'rows'; allowed are none"),
        ('backend = "int8"', 'backend = "int8"\nmodel = "gptj"', "model 'gptj' is unknown"),
        ('name = "int8"', 'name = "deepspeed"', "the case 'deepspeed' is there twice"),
        ('name = "int8"', 'name = "../int8"', r"cases\[../int8\].name\]: '../int8': allowed are letters, digits"),
        ("mean_ms = 143.30", "meen_ms = 143.30", r"\[cases\[int8\].published\]: unknown key 'meen_ms'; did you mean 'mean_ms'"),
        ("size = 3.83", "sise = 3.83", r"\[claims\[1.5\].relations\[0\]\]: unknown key 'sise'; did you mean 'size'"),
        ('than = ["layer-parallel"', 'than = ["layer-paralel"', "claim 1.1: case 'layer-paralel' is unknown, known are"),
        ('slowest = "bminf"', 'slowest = "bmimf"', "claim 1.4: case 'bmimf' is unknown, known are"),
        ("new_tokens = 1, arguments = {}", "new_tokens = 0, arguments = {}", r"\[variants.published.runs\[0\].new_tokens\]: 0: Expected `int` >= 1"),
        ("[variants.published]", "[variants.publisht]", "variant 'publisht' is unknown, known are published, controlled"),
        ('stack = "2023-02"', 'stack = "2023-03"', "stack is '2023-03', allowed are 2023-02, .*; write stack = \"2023-05\""),
        ("size = 3.83", "size = 3.83, batch_size = 4", r"claim 1.5: deepspeed has no batch size 4, allowed are 1; correct the claim, or"),
        ('id = "1.5"', 'id = "1.5"\nnew_tokens = 12', r"claim 1.5: deepspeed has no run of new_tokens = 12, allowed are 1, 128; correct the claim"),
        ("mean_ms = 143.30", "ms_per_token = { 0 = 1.5 }", r"published.ms_per_token\]: unknown key '0'; allowed are batch sizes, whole numbers from 1$"),
        ("[variants.controlled]", '["variants"."con trolled"]', r"\[variants\]: unknown key 'con trolled'; allowed are letters, digits, '.', '_' and '-'"),
        ("mean_ms = 143.30", "mean_ms = inf", r"\[cases\[int8\].published.mean_ms\]: inf: Expected `float` <= "),
        ('name = "int8"', 'name = "int8"\nmodel = "other"', r"\[cases\[int8\]\]: model 'other' is unknown, known are none"),
        ("arguments = {}", "arguments = { num_beams = 0 }", r"\[cases\[transformers\]\], variant published: num_beams is 0, allowed is a whole number from 1"),
        ("arguments = {}", 'arguments = { num_return_sequences = "four" }', "num_return_sequences is 'four', allowed is a whole number from 1"),
        ("arguments = {}", "arguments = { min_length = -1 }", "min_length is -1, allowed is a whole number from 0"),
        ("arguments = {}", "arguments = { max_length = true }", "max_length is True, allowed is a whole number from 1"),
        ("headline = true", "headlin = true", r"\[claims\[1.2\]\]: unknown key 'headlin'; did you mean 'headline'"),
    ],
)
def test_a_wrong_article_is_named_with_its_file(copy, old, new, message):
    path = copy / "inference-tools.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(KitError, match=message) as caught:
        articles.load_all(copy)
    assert "\n" not in str(caught.value)


def test_a_claim_may_name_any_batch_size_of_a_sweep_until_memory_runs_out(copy):
    path, listed = copy / "inference-tools.toml", 'name = "deepspeed"\nbatch_sizes = [1, 4]'
    sweep = 'batch_sizes = { from = 1, until = "oom" }\n'
    claim = path.read_text().replace("size = 3.83", "size = 3.83, batch_size = 4").replace('name = "layer-parallel"\n', f'name = "layer-parallel"\n{sweep}')
    path.write_text(claim.replace('name = "deepspeed"', listed))
    assert model.load("inference-tools", copy).rows_of_claims(["1.5"]) == {"deepspeed": {4}, "layer-parallel": {4}}
    path.write_text(claim.replace('name = "deepspeed"', listed.replace("4", "8")))
    with pytest.raises(KitError, match="claim 1.5: deepspeed has no batch size 4, allowed are 1, 8;"):
        model.load("inference-tools", copy)


#: The end of a case of the form `engine-queue`.
SERVING_VLLM = 'arrivals_per_s = 4 }\nbatch_sizes = [64]\nload = { dtype = "bfloat16", cache_tokens'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("arrivals_per_s = 4", "arrivals_per_s = 0", "cases[serving-static]]: arrivals_per_s is 0, allowed is a number from 0.001 to 1,000,000"),
        ("arrivals_per_s = 4", "arrivals_per_s = inf", "arrivals_per_s is inf, allowed is"),
        ("arrivals_per_s = 4", "arrivals_per_s = nan", "arrivals_per_s is nan, allowed is"),
        ("arrivals_per_s = 4", "arrivals_per_s = true", "arrivals_per_s is True, allowed is"),
        ("arrivals_per_s = 4", 'arrivals_per_s = "4"', "arrivals_per_s is '4', allowed is"),
        ("items = 400, tiny_items = 40", "items = 0, tiny_items = 40", "cases[serving-static]]: items is 0, allowed is a whole number from 1"),
        ("items = 400, tiny_items = 40", "items = true, tiny_items = 40", "items is True, allowed is a whole number from 1"),
        ("items = 400, tiny_items = 40", "tiny_items = 40", "items is None, allowed is a whole number from 1"),
        ("items = 400, tiny_items = 40", "items = 400, tiny_items = 0", "items is 0, allowed is a whole number from 1, at SCALE=tiny"),
        ('order = "naive", arrivals_per_s', 'order = "sorted", arrivals_per_s', "order is 'sorted', allowed for items that arrive over time is 'naive'"),
        ('order = "naive", arrivals_per_s', 'order = "shuffled", arrivals_per_s', "order is 'shuffled', allowed are naive and sorted"),
        ("[options]", "[options]\narrivals_per_s = 4", "cases[workload-sorted]]: order is 'sorted', allowed for items that arrive over time is 'naive'"),
        (SERVING_VLLM, SERVING_VLLM.replace("= 4", "= 0"), "cases[serving-vllm]]: arrivals_per_s is 0, allowed is a number from 0.001"),
        ('order = "naive", attention', 'order = "naive", arrivals_per_s = 4, attention', "unknown key 'arrivals_per_s'"),
    ],
)
def test_an_option_that_a_workload_cannot_follow_is_refused_before_anything_is_built(copy, old, new, message):
    path = copy / "batch-generate.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(KitError, match=re.escape(message)):
        articles.load_all(copy)


def test_arrivals_of_all_cases_are_none_of_a_form_that_gets_all_texts_at_once(copy):
    """Else its run would be refused once it has ended, for it tells no latencies."""
    path = copy / "batch-generate.toml"
    text = path.read_text().replace('order = "sorted"', 'order = "naive"')
    path.write_text(text.replace("[options]", "[options]\narrivals_per_s = 4", 1))
    with pytest.raises(KitError, match=r"cases\[workload-continuous\]\]: arrivals_per_s is 4, but this form has all texts from the start; allowed only with"):
        articles.load_all(copy)


@pytest.mark.parametrize(("named", "where"), [("serving-static", ""), ("workload-naive", 'tiny_items = 300, order = "naive", arrivals_per_s = 4')])
def test_a_claim_may_not_compare_a_case_whose_items_arrive_over_time(copy, named, where):
    path = copy / "batch-generate.toml"
    text = path.read_text().replace('tiny_items = 300, order = "naive"', where or 'tiny_items = 300, order = "naive"', 1)
    path.write_text(text)
    assert "batch-generate" in articles.load_all(copy), "its claims are on forms that read no such option"
    path.write_text(text.replace('{ single = "single", batched = "batch", size = 60 }', f'{{ single = "single", batched = "{named}" }}', 1))
    with pytest.raises(KitError, match=f"claim 3.1: the items of case '{named}' arrive over time, so its rate is not the system's; name a case without"):
        articles.load_all(copy)


def test_of_two_mistakes_the_first_is_named_with_its_own_key(copy):
    text = (copy / "inference-tools.toml").read_text()
    later = text.replace("new_tokens = 128, arguments", "new_tokens = -1, arguments").replace('text = "DeepSpeed-Inference', 'text = 1 # "')
    (copy / "inference-tools.toml").write_text(later)
    with pytest.raises(KitError, match=r"\[variants.controlled.runs\[1\].new_tokens\]: -1: Expected `int` >= 1"):
        articles.load_all(copy)


def test_a_mistake_in_one_article_stops_no_other_one(mistaken):
    mistaken()
    assert model.find("inference-tools").slug == "inference-tools"
    assert "mine" in model.slugs() and "mine" not in model.without_mistakes()
    with pytest.raises(KitError, match="mine.toml: not TOML"):
        model.find("mine")


def test_the_note_on_an_article_that_is_left_out_moves_no_cursor(mistaken, capsys):
    mistaken("mi\x1bne")
    assert "mi\x1bne" not in model.without_mistakes_told()
    note = capsys.readouterr().err.rstrip("\n")
    assert note.startswith("note: mi?ne is left out: mi?ne.toml: not TOML: ") and note.isprintable()


def test_a_mistake_in_a_file_that_all_articles_share_leaves_none_out_but_is_told(copy, monkeypatch):
    monkeypatch.setattr(model, "ARTICLES", copy)
    (copy.parent / "tolerances.toml").write_text("float16 = ")
    with pytest.raises(KitError, match="tolerances.toml: not TOML"):
        model.without_mistakes()


def test_a_mistake_in_the_pins_is_no_article_s(monkeypatch):
    def refused():
        raise KitError("docker/pins.toml: not TOML")

    monkeypatch.setattr(model.pins, "load", refused)
    with pytest.raises(KitError, match="pins.toml"):
        model.without_mistakes()


def tables_of(value, path=()):
    """(path, table) of every table of a file in which the kit reads each key: what goes to the library as it is has any."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            if name != "arguments":
                yield from tables_of(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from tables_of(inner, (*path, number))


@pytest.mark.parametrize("path", sorted(articles.ARTICLES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_key_that_nothing_reads_is_refused_in_every_table_of_an_article(path):
    data = tomllib.loads(path.read_text())
    tables = dict(tables_of(data))
    assert len(tables) > 2 * len(data["cases"])
    for place, table in tables.items():
        if place and place[-1] in ("variants", "models", "in_variant"):
            continue  # their keys are names of the article's own
        table["nonsense"] = 1
        with pytest.raises(KitError) as caught:
            model.article_of(data, articles.tolerances(), path.name)
        assert str(caught.value).startswith(path.name) and "'nonsense'" in str(caught.value) and "\n" not in str(caught.value), place
        del table["nonsense"]
    model.article_of(data, articles.tolerances(), path.name)


def test_a_bound_of_the_output_check_that_nothing_reads_is_refused(copy):
    path = copy.parent / "tolerances.toml"
    path.write_text(path.read_text().replace("regret_max = 0.02", "regret_mx = 0.02"))
    with pytest.raises(KitError, match=r"tolerances.toml, \[float32\]: unknown key 'regret_mx'; did you mean 'regret_max'"):
        articles.load_all(copy)


def test_a_file_that_is_no_text_is_named(copy):
    (copy / "demo.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(KitError, match="demo.toml: not TOML"):
        articles.load_all(copy)


def test_a_copy_of_an_article_needs_a_slug_of_its_own(copy):
    shutil.copy(copy / "inference-tools.toml", copy / "my-article.toml")
    with pytest.raises(KitError, match=r"my-article.toml: slug is 'inference-tools', allowed is the name of the file; write slug = \"my-article\""):
        articles.load_all(copy)


def test_an_article_of_the_kit_is_named_with_its_folder():
    assert model.shown(model.ARTICLES / "mine.toml") == "bench/articles/mine.toml"
