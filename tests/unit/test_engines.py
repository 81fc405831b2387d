"""What backends give and forms need: known without torch, and a case that does not fit is one line."""

import dataclasses
import subprocess
import sys
import types

import pytest

from bench import actions, backends, forms, modules
from bench.backends import Engine, Loaded, compiled
from bench.forms import continuous
from scripts import paths, pins
from scripts.articles import references
from scripts.articles.model import ARTICLES, Case, load_all, tolerances
from scripts.errors import KitError
from scripts.run import plan
from tests.samples import a_job
from tests.typed import chosen

EVERY = """
import pathlib, sys
from bench import backends, forms
for kind, find in (("backends", backends.find), ("forms", forms.find)):
    for path in pathlib.Path("bench", kind).glob("[a-z]*.py"):
        find(path.stem)
print([name for name in sys.modules if name in ("torch", "transformers", "numpy")])
"""


def test_every_backend_and_form_says_what_it_gives_and_needs_without_its_libraries():
    done = subprocess.run([sys.executable, "-c", EVERY], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_form_is_refused_by_a_backend_that_does_not_give_what_it_needs():
    assert forms.refusal("generate", "compiled") == forms.refusal("padded-sentences", "compiled") == forms.refusal("kv-offload", "transformers") == ""
    assert forms.refusal("fusion", "compiled") == "", "it measures without a model"
    assert forms.refusal("continuous", "compiled") == (
        "the form 'continuous' needs module, and the backend 'compiled' gives tokens, mask, logits: give the case another form of bench/forms"
    )


def test_an_engine_without_logits_is_refused_before_it_runs_because_no_check_could_pass_it(monkeypatch):
    module = types.ModuleType("bench.backends.mine")
    vars(module).update(unsupported=lambda job: "", load=lambda job: None, GIVES=("tokens", "mask", "requests"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = pins.load()
    monkeypatch.setattr(pins, "load", lambda: dataclasses.replace(known, backends={**known.backends, "mine": {"summary": "", "stacks": ["demo"]}}))
    said = "needs logits, and the backend 'mine' gives tokens, mask, requests: the output check needs logits of every engine; add last_logits to it"
    assert said in forms.refusal("generate", "mine") and said in forms.refusal("batch", "mine")
    with pytest.raises(KitError, match="case mine: the form 'generate' " + said):
        plan.plan(["mine"], chosen(stack="demo"), every=False)


GOOD = {"unsupported": lambda job: "", "load": lambda job: None}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"load": None}, r"bench/backends/mine.py has no function load\(job\), which every backend has"),
        ({"unsupported": None}, r"bench/backends/mine.py has no function unsupported\(job\)"),
        ({"GIVES": ("token",)}, "GIVES of bench/backends/mine.py names 'token', allowed are tokens, mask, logits, module, requests"),
        ({"GIVES": "tokens"}, "GIVES of bench/backends/mine.py is 'tokens', allowed is a tuple of texts; a tuple of one text ends in a comma"),
        ({"ARGUMENTS": "threads"}, "ARGUMENTS of bench/backends/mine.py is 'threads', allowed is a tuple of texts"),
    ],
)
def test_a_module_that_is_no_backend_is_told_before_it_runs(names, said, monkeypatch):
    module = types.ModuleType("bench.backends.mine")
    vars(module).update({**GOOD, **names})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(KitError, match=said):
        references.check_module("mine")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (("token",), "NEEDS of bench/forms/mine.py names 'token', allowed are tokens, mask, logits, module, requests"),
        ("tokens", "NEEDS of bench/forms/mine.py is 'tokens', allowed is a tuple of texts; a tuple of one text ends in a comma"),
    ],
)
def test_a_form_that_needs_what_no_engine_gives_is_told_when_it_is_found(needs, said, monkeypatch):
    module = types.ModuleType("bench.forms.mine")
    module.NEEDS = needs
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(modules.WrongModule, match=said):
        forms.find("mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def load(job)\n", "backends/mine.py, line 1: expected ':'; correct this line"),
        ("a = 1\0\n", "the module of 'mine' cannot be imported: (Syntax|Value)Error: source code string cannot contain null bytes; correct it"),
        ("int('x')\n", "the module of 'mine' cannot be imported: ValueError: invalid literal for int.*; correct it"),
        ("1 / 0\n", "the module of 'mine' cannot be imported: ZeroDivisionError: division by zero; correct it"),
    ],
)
def test_a_module_with_an_error_of_python_is_one_line_that_names_it(text, said, tmp_path, monkeypatch):
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "mine.py").write_text(text)
    monkeypatch.setattr(backends, "__path__", [str(tmp_path / "backends")])
    with pytest.raises(KitError, match=said) as caught:
        references.check_module("mine")
    assert "\n" not in str(caught.value)


def test_a_load_that_returns_no_engine_is_named_with_what_it_returned(monkeypatch):
    monkeypatch.setattr(backends, "find", lambda name: types.SimpleNamespace(load=lambda job: ["model"]))
    phases = types.SimpleNamespace(run=lambda name, action: action())
    with pytest.raises(TypeError, match="load of the backend mine returned list, an Engine is needed, as docs/adding.md says"):
        actions.load(types.SimpleNamespace(backend="mine"), None, phases, "")


def test_an_engine_is_closed_however_its_calls_end(monkeypatch):
    closed = []
    monkeypatch.setattr(actions, "load", lambda *_: types.SimpleNamespace(close=lambda: closed.append(True)))
    with actions.opened(None, None, None, ""):
        assert not closed
    with pytest.raises(MemoryError), actions.opened(None, None, None, ""):
        raise MemoryError
    assert closed == [True, True]


