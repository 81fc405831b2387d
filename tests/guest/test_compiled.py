"""The backend `compiled` on real tiny models: right tokens from the compiled step itself, and nothing is compiled within a call."""

import pytest

from bench.job import to_json
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job

GREEDY = {"do_sample": False, "num_beams": 1}
FLOORS = {"regret_p90": 1e-3, "regret_max": 0.02, "logits_error": 1e-3}


def compiled_job(architecture, checkpoints, compiler="eager", **changes):
    """A job whose step is traced into one graph; "eager" runs that graph without the minute that writing kernels takes."""
    return tiny_job(architecture, checkpoints[architecture], backend="compiled", load={"dtype": "float32", "compiler": compiler}, **changes)


def judged(guest, job, folder):
    """The judge's verdict on what a measuring job left in its folder."""
    judge = tiny_job(job.model["architecture"], job.model["path"], kind="judge", reference=str(folder / "readings.npz"), runs=job.runs)
    guest.folder.joinpath("judge.json").write_text(to_json(judge))
    options = {"dtype": "float32", "floors": FLOORS}
    return guest.run(
        tiny_job(job.model["architecture"], job.model["path"], kind="judge", options=options, reference=str(folder / "readings.npz"), runs=job.runs)
    )


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_a_batch_comes_out_as_plain_transformers_and_passes_check_and_judge(guest, checkpoints, references, tmp_path, architecture):
    prompt = {"text": "the quick brown fox", "tokens": 32, "batch_size": 3}
    runs = [{"new_tokens": 1, "arguments": GREEDY}, {"new_tokens": 12, "arguments": GREEDY}]
    job = compiled_job(architecture, checkpoints, prompt=prompt, runs=runs, reference=references[architecture])
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.check["passed"] and result.check["greedy_common_prefix_tokens"] == 4, result.check
    assert [one["new_tokens"] for one in result.measurements] == [1, 12]
    assert result.used["graphs"] == 1 and result.used["cache_tokens"] == 44 and 0 < result.used["compile_s"] < result.load_s
    assert judged(guest, job, tmp_path).check["passed"]
