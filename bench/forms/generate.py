"""`generate` on the job's prompt, with the same token ids in every row of the batch."""

import functools

from bench import compat
from bench.backends import TOKENS
from bench.measuring import measure, timed_tokens

NEEDS = (TOKENS,)
TIMES_RUNS = True


def run(job, loaded, say):
    measurements, longest = [], None
    most = max(job_run["new_tokens"] for job_run in job.runs)
    for number, job_run in enumerate(job.runs):
        measurement, calls = _measure(job, loaded, job_run, number == 0, say)
        measurements.append(measurement)
        timed = [tokens.tolist() for tokens in calls[-job.timed_runs :]]
        loaded.answers.append(timed_tokens.Timed(job_run["new_tokens"], timed, measurement["timed_ms"]))
        if job_run["new_tokens"] == most:
            longest = calls[-1]
    return measurements, longest, {}


def call(job, loaded, job_run, input_ids, **more):
    """The new tokens [rows, new tokens] of one call of a run; `more` are further arguments of `generate`."""
    import transformers

    prompt_tokens = input_ids.shape[1]
    arguments = dict(job_run["arguments"], **more)
    arguments.update(compat.length_arguments(transformers.__version__, job_run["arguments"], prompt_tokens, job_run["new_tokens"]))
    return loaded.generate(input_ids, **arguments)


def timed_call(job, loaded, job_run):
    """A function that makes one call as the clock times it, and returns its new tokens [rows, new tokens]."""
    return functools.partial(call, job, loaded, job_run, loaded.input_ids)


def _measure(job, loaded, job_run, cold, say):
    """(the measurement of one of the job's runs, the new tokens [rows, new tokens] of each of its calls)."""
    calls, one_call = [], timed_call(job, loaded, job_run)

    def generate():
        calls.append(one_call())
        return calls[-1].shape[1]

    return measure.measure_run(job, job_run, generate, cold, say), calls
