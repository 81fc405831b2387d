"""The backend `compiled` on real tiny models: right tokens from the compiled step itself, and nothing is compiled within a call."""

import shutil

import pytest

from bench.job import parse_result, to_json
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job

GREEDY = {"do_sample": False, "num_beams": 1}
FLOORS = {"regret_p90": 1e-3, "regret_max": 0.02, "logits_error": 1e-3}
RUNS = [{"new_tokens": 1, "arguments": GREEDY}, {"new_tokens": 12, "arguments": GREEDY}]
BATCH = {"text": "the quick brown fox", "tokens": 32, "batch_size": 3}


def compiled_job(architecture, checkpoints, compiler="eager", **changes):
    """A job whose step is one traced graph; "eager" runs that graph as it is, without the minute that writing its kernels takes."""
    load = {"dtype": "float32", "compiler": compiler}
    return tiny_job(architecture, checkpoints[architecture], **{"backend": "compiled", "load": load, "prompt": BATCH, "runs": RUNS, **changes})


def judged(guest, job, folder):
    """The judge's verdict on what a measuring job left in its folder."""
    options = {"dtype": "float32", "floors": FLOORS}
    fields = {"kind": "judge", "options": options, "reference": str(folder / "readings.npz"), "runs": job.runs}
    return guest.run(tiny_job(job.model["architecture"], job.model["path"], **fields)).check


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_a_batch_comes_out_as_plain_transformers_and_passes_check_and_judge(guest, checkpoints, references, tmp_path, architecture):
    job = compiled_job(architecture, checkpoints, reference=references[architecture])
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.check["passed"] and result.check["greedy_common_prefix_tokens"] == 4, result.check
    assert [one["new_tokens"] for one in result.measurements] == [1, 12]
    assert (result.used["graphs"], result.used["cache_tokens"], result.used["dtype"]) == (1, 48, "float32")
    assert 0 < result.used["compile_s"] < result.load_s
    verdict = judged(guest, job, tmp_path)
    assert verdict["passed"] and verdict["not_seen"] == [], verdict


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("g++"), reason="NOT TESTED: kernels for a CPU need a C++ compiler; install g++")
@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_kernels_written_by_inductor_give_the_same(guest, checkpoints, references, tmp_path, architecture):
    job = compiled_job(architecture, checkpoints, compiler="inductor", reference=references[architecture])
    result = guest.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert result.used["graphs"] == 1 and judged(guest, job, tmp_path)["passed"]


SPOILT = """
from bench.__main__ import main, read_job
from bench.backends import compiled
real = compiled._compile_config

def spoilt(job, **settings):
    def compiler(graph, inputs):
        return lambda *values: [one * 1.5 if one.is_floating_point() and one.dim() == 3 else one for one in graph(*values)]

    config = real(job, **settings)
    config.backend = compiler
    return config

compiled._compile_config = spoilt
main(read_job({job!r}), {job!r}, {result!r})
print("null")
"""


def test_the_judge_sees_a_step_that_computes_something_else(guest, checkpoints, references, tmp_path):
    """The prompt is read by the model as it is, so the check of the prompt's logits alone passes."""
    job = compiled_job("gptj", checkpoints, reference=references["gptj"])
    (tmp_path / "job.json").write_text(to_json(job))
    guest.code(SPOILT.format(job=str(tmp_path / "job.json"), result=str(tmp_path / "result.json")))
    assert parse_result((tmp_path / "result.json").read_text()).check["passed"]
    assert not judged(guest, job, tmp_path)["passed"]


COMPILES_AGAIN = """
import json
from bench.job import parse_job
from bench.backends import compiled
loaded = compiled.load(parse_job({job!r}))
ids = __import__("torch").ones((1, 8), dtype=int)
try:
    loaded.model.generate(ids, do_sample=False, max_new_tokens=4)
    print(json.dumps("no error"))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""


def test_what_would_be_compiled_within_a_call_is_an_error_there(guest, checkpoints):
    assert "recompile" in guest.code(COMPILES_AGAIN.format(job=to_json(compiled_job("gptj", checkpoints))))


def test_a_padded_batch_of_uneven_sentences_is_one_graph_too(guest, checkpoints):
    sentences = ["the quick brown fox", "jumps", "over the lazy dog and further on"]
    prompt = {"text": sentences[0], "texts": sentences, "tokens": 4, "batch_size": 3}
    load = {"dtype": "float32", "compiler": "eager", "cache_tokens": 16}
    runs = [{"new_tokens": 6, "arguments": {"do_sample": False, "max_new_tokens": 6}}]
    result = guest.run(compiled_job("bloom", checkpoints, form="padded-sentences", prompt=prompt, load=load, runs=runs))
    assert result.status == "ok", result.reason
    assert result.figures["cycles"]["counted_tokens"] == 18 and result.figures["cycles"]["padded_logits_relative_error"] < 1e-4


def test_a_batch_of_texts_is_answered_and_judged(guest, checkpoints, references, tmp_path):
    runs = [{"new_tokens": 12, "arguments": {"do_sample": False}}]
    job = compiled_job(
        "llama", checkpoints, form="batch", runs=runs, options={"texts": "prompt"}, reference=references["llama"], prompt={**BATCH, "tokens": None}
    )
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.figures["calls"] == [{"new_tokens": 12, "timed_tokens": [36, 36, 36]}]
    assert judged(guest, job, tmp_path)["passed"]


def test_a_profile_makes_its_calls_with_the_compiled_step(guest, checkpoints):
    result = guest.run(compiled_job("gptj", checkpoints, kind="profile", runs=RUNS[:1]))
    assert result.status == "ok", result.reason
    assert result.figures["profile"]["new_tokens"] == 8 and result.used["graphs"] == 1


def test_a_form_that_works_on_the_model_itself_is_refused_before_anything_is_loaded(guest, checkpoints):
    result = guest.run(compiled_job("bloom", checkpoints, form="kv-offload"))
    assert result.status == "unsupported" and result.reason.startswith("the form 'kv-offload' needs module, and the backend 'compiled' gives ")
    assert result.load_s is None
