"""Which cases of an article run, in which variants and batch sizes."""

import dataclasses

import pytest

from bench.job import STATUSES
from scripts import articles, pins
from scripts.commands import measure
from scripts.errors import KitError, UsageError
from scripts.run import outcome, plan
from tests.typed import chosen

ARTICLE = articles.find("batch-generate")
CASES = {case.name: case for case in ARTICLE.cases}


def planned(**typed):
    asked = chosen(**{"ARTICLE": "batch-generate", "STACK": "current", **typed})
    return [(one.case.name, one.variant) for one in plan.plan(list(dict.fromkeys(case.backend for case in ARTICLE.cases)), asked, every=True)]


def test_a_whole_article_is_every_case_in_every_variant_that_it_has():
    everything = planned()
    assert {("batch", "published"), ("batch", "controlled"), ("padding", "controlled")} <= set(everything)
    assert ("padding", "published") not in everything
    assert {name for name, _ in everything} == set(CASES)


def test_a_variant_leaves_out_the_cases_that_do_not_have_it():
    assert planned(VARIANT="published") == [("pipeline", "published"), ("single", "published"), ("batch", "published")]


@pytest.mark.parametrize(
    ("variants", "published", "runs"),
    [
        (None, {"minutes_per_10000_items": 7}, ["published"]),
        (None, None, ["controlled"]),
        (["controlled"], {"minutes_per_10000_items": 7}, ["controlled"]),
        (["published"], None, ["published"]),
    ],
)
def test_a_single_bench_runs_in_the_published_variant_where_the_article_has_a_number_and_the_case_the_variant(variants, published, runs):
    case = dataclasses.replace(CASES["batch"], variants=variants, published=published)
    assert plan.variants_of(ARTICLE, case, "", every=False) == runs


def test_of_several_backends_those_without_an_image_of_the_stack_are_left_out_with_a_note(capsys):
    assert "batch-compiled" not in [name for name, _ in planned(STACK="article")]
    assert "note: compiled is left out: it has no image of the stack 2024-06, only of current, demo\n" in capsys.readouterr().err
    with pytest.raises(UsageError, match="STACK=article means 2024-06 here; compiled has current, demo; type STACK=current"):
        plan.plan(["compiled"], chosen(ARTICLE="batch-generate", STACK="article"), every=True)
    with pytest.raises(UsageError, match="STACK is '2024-06', compiled has current, demo; try STACK=current"):
        plan.plan(["compiled"], chosen(ARTICLE="batch-generate", STACK="2024-06"), every=True)
    with pytest.raises(UsageError, match="STACK is 'nope'"):
        planned(STACK="nope")


def test_a_row_that_did_not_end_well_is_the_end_of_its_command():
    assert [outcome.exit_code(status) for status in STATUSES] == [0] + [1] * (len(STATUSES) - 1)


def test_a_typed_case_of_another_backend_is_not_left_out_in_silence():
    typed = chosen(ARTICLE="batch-generate", CASES="single,batch-vllm", STACK="current", PLAN="1")
    every = "make bench-all ARTICLE=batch-generate STACK=current CASES=single,batch-vllm PLAN=1"
    with pytest.raises(
        UsageError, match=f"CASES names 'batch-vllm', a case of vllm, and bench-transformers takes only its own cases; try CASES=single, or {every}$"
    ):
        plan.plan(["transformers"], typed, every=False)
    alone = "make profile-vllm ARTICLE=batch-generate STACK=current CASES=batch-vllm PLAN=1"
    with pytest.raises(UsageError, match=f"try CASES=single, or {alone}$"):
        plan.plan(["transformers"], typed, every=False, verb="profile")
    assert {one.case.name for one in plan.plan(["transformers", "vllm"], typed, every=False)} == {"single", "batch-vllm"}


