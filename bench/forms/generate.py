"""`model.generate` on the job's prompt, with the same token ids in every row of the batch."""

from bench import compat
from bench.measuring import measure, timed_tokens

TIMES_RUNS = True


def run(job, loaded, say):
    measurements, longest = [], None
    most = max(one["new_tokens"] for one in job.runs)
    for number, one in enumerate(job.runs):
        measurement, calls = _measure(job, loaded, one, number == 0, say)
        measurements.append(measurement)
        loaded.answers.append(timed_tokens.of_run(one["new_tokens"], [made.tolist() for made in calls[-job.timed_runs :]], measurement["timed_ms"]))
        if one["new_tokens"] == most:
            longest = calls[-1]
    return measurements, longest, {}


def call(job, loaded, one, input_ids, **more):
    """The new tokens [rows, new tokens] of one call of a run; `more` goes to `generate` beside the run's own arguments."""
    import torch
    import transformers

    prompt_tokens = input_ids.shape[1]
    arguments = dict(one["arguments"], **more)
    arguments.update(compat.length_arguments(transformers.__version__, one["arguments"], prompt_tokens, one["new_tokens"]))
    with torch.no_grad():
        return loaded.model.generate(input_ids, **arguments)[:, prompt_tokens:]


def _measure(job, loaded, one, cold, say):
    """(the measurement of one of the job's runs, the new tokens [rows, new tokens] of each of its calls)."""
    calls = []

    def generate():
        calls.append(call(job, loaded, one, loaded.input_ids))
        return calls[-1].shape[1]

    return measure.measure_run(job, one, generate, cold, say), calls
