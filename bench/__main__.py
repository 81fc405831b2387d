"""python -m bench JOB RESULT: run the job of a job file and write the result file.

Progress goes to standard output as lines of `@` and a JSON object, only between timed calls. The exit code is 0 whenever a result was
written, whatever its status. Only an unreadable job or a killed process leaves no result.
"""

import atexit
import contextlib
import gc
import json
import os
import sys
import time
import traceback

from bench import backends, compat, forms, profile, reasons
from bench.checking import check, judge
from bench.job import InvalidDocument, Result, parse_job, to_json, write_whole
from bench.measuring import clock, environment, longer, measure, ranks, roof, timed_tokens, token_times
from bench.measuring.clock import Stamp
from bench.models import pickles, prompts, token_texts, weights


def say(**event):
    if ranks.is_first():
        print("@" + json.dumps(event), flush=True)


class Phases:
    """When each phase began and ended, in seconds since the epoch: the host assigns its memory samples to phases."""

    def __init__(self):
        self.spans = {}

    def run(self, name, action):
        say(phase=name)
        return self.stamp(name, action)

    def stamp(self, name, action):
        """`run` of a phase too short to be told while it lasts."""
        since = Stamp()
        try:
            return action()
        finally:
            self.spans[name] = since.window()


def memory_of_ranks(by_rank):
    """Merge the memory records of all ranks: all devices, and the sum of the peak resident sets."""
    return {
        "devices": [device for record in by_rank for device in record["devices"]],
        "peak_rss_bytes": sum(record["peak_rss_bytes"] for record in by_rank),
    }


@contextlib.contextmanager
def no_garbage_collection():
    """For imports, which make a million objects that stay: what is left is looked through once, in place of again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def import_libraries():
    """Import the libraries of every backend, so that load_s measures only the loading."""
    with no_garbage_collection():
        import torch
        import transformers

        transformers.AutoModelForCausalLM  # noqa: B018  imported when it is first named
    return torch


def load(job, result, phases, folder):
    """The engine of the job, loaded on its devices, with the prompt and the folder; the loading is timed."""
    backend = backends.find(job.backend)
    began = time.monotonic()
    loaded = phases.run("load", lambda: backend.load(job))
    measure.synchronizer(job)()
    result.load_s = time.monotonic() - began
    result.used = loaded.used
    loaded.folder, loaded.answers = folder, []
    loaded.input_ids = phases.stamp("prompt", lambda: prompts.token_ids(job.prompt, job.model["path"])).to(loaded.device)
    loaded.prompt_ids, loaded.prompt_mask = loaded.input_ids, None
    result.prompt_tokens, result.batch_size = loaded.input_ids.shape[1], loaded.input_ids.shape[0]
    return loaded


@contextlib.contextmanager
def opened(job, result, phases, folder):
    """`load` for a `with` block; the engine is closed at its end."""
    loaded = load(job, result, phases, folder)
    try:
        yield loaded
    finally:
        loaded.close()


def run_measure(job, result, phases, folder):
    form = forms.find(job.form)
    if not forms.loads(form):
        time_calls(job, result, phases, form)
        result.memory = memory_of_ranks(ranks.gather(backends.process_memory(job)))
        return
    measure_loaded(job, result, phases, form, folder)
    # The first rank alone: a probe that failed in one of several ranks would leave the others waiting for it.
    if times_runs(form) and job.device == "cuda" and ranks.is_first():
        measure_limits(job, result, phases)


def measure_loaded(job, result, phases, form, folder):
    """All that needs the model. Nothing holds the model any more when this returns."""
    with opened(job, result, phases, folder) as loaded:
        device = launch_device(job, loaded)
        before = clock.launch_us(device) if device else None
        tokens = time_calls(job, result, phases, form, loaded)
        if device:
            result.launch_us = {"before": before, "after": clock.launch_us(device)}
        result.memory = memory_of_ranks(ranks.gather(loaded.memory(job)))
        if job.reference:
            check_output(job, result, phases, form, loaded, tokens)
        calls_again = times_runs(form) and hasattr(form, "call") and not getattr(form, "STOPS", False)  # rows that end make no more stamps
        if job.device == "cuda" and getattr(form, "CALLS_AS_TIMED", False):
            result.figures["longer"] = phases.run("longer", lambda: longer.windows(job, loaded, form, result.measurements))
        if calls_again and job.variant == "controlled":
            result.figures["token_times"] = phases.run("tokens", lambda: token_times.measure_tokens(job, loaded, form, result.measurements))


def launch_device(job, loaded):
    """Where the host starts a small operator, to tell how fast it is: the engine's device, or this process's GPU where an engine takes lists of
    ids. "" where the engine works in other processes: this process must not take memory of their GPUs."""
    import torch

    if job.device == "cuda" and loaded.device == "cpu":
        return "cuda:0" if torch.cuda.is_initialized() else ""
    return loaded.device


def times_runs(form):
    """Are the measurements of this form the calls of the job's runs?"""
    return getattr(form, "TIMES_RUNS", False)