def test_a_typed_case_without_the_typed_variant_is_named(capsys):
    assert planned(CASES="single,padding", VARIANT="published") == [("single", "published")]
    assert capsys.readouterr().err == "note: padding is left out: it has no variant published, only controlled\n"
    assert planned(VARIANT="published") and not capsys.readouterr().err, "nobody typed the others"
    with pytest.raises(UsageError, match=r"no case of .* fits CASES=padding VARIANT=published .*; try VARIANT=controlled$"):
        planned(CASES="padding", VARIANT="published")


def test_cases_may_be_chosen():
    assert planned(CASES="padding,single", VARIANT="controlled") == [("single", "controlled"), ("padding", "controlled")]


def test_a_case_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="CASES names 'singel', batch-generate has pipeline, single"):
        planned(CASES="singel")


@pytest.mark.parametrize(
    ("typed", "better"), [("deepsped", "CASES=deepspeed"), ("layer-paralel", "make bench-layer-parallel CASES=layer-parallel"), ("x", "CASES=deepspeed")]
)
def test_what_is_proposed_for_a_case_that_is_not_there_is_a_command_that_runs(typed, better):
    with pytest.raises(UsageError, match=f"CASES names '{typed}', .*; try {better}$"):
        plan.plan(["deepspeed"], chosen(CASES=typed), every=False)


def test_a_backend_or_a_variant_that_is_not_there_is_named_with_what_there_is():
    with pytest.raises(UsageError, match="there is no backend 'int9', allowed are transformers, .*; try make bench-int8$"):
        plan.plan(["int9"], chosen(), every=False)
    with pytest.raises(UsageError, match="VARIANT is 'publishd', batch-generate has published, controlled; try VARIANT=published$"):
        plan.variants_of(ARTICLE, CASES["single"], "publishd", every=True)


def test_a_backend_without_its_module_is_refused_before_a_job_starts(monkeypatch):
    known = pins.load()
    without = dataclasses.replace(known, backends={**known.backends, "new-one": {"summary": "", "stacks": ["demo"]}})
    monkeypatch.setattr(pins, "load", lambda: without)
    with pytest.raises(KitError, match=r"docker/pins.toml, \[backend.new-one\]: backend 'new-one' has no module bench/backends/new_one.py"):
        plan.plan(["new-one"], chosen(stack="demo"), every=False)


def test_items_without_a_workload_are_refused():
    with pytest.raises(
        UsageError, match="ITEMS is 5, which only the workloads of batch-generate read: workload-naive, .*; try CASES=workload-naive, or leave ITEMS out"
    ):
        planned(CASES="single", ITEMS="5")
    with pytest.raises(UsageError, match="ITEMS is 5, which only workloads read, and inference-tools has none; leave ITEMS out"):
        plan.plan(["deepspeed"], chosen(ITEMS="5"), every=False)
    assert ("workload-naive", "controlled") in planned(ITEMS="5")  # one case that reads it is enough


def sizes(case, **typed):
    return plan.batch_sizes_of(ARTICLE, CASES[case], "controlled", chosen(**typed))


def test_batch_sizes_that_were_typed_stand_in_for_a_sweep_and_for_nothing_else():
    assert sizes("batch")["until"] == "oom"
    assert sizes("batch", BATCH_SIZES="1,64") == (1, 64)
    assert sizes("single", BATCH_SIZES="1,64") == [1]
    assert sizes("workload-naive", BATCH_SIZES="1,64") == [256]
    assert sizes("batch", DEVICE="cpu") == [1, 2, 4, 8]


def test_an_article_without_a_sweep_takes_what_was_typed():
    article = articles.find("inference-tools")
    assert plan.batch_sizes_of(article, article.cases[0], "controlled", chosen()) == [1]
    assert plan.batch_sizes_of(article, article.cases[0], "controlled", chosen(BATCH_SIZES="8")) == (8,)