def a_manager(results, running=True):
    answers = iter(results)
    return types.SimpleNamespace(
        get_result=lambda timeout: next(answers), is_running=lambda: running, background_thread_status=types.SimpleNamespace(fatal_error="out of blocks")
    )


def test_continuous_batching_is_waited_for_while_it_runs_and_a_request_that_failed_ends_it():
    done = types.SimpleNamespace(error=None, is_finished=lambda: True)
    begun, failed = types.SimpleNamespace(error=None, is_finished=lambda: False), types.SimpleNamespace(error="too long")
    assert list(continuous._answers(a_manager([None, begun, done, None, done]), 2)) == [done, done]
    with pytest.raises(RuntimeError, match="continuous batching stopped with 1 requests left: out of blocks"):
        list(continuous._answers(a_manager([done, None], running=False), 2))
    with pytest.raises(RuntimeError, match="a request failed: too long"):
        list(continuous._answers(a_manager([failed]), 1))


def test_the_cache_of_continuous_batching_holds_whole_blocks_for_each_text():
    for longest, each in ((continuous.BLOCK_TOKENS, 1), (continuous.BLOCK_TOKENS + 1, 2)):
        assert continuous.settings_of(3, longest)["num_blocks"] == 3 * each + 1


def test_an_engine_without_a_method_names_the_method():
    with pytest.raises(NotImplementedError, match="the engine Engine has no method end_tokens, which docs/adding.md describes"):
        Engine().end_tokens()


@pytest.mark.parametrize(
    ("backend", "form", "said"),
    [
        (
            "compiled",
            "workload",
            "the form 'workload' needs module, and the backend 'compiled' gives tokens, mask, logits: give the case another form of bench/forms",
        ),
        ("transformers", "paddding", "form 'paddding' has no module bench/forms/paddding.py; did you mean 'padding'?"),
        ("compield", "generate", "backend 'compield' has no module bench/backends/compield.py; did you mean 'compiled'?"),
    ],
)
def test_a_case_whose_form_does_not_fit_its_backend_is_one_line_that_names_the_case(backend, form, said):
    article = load_all()["inference-tools"]
    fitting = Case("right", "compiled", 1, {"dtype": "float16"}, form="batch")
    wrong = Case("wrong", backend, 1, {"dtype": "float16"}, form=form)
    references.check(dataclasses.replace(article, cases=[*article.cases, fitting]), tolerances(), "mine.toml")
    with pytest.raises(KitError) as error:
        references.check(dataclasses.replace(article, cases=[*article.cases, wrong]), tolerances(), "mine.toml")
    assert str(error.value) == f"mine.toml, [cases[wrong]]: {said}"


WITH_COMPILED = [path for path in sorted(ARTICLES.glob("*.toml")) if 'backend = "compiled"\n' in path.read_text()]


@pytest.mark.parametrize("path", WITH_COMPILED, ids=lambda path: path.stem)
def test_the_articles_are_checked_so_when_they_are_read(path, tmp_path):
    folder = tmp_path / "articles"
    folder.mkdir()
    (tmp_path / "tolerances.toml").write_text((ARTICLES.parent / "tolerances.toml").read_text())
    (folder / path.name).write_text(_of_form(path.read_text(), "continuous"))
    with pytest.raises(KitError, match="needs module, and the backend 'compiled' gives"):
        load_all(folder)


def _of_form(text: str, form: str) -> str:
    """An article whose case of the backend `compiled` has another form."""
    before, _, after = text.partition('backend = "compiled"\n')
    return before + 'backend = "compiled"\n' + f'form = "{form}"\n' + after.replace('form = "padded-sentences"\n', "", 1).replace('form = "batch"\n', "", 1)


def ids(rows: int, tokens: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(shape=(rows, tokens))


def test_a_compiled_model_refuses_a_batch_or_a_length_that_it_was_not_compiled_for():
    engine = compiled.Compiled(model=None, batch_size=2, cache_tokens=16)
    with pytest.raises(ValueError, match="^the model is compiled for a batch of 2, this one has 3 rows$"):
        engine.generate(ids(3, 8), max_new_tokens=4)
    words = "^prompt and answer have 20 tokens, the cache has room for 16: give the case load.cache_tokens = 20$"
    with pytest.raises(ValueError, match=words):
        engine.generate(ids(2, 8), max_new_tokens=12)
    with pytest.raises(ValueError, match=words):
        engine.generate(ids(2, 8), max_length=20)


def test_the_cache_has_room_for_the_longest_answer_or_for_as_much_as_the_case_says():
    runs = [{"new_tokens": 1, "arguments": {}}, {"new_tokens": 12, "arguments": {}}]
    assert compiled.cache_tokens_of(a_job(runs=runs), 32) == 48
    assert compiled.cache_tokens_of(a_job(runs=runs[:1]), 32) == 40, "a profile of eight tokens fits as well"
    assert compiled.cache_tokens_of(a_job(runs=runs, load={"dtype": "float16", "cache_tokens": 100}), 32) == 100


def test_compiling_needs_a_compiler_and_says_which_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    assert compiled.no_compiler("cuda", "inductor") == "torch.compile needs a compiler where it runs, and there is no gcc and no clang: install gcc"
    assert compiled.no_compiler("cpu", "inductor") == "torch.compile needs a compiler where it runs, and there is no g++ and no clang++: install g++"
    assert compiled.no_compiler("cpu", "eager") == ""
    (tmp_path / "clang").write_text("#!/bin/sh\n")
    (tmp_path / "clang").chmod(0o755)
    assert compiled.no_compiler("cuda", "inductor") == ""


def test_the_memory_of_a_module_of_transformers_is_this_process_s():
    memory = Loaded(model=None).memory(a_job(device="cpu"))
    assert memory["devices"] == [] and memory["peak_rss_bytes"] > 1_000_000
    Engine().close()