def measure_limits(job, result, phases):
    """How fast the GPU itself is, and in rows that make more than one token the matrix products of a step alone."""
    shape = job.model.get("shape")
    config = weights.config_of(shape, job.model["scale"]) if shape in weights.SHAPES else None
    decodes = any(run["new_tokens"] > 1 for run in job.runs)
    result.figures.update(phases.run("limits", lambda: roof.measure(job, config, products=decodes)))


def time_calls(job, result, phases, form, loaded=None):
    """Let a form make its calls, store its measurements in the result; returns the tokens for the output check, or None."""
    measurements, tokens, result.figures = phases.run("measure", lambda: form.run(job, loaded, say))
    result.measurements = [measure.slowest_of_ranks(calls) for calls in zip(*ranks.gather(measurements))]
    return tokens


def check_output(job, result, phases, form, loaded, tokens):
    """Compare the engine's logits with the reference, where it gives logits, and write the timed tokens for the judge."""
    if backends.LOGITS in backends.gives(backends.find(job.backend)):
        input_ids = loaded.input_ids[: check.CHECKED_ROWS]
        logits = phases.run("check", lambda: loaded.last_logits(input_ids))
        result.check = check.compare(job.reference, logits, tokens, input_ids, job.tolerance)
    if tokens is not None and job.model["weights"] == "hub":  # a random model writes nonsense
        expected = check.expected_tokens(job.reference, loaded.input_ids)
        result.figures["wrote"] = phases.stamp("texts", lambda: token_texts.wrote(job, tokens[0].tolist(), expected))
    if loaded.answers:
        phases.run("answers", lambda: write_answers(job, loaded, form))


def write_answers(job, loaded, form):
    """Write the tokens of the timed calls for the judge; every rank makes the calls, the first rank writes."""
    synchronize = measure.synchronizer(job)

    def clocked(action):
        return measure.elapsed_ms(action, synchronize)[0]

    timed_tokens.write(job, loaded, form, clocked)


def run_reference(job, result, phases, folder):
    loaded = phases.run("load", lambda: backends.find("layer-parallel").load(job))
    input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    new_tokens = max(run["new_tokens"] for run in job.runs)

    def answer():
        tokens = loaded.generate(input_ids, do_sample=False, num_beams=1, max_new_tokens=new_tokens, min_length=input_ids.shape[1] + new_tokens)
        return loaded.last_logits(input_ids), tokens

    logits, tokens = phases.run("reference", answer)
    check.save_reference(job.reference, logits, tokens, input_ids)
    result.used = loaded.used


def run_judge(job, result, phases, folder):
    result.check = phases.run("judge", lambda: judge.run(job, folder))


def judged_from_kept_readings(job, result, phases, folder):
    """Judge from kept readings, without importing torch, which takes seconds; False where they do not suffice or the job is no judge."""
    if job.kind != "judge":
        return False
    result.check = phases.run("judge", lambda: judge.from_kept_readings(job, folder))
    return result.check is not None


def run_weights(job, result, phases, folder):
    model = job.model
    device = "cuda" if job.device == "cuda" else "cpu"
    result.used = phases.run(
        "weights",
        lambda: weights.write_checkpoint(
            model["path"],
            model["shape"],
            model["scale"],
            model["seed"],
            device,
            recipe=weights.recipe_of(model),
            progress=lambda done, total: say(shard=done, total=total),
        ),
    )


def run_convert(job, result, phases, folder):
    source, target = job.model["path"], job.options["into"]
    result.used = phases.run("convert", lambda: pickles.convert(source, target, lambda done, total: say(shard=done, total=total)))


def run_profile(job, result, phases, folder):
    keep = os.path.join(folder, "trace.json.gz") if ranks.is_first() else None
    with opened(job, result, phases, folder) as loaded:
        result.figures = phases.run("profile", lambda: {"profile": profile.profile(job, loaded, keep)})
        result.memory = memory_of_ranks(ranks.gather(loaded.memory(job)))