def test_batch_sizes_that_no_case_takes_are_refused_and_a_case_that_keeps_its_own_beside_others_is_told(capsys):
    def told(**typed):
        asked = chosen(ARTICLE=ARTICLE.slug, VARIANT="controlled", **typed)
        plan.tell_kept_sizes(plan.plan(ARTICLE.backends, asked, every=True), asked)
        return capsys.readouterr().err

    expected = (
        r"BATCH_SIZES is 1,8, and no case uses it, because each keeps its own batch size: workload-naive \(256\), serving-static \(64\); leave BATCH_SIZES out"
    )
    with pytest.raises(UsageError, match=expected):
        told(CASES="workload-naive,serving-static", BATCH_SIZES="1,8")
    assert told(CASES="batch,single", BATCH_SIZES="8") == "note: BATCH_SIZES=8 leaves cases with a batch size of their own as they are: single (1)\n"
    assert told(CASES="single", BATCH_SIZES="1") == told(CASES="batch", BATCH_SIZES="8") == told(CASES="single") == ""


TABLE = articles.find("deepspeed-inference")


def of_claims(claims, **typed):
    """{case: the batch sizes} that run for claims of the second article."""
    asked = chosen(**{"ARTICLE": TABLE.slug, "STACK": "hopper-2023-05", "VARIANT": "published", "CLAIMS": claims, **typed})
    found = plan.plan(list(dict.fromkeys(case.backend for case in TABLE.cases)), asked, every=True)
    return {one.case.name: plan.sizes_and_sized(one, asked)[0] for one in found}


def test_claims_choose_the_rows_that_they_compare():
    assert of_claims("2.7") == {"ds-zero": [1, 128], "accelerate-fp16": [1, 128]}
    assert of_claims("2.5,2.7") == {"ds-zero": [1, 32, 128], "accelerate-fp16": [1, 32, 128], "ds-inference": [32, 128]}
    assert of_claims("2.5,2.7", CASES="ds-zero") == {"ds-zero": [1, 32, 128]}


def test_a_claim_without_batch_sizes_leaves_a_case_its_own():
    assert of_claims("2.1") == {"gptj-transformers": [1], "gptj-deepspeed": [1]}
    assert planned(CLAIMS="3.1", VARIANT="published") == [("single", "published"), ("batch", "published")]
    asked = chosen(ARTICLE=ARTICLE.slug, CLAIMS="3.1,3.2")
    assert plan.batch_sizes_of(ARTICLE, CASES["batch"], "controlled", asked)["until"] == "oom"


def test_of_a_case_that_one_claim_names_with_a_batch_size_and_another_without_all_sizes_run():
    claims = [{"id": str(place), "relations": [{"case": "batch", **sizes}]} for place, sizes in enumerate(({}, {"from_batch": 1, "to_batch": 8}))]
    article = dataclasses.replace(ARTICLE, claims=claims)

    def sizes_of(typed):
        return plan.batch_sizes_of(article, CASES["batch"], "published", chosen(CLAIMS=typed))

    assert sizes_of("1") == [1, 8] and sizes_of("0,1") == sizes_of("0") != [1, 8]


def test_backends_that_a_claim_does_not_compare_are_not_told_of(capsys):
    of_claims("2.7")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({"CLAIMS": "2.9"}, r"CLAIMS names '2\.9', deepspeed-inference has 2\.1, .*2\.7; try CLAIMS=2\.\d$"),
        ({"CLAIMS": "1.2"}, r"CLAIMS names '1\.2', .*; try make article-inference-tools CLAIMS=1\.2$"),
        ({"CLAIMS": "2.7", "CASES": "int8-codes"}, "CASES names 'int8-codes'"),
        (
            {"CLAIMS": "2.7", "CASES": "ds-inference"},
            "no case of deepspeed-inference fits CASES=ds-inference CLAIMS=2.7 .*; CLAIMS=2.7 compares ds-zero, accelerate-fp16; try make article-deepspeed",
        ),
        (
            {"CLAIMS": "2.4", "VARIANT": "controlled", "CASES": "accelerate-fp16"},
            r"no case .* fits .*; allowed are accelerate-fp16 \(VARIANT published; STACK [^)]*\); CLAIMS=2.4 compares",
        ),
    ],
)
def test_claims_that_no_row_fits_are_refused(typed, told):
    with pytest.raises(UsageError, match=told):
        of_claims(**{"claims": typed.pop("CLAIMS"), **typed})


