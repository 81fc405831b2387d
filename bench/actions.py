"""What each kind of job does: measure, profile, make a reference, judge, write weights, convert.

An action fills the Result step by step. bench/__main__.py catches its errors and keeps what was filled before.
"""

import contextlib
import gc
import json
import os
import time

from bench import backends, forms, profile
from bench.checking import check, judge
from bench.measuring import clock, longer, measure, ranks, roof, timed_tokens, token_times
from bench.measuring.clock import Stamp
from bench.models import generate_arguments, pickles, prompts, token_texts, weights


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
        """As `run`, for a phase that is too short to be reported."""
        since = Stamp()
        try:
            return action()
        finally:
            self.spans[name] = since.window()


def memory_of_ranks(by_rank):
    """Merge the memory records of all ranks: all devices, the sum of the peak resident sets and, where a rank counts them, the processes in the sum."""
    merged = {
        "devices": [device for record in by_rank for device in record["devices"]],
        "peak_rss_bytes": sum(record["peak_rss_bytes"] for record in by_rank),
    }
    if any("processes" in record for record in by_rank):
        merged["processes"] = sum(record.get("processes", 1) for record in by_rank)
    return merged


@contextlib.contextmanager
def no_garbage_collection():
    """For imports, which make a million objects that stay: the collector looks through them once at the end, not again and again."""
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
    if not isinstance(loaded, backends.Engine):
        raise TypeError("load of the backend {} returned {}, an Engine is needed, as docs/adding.md says".format(job.backend, type(loaded).__name__))
    try:
        measure.synchronizer(job)()
        result.load_s = time.monotonic() - began
        result.used = loaded.used
        loaded.folder, loaded.answers = folder, []
        loaded.input_ids = phases.stamp("prompt", lambda: prompts.token_ids(job.prompt, job.model["path"])).to(loaded.device)
        loaded.prompt_ids, loaded.prompt_mask = loaded.input_ids, None
        result.prompt_tokens, result.batch_size = loaded.input_ids.shape[1], loaded.input_ids.shape[0]
    except BaseException:
        loaded.close()
        raise
    return loaded


def check_arguments(job, form):
    """Raise UnknownArgument where the library does not know an argument of the job's runs: before `load`, which may take many minutes."""
    import transformers

    generate_arguments.check(job, transformers, forms.asks_pipeline(form))


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
    if forms.times_runs(form) and job.device == "cuda" and ranks.is_first():
        measure_limits(job, result, phases)


def measure_loaded(job, result, phases, form, folder):
    """All that needs the model. Nothing holds the model any more when this returns."""
    check_arguments(job, form)
    with opened(job, result, phases, folder) as loaded:
        device = launch_device(job, loaded)
        before = clock.launch_us(device) if device else None
        tokens = time_calls(job, result, phases, form, loaded)
        if device:
            result.launch_us = {"before": before, "after": clock.launch_us(device)}
        result.memory = memory_of_ranks(ranks.gather(loaded.memory(job)))
        if job.reference:
            check_output(job, result, phases, form, loaded, tokens)
        if job.device == "cuda" and forms.makes_further_calls(form):
            result.figures["longer"] = phases.run("longer", lambda: longer.windows(job, loaded, form, result.measurements))
        if job.variant == "controlled" and tells_tokens(form):
            result.figures["token_times"] = phases.run("tokens", lambda: token_times.measure_tokens(job, loaded, form, result.measurements))


def launch_device(job, loaded):
    """The device of the small operators that show the host's speed (clock.launch_us): the engine's device, or this process's GPU where the engine
    takes lists of ids. "" where the engine works in other processes: this process must not take memory of their GPUs."""
    import torch

    if job.device == "cuda" and loaded.device == "cpu":
        return "cuda:0" if torch.cuda.is_initialized() else ""
    return loaded.device


def tells_tokens(form):
    """Can further calls of this form tell when each token comes? Rows that end early make no more stamps."""
    return forms.times_runs(form) and hasattr(form, "call") and not forms.stops(form)


def measure_limits(job, result, phases):
    """Measure how fast the GPU itself is and, in rows that make more than one token on one GPU, the matrix products of a step alone."""
    shape = job.model.get("shape")
    config = weights.config_of(shape, job.model["scale"]) if shape in weights.SHAPES else None
    decodes = any(run["new_tokens"] > 1 for run in job.runs)
    result.figures.update(phases.run("limits", lambda: roof.measure(job, config, products=decodes and job.device_count == 1)))


def time_calls(job, result, phases, form, loaded=None):
    """Let a form make its calls, store its measurements in the result; returns the tokens for the output check, or None."""
    measurements, tokens, result.figures = phases.run("measure", lambda: form.run(job, loaded, say))
    result.measurements = [measure.slowest_of_ranks(calls) for calls in zip(*ranks.gather(measurements))]
    return tokens


def check_output(job, result, phases, form, loaded, tokens):
    """Compare the engine's logits with the reference, and write the timed tokens for the judge."""
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

    timed_tokens.write(job, loaded, form, forms.stops(form), clocked)


def run_reference(job, result, phases, folder):
    loaded = phases.run("load", lambda: backends.find("layer-parallel").load(job))
    input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    new_tokens = job.most_new_tokens

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
    check_arguments(job, forms.find(job.form))
    keep = os.path.join(folder, "trace.json.gz") if ranks.is_first() else None
    with opened(job, result, phases, folder) as loaded:
        result.figures = phases.run("profile", lambda: {"profile": profile.profile(job, loaded, keep)})
        result.memory = memory_of_ranks(ranks.gather(loaded.memory(job)))


ACTIONS = {"measure": run_measure, "reference": run_reference, "judge": run_judge, "weights": run_weights, "convert": run_convert, "profile": run_profile}