ACTIONS = {"measure": run_measure, "reference": run_reference, "judge": run_judge, "weights": run_weights, "convert": run_convert, "profile": run_profile}


def run(job, folder="."):
    """The Result of a job, which may write in `folder`. Every error of the job becomes the status and the reason of the Result."""
    result = Result(id=job.id, status="ok")
    phases = Phases()
    out_of_memory = (MemoryError,)
    try:
        if not judged_from_kept_readings(job, result, phases, folder):
            torch = phases.run("import", import_libraries)
            out_of_memory += compat.out_of_memory_errors(torch)
            if job.device == "cuda" and torch.cuda.device_count() < job.device_count:
                raise RuntimeError("torch sees {} GPUs, the job needs {}".format(torch.cuda.device_count(), job.device_count))
            ACTIONS[job.kind](job, result, phases, folder)
    except out_of_memory as error:
        result.status, result.reason = "oom", reasons.first_line(error)
    except Exception as error:  # the boundary of a job: the report shows its failure, the log the traceback
        traceback.print_exc()
        result.status = "oom" if reports_out_of_memory(error) else "failed"
        result.reason = reasons.reason(error) + place_in_library(error)
    result.environment = phases.stamp("describe", environment.describe)
    result.phases, result.compat = phases.spans, dict(compat.TAKEN)
    return result


def reports_out_of_memory(error):
    """Does the text of an error report that memory ran out? CUDA, cuBLAS, the host's allocator and DeepSpeed's workspace have no error type for it."""
    text = str(error)
    known = any(words in text for words in ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory"))
    return known or "orkspace" in text and "alloc" in text


def place_in_library(error):
    """ " (accelerate/utils/modeling.py, line 490)" for an error that a library raised, so that a failed row leads to its cause; else "".

    The kit's own errors say what is wrong.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _, found, path = frame.filename.rpartition("/site-packages/")
    return " ({}, line {})".format(path, frame.lineno) if found else ""


def read_job(path):
    with open(path, encoding="utf-8") as stream:
        return parse_job(stream.read())


def end(job, exit_code):
    """End the process once its result is written. What is registered for its end is done; torch's objects are not taken apart one by one,
    which takes a second and frees nothing that the end of a process does not. A profiler around the process may wait for an ordinary end.
    """
    if job.kind != "profile":
        with contextlib.suppress(Exception):  # its traceback is printed; the result stands
            atexit._run_exitfuncs()
        ranks.leave(exit_code)
    sys.exit(exit_code)


def main(job, job_path, result_path):
    """Do the job and write its result; returns the exit code."""
    if ranks.inside():
        ranks.die_with_parent()
    if job.kind in ("measure", "profile"):
        backend = backends.find(job.backend)
        form = forms.find(job.form)
        reason = forms.refusal(job.form, job.backend) or backend.unsupported(job) or forms.unsupported(form, job)
        if reason:
            result = Result(id=job.id, status="unsupported", reason=reason, environment=environment.describe())
            write_whole(result_path, to_json(result))
            return 0
        if backends.has_ranks(backend) and forms.loads(form) and not ranks.inside():
            return ranks.start(job.device_count, job_path, result_path)
    result = run(job, os.path.dirname(os.path.abspath(result_path)))
    say(status=result.status)
    if ranks.total() > 1 and result.status != "ok":
        if not os.path.exists(result_path):  # another rank may have failed earlier and caused this failure: its result stays
            write_whole(result_path, as_json(result))
        ranks.leave(1)
    if ranks.is_first():
        write_whole(result_path, as_json(result))
    return 0


def as_json(result):
    """The result as JSON; without its figures, and failed, where a figure holds a number that JSON has no word for."""
    try:
        return to_json(result)
    except ValueError as error:
        names = [name for name, figure in result.figures.items() if not is_finite(figure)]
        result.status, result.figures = "failed", {name: figure for name, figure in result.figures.items() if name not in names}
        result.reason = "its figures {} hold a number that is not finite ({})".format(", ".join(names), reasons.first_line(error))
        return to_json(result)


def is_finite(figure):
    try:
        json.dumps(figure, allow_nan=False)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench JOB RESULT")
    try:
        asked = read_job(sys.argv[1])
        end(asked, main(asked, *sys.argv[1:]))
    except (InvalidDocument, OSError, ValueError) as error:
        sys.exit("error: {}".format(error))