def test_an_article_without_claims_says_so():
    with pytest.raises(UsageError, match="CLAIMS names '0', demo has none; leave CLAIMS out$"):
        articles.find("demo").rows_of_claims(["0"])


def test_a_backend_that_no_claim_compares_is_led_to_the_article():
    told = (
        "no case of vllm fits CLAIMS=1.2 STACK=current; .*; CLAIMS=1.2 compares tensor-parallel, layer-parallel; try make article-inference-tools CLAIMS=1.2$"
    )
    with pytest.raises(UsageError, match=told):
        plan.plan(["vllm"], chosen(CLAIMS="1.2", STACK="current"), every=False)


def test_claims_run_in_the_variant_that_judges_them_and_in_others_only_where_it_lacks_a_row():
    def variants(article, claims, **typed):
        asked = chosen(ARTICLE=article, CLAIMS=claims, STACK="article", **typed)
        backends = list(dict.fromkeys(case.backend for case in articles.find(article).cases))
        return {one.variant for one in plan.plan(backends, asked, every=True)}

    assert variants("inference-tools", "1.2") == {"published"}
    assert variants("inference-tools", "1.2", VARIANT="controlled") == {"controlled"}
    assert variants("batch-generate", "3.3") == {"controlled"}, "padding is no case of the published variant"


def test_a_variant_without_all_rows_of_a_claim_is_left_out_unless_it_is_typed(capsys):
    def variants(**typed):
        asked = chosen(ARTICLE=TABLE.slug, STACK="hopper-2023-05", **typed)
        return {one.variant for one in plan.plan(["int8", "deepspeed-zero", "layer-parallel"], asked, every=True)}

    assert (variants(CLAIMS="2.7"), variants(CASES="ds-zero")) == ({"published"}, {"published", "controlled"})
    assert capsys.readouterr().err == ""
    assert variants(CLAIMS="2.7", VARIANT="controlled") == {"controlled"}
    assert capsys.readouterr().err == "note: claim 2.7 stays not tested: VARIANT=controlled has no accelerate-fp16\n"


def test_a_plan_of_a_stack_without_images_is_refused_as_its_runs_would_be(tmp_path):
    asked = chosen(ARTICLE="demo", STACK="demo", ENGINE="docker", PLAN="1", RUNS=str(tmp_path))
    with pytest.raises(UsageError, match="STACK=demo has no images; try ENGINE=host"):
        measure._measure(["layer-parallel"], asked, every=False)


@pytest.mark.parametrize(("repeats", "told"), [("4", "note: a verdict needs 5 runs of each row, REPEATS is 4; try REPEATS=5\n"), ("5", "")])
def test_whoever_names_claims_is_told_how_many_runs_a_verdict_needs(tmp_path, capsys, repeats, told):
    asked = chosen(CLAIMS="1.5", STACK="current", VARIANT="published", PLAN="1", RUNS=str(tmp_path), REPEATS=repeats)
    assert measure._measure(["deepspeed", "layer-parallel"], asked, every=True) == 0
    assert capsys.readouterr().err == told
    for other in ({"jobs": 2}, {"receipt": tmp_path / "receipt"}, {"scale": "tiny"}, {"device": "cpu"}):
        measure._measure(["deepspeed"], dataclasses.replace(asked, **other), every=True)
        assert "a verdict needs" not in capsys.readouterr().err, "these judge nothing, or are one run of several"
