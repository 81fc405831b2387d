"""python -m bench JOB RESULT: do what the job file asks, write the result file.

Progress goes to standard output as lines of `@` and a JSON object, between the timed calls, never within one. The exit
code is 0 whenever a result was written, whatever its status; only a job that cannot be read, or a process that is killed,
leaves none.
"""

import json
import sys
import time
import traceback

from bench import backends, check, compat, environment, inputs, measure, ranks, weights
from bench.job import InvalidDocument, Result, parse_job, to_json, write_whole


def say(**event):
    if ranks.is_first():
        print("@" + json.dumps(event), flush=True)


class Phases:
    """When each phase began and ended, in seconds since the epoch: the host places its memory samples by it."""

    def __init__(self):
        self.spans = {}

    def run(self, name, action):
        say(phase=name)
        began = time.time()
        try:
            return action()
        finally:
            self.spans[name] = [began, time.time()]


def synchronizer(job):
    """A function that waits for all queued work on the job's devices."""
    if job.device == "cpu":
        return lambda: None
    import torch

    def synchronize():
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)

    if ranks.inside():
        return torch.cuda.synchronize
    return synchronize


def time_runs(job, loaded, input_ids):
    """(measurements, the new tokens of the last call of the longest run: [batch, new tokens])."""
    import torch
    import transformers

    prompt_tokens = input_ids.shape[1]
    measurements, outputs = [], {}
    for number, run in enumerate(job.runs):
        arguments = dict(run["arguments"])
        arguments.update(compat.length_arguments(transformers.__version__, arguments, prompt_tokens, run["new_tokens"]))

        def generate(arguments=arguments):
            outputs["last"] = loaded.model.generate(input_ids, **arguments)
            return outputs["last"].shape[1] - prompt_tokens

        with torch.no_grad():
            measurements.append(
                measure.measure(
                    generate, run["new_tokens"], job.warmup_runs, job.timed_runs, cold=number == 0, synchronize=synchronizer(job),
                    progress=lambda word, done, total, run=run: say(run=word, done=done, total=total, new_tokens=run["new_tokens"]),
                )
            )
        if run["new_tokens"] == max(one["new_tokens"] for one in job.runs):
            outputs["longest"] = outputs["last"][:, prompt_tokens:]
    return measurements, outputs["longest"]


def last_logits(loaded, input_ids):
    """The logits of the last prompt position, [batch, vocabulary].

    With the attention mask that `generate` makes by itself (int64 ones). Without one, transformers up to 4.26 gives
    BLOOM's layers a float32 mask, which DeepSpeed 0.7.7's kernel reads as float16: wrong logits, in a call that
    `generate` never makes.
    """
    import torch

    with torch.no_grad():
        return loaded.model(input_ids, attention_mask=torch.ones_like(input_ids)).logits[:, -1, :]


def memory(job):
    """Torch's own peaks on each device of this process, and the process's peak resident set."""
    devices = []
    if job.device == "cuda":
        import torch

        for index in [torch.cuda.current_device()] if ranks.inside() else range(torch.cuda.device_count()):
            devices.append({
                "device": "cuda:{}".format(index),
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
            })
    return {"devices": devices, "peak_rss_bytes": environment.peak_rss_bytes()}


def memory_of_ranks(by_rank):
    """One memory record from each rank's: all their devices, and the sum of their resident sets."""
    return {
        "devices": [device for one in by_rank for device in one["devices"]],
        "peak_rss_bytes": sum(one["peak_rss_bytes"] for one in by_rank),
    }


def import_libraries():
    """Import what every backend begins with, so that load_s is the loading alone."""
    import torch
    import transformers

    transformers.AutoModelForCausalLM  # noqa: B018  imported when it is first named
    return torch


def run_measure(job, result, phases):
    backend = backends.find(job.backend)
    began = time.monotonic()
    loaded = phases.run("load", lambda: backend.load(job))
    synchronizer(job)()
    result.load_s = time.monotonic() - began
    result.used = loaded.used
    input_ids = inputs.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    result.prompt_tokens, result.batch_size = input_ids.shape[1], input_ids.shape[0]
    measurements, tokens = phases.run("measure", lambda: time_runs(job, loaded, input_ids))
    result.measurements = [measure.slowest_of_ranks(calls) for calls in zip(*ranks.gather(measurements))]
    result.memory = memory_of_ranks(ranks.gather(memory(job)))
    if job.reference:
        logits = phases.run("check", lambda: last_logits(loaded, input_ids))
        result.check = check.compare(job.reference, logits, tokens, input_ids, job.tolerance)


def run_reference(job, result, phases):
    loaded = phases.run("load", lambda: backends.find("layer-parallel").load(job))
    input_ids = inputs.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    new_tokens = max(run["new_tokens"] for run in job.runs)

    def answer():
        import torch

        with torch.no_grad():
            tokens = loaded.model.generate(
                input_ids, do_sample=False, num_beams=1, max_new_tokens=new_tokens, min_length=input_ids.shape[1] + new_tokens
            )
        return last_logits(loaded, input_ids), tokens[:, input_ids.shape[1]:]

    logits, tokens = phases.run("reference", answer)
    check.save_reference(job.reference, logits, tokens, input_ids)
    result.used = loaded.used


def run_weights(job, result, phases):
    model = job.model
    device = "cuda" if job.device == "cuda" else "cpu"
    result.used = phases.run("weights", lambda: weights.write_checkpoint(
        model["path"], model["shape"], model["scale"], model["seed"], device, progress=lambda done, total: say(shard=done, total=total)
    ))


ACTIONS = {"measure": run_measure, "reference": run_reference, "weights": run_weights}


def run(job):
    """The Result of a job: whatever goes wrong in it becomes its status and reason."""
    result = Result(id=job.id, status="ok")
    phases = Phases()
    out_of_memory = (MemoryError,)
    try:
        torch = phases.run("import", import_libraries)
        out_of_memory += compat.out_of_memory_errors(torch)
        if job.device == "cuda" and torch.cuda.device_count() < job.device_count:
            raise RuntimeError("torch sees {} GPUs, the job needs {}".format(torch.cuda.device_count(), job.device_count))
        ACTIONS[job.kind](job, result, phases)
    except out_of_memory as error:
        result.status, result.reason = "oom", first_line(error)
    except Exception as error:  # the boundary of a job: its failure is a row of the report, with the traceback in the log
        traceback.print_exc()
        # DeepSpeed's workspace is outside torch's allocator, and tells of its end in words only.
        ran_out = "out of memory" in str(error) or "orkspace" in str(error) and "alloc" in str(error)
        result.status, result.reason = "oom" if ran_out else "failed", "{}: {}".format(type(error).__name__, first_line(error))
    result.phases, result.compat, result.environment = phases.spans, dict(compat.TAKEN), environment.describe()
    return result


def first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def main(job_path, result_path):
    with open(job_path, encoding="utf-8") as stream:
        job = parse_job(stream.read())
    if job.kind == "measure":
        backend = backends.find(job.backend)
        reason = backend.unsupported(job)
        if reason:
            result = Result(id=job.id, status="unsupported", reason=reason, environment=environment.describe())
            write_whole(result_path, to_json(result))
            return 0
        if getattr(backend, "RANKS", False) and not ranks.inside():
            return ranks.start(job.device_count, job_path, result_path)
    result = run(job)
    if ranks.is_first():
        write_whole(result_path, to_json(result))
    say(status=result.status)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench JOB RESULT")
    try:
        sys.exit(main(*sys.argv[1:]))
    except (InvalidDocument, OSError, ValueError) as error:
        sys.exit("error: {}".format(error))
