"""Pipeline parallelism: the model cut into as many stages as the job has devices (bench/forms/pipeline_stages.py), under three schedules.

    naive      all sequences as one batch, stage after stage
    in turn    micro-batches one after another, each alone in the pipeline
    rolling    the same micro-batches, all in the pipeline at once, one for each stage

options: micro_batch_size. Each sequence is the prompt's ids, rotated by one more place than the sequence before it.
The backend `transformers` loads the model.

figures: {"schedules": [{schedule, stages, micro_batches, micro_batch_size, wall_ms: [one per run], busy_ms: [[one per stage] per run],
identical}]}. `identical` counts the sequences that have in every timed run the tokens of the first one under "in turn". "rolling" computes the very
same shapes, so there any difference is a fault, and the host calls the output wrong. "naive" computes a batch of another size, which may round
differently.

The output check reads the logits that the stages compute: `run` sets the `last_logits` of the engine to theirs.
"""

import functools

from bench.checking import check
from bench.forms import pipeline_stages
from bench.models import pretrained

OPTIONS = {"micro_batch_size": ()}


def unsupported(job):
    devices = {"cuda": "GPU", "cpu": "CPU stage"}[job.device]
    return "" if job.device_count > 1 else "pipeline parallelism needs at least two stages, this job has 1 {}".format(devices)


def run(job, loaded, say):
    import torch

    devices = pretrained.devices(job)
    micro_batch_size, new_tokens = job.options["micro_batch_size"], job.runs[0]["new_tokens"]
    prompt = loaded.input_ids[0].to(devices[0])
    sequences = torch.stack([prompt.roll(places) for places in range(len(devices) * micro_batch_size)])
    micro_batches = list(sequences.split(micro_batch_size))
    stages = pipeline_stages.cut(loaded.model, devices)
    schedules = (("in turn", micro_batches, 1), ("rolling", micro_batches, len(micro_batches)), ("naive", [sequences], 1))
    figures, expected = [], None
    for name, batches, in_flight in schedules:
        runs = []
        for number in range(job.warmup_runs + job.timed_runs):
            runs.append(pipeline_stages.generate(stages, batches, new_tokens, in_flight))
            say(run=name, done=number + 1, total=job.warmup_runs + job.timed_runs)
        timed = runs[job.warmup_runs :]
        answers = [torch.cat(tokens) for tokens, _, _ in timed]
        expected = answers[0] if expected is None else expected
        figures.append(
            {
                "schedule": name,
                "stages": len(stages),
                "micro_batches": len(batches),
                "micro_batch_size": len(batches[0]),
                "wall_ms": [wall_ms for _, wall_ms, _ in timed],
                "busy_ms": [busy_ms for _, _, busy_ms in timed],
                "identical": check.alike([tokens.tolist() for tokens in answers], expected.tolist()),
            }
        )
    for stage in stages:
        stage.caches.clear()
    loaded.last_logits = functools.partial(pipeline_stages.last_logits, stages)  # the whole model would hide a fault of a stage
    return [], expected[:1], {"schedules": figures, "prompt_tokens": len(prompt), "new_tokens": new_tokens}
