"""A model cut into as many stages as the job has devices (bench/forms/stages.py), generating under three schedules.

    naive      all sequences as one batch, stage after stage
    in turn    micro-batches one after another, each alone in the pipeline
    rolling    the same micro-batches, as many as stages, all in the pipeline at once

options: micro_batch_size; the prompt's ids, rotated by one more place for each sequence. Backend `transformers` loads the model.

figures: {"schedules": [{schedule, stages, micro_batches, micro_batch_size, wall_ms: [a run each], busy_ms: [[a stage each] a run each],
identical}]}, where `identical` counts the sequences that came out as under "in turn": there, and for "rolling", the very same shapes
are computed, so that any difference is a fault; a batch of another size may round differently.
"""

from bench.forms import stages
from bench.models import pretrained

OPTIONS = {"micro_batch_size": ()}


def unsupported(job):
    layers = {"cuda": "GPUs", "cpu": "CPU stages"}[job.device]
    return "" if job.device_count > 1 else "a pipeline needs two stages at least, and there is one of the {}".format(layers)


def run(job, loaded, say):
    import torch

    devices = pretrained.devices(job)
    size, new_tokens = job.options["micro_batch_size"], job.runs[0]["new_tokens"]
    prompt = loaded.input_ids[0].to(devices[0])
    rows = torch.stack([prompt.roll(place) for place in range(len(devices) * size)])
    micro_batches = list(rows.split(size))
    parts = stages.cut(loaded.model, devices)
    schedules = (("in turn", micro_batches, 1), ("rolling", micro_batches, len(micro_batches)), ("naive", [rows], 1))
    found, expected = [], None
    for name, batches, in_flight in schedules:
        runs = []
        for number in range(job.warmup_runs + job.timed_runs):
            runs.append(stages.generate(parts, batches, new_tokens, in_flight))
            say(run=name, done=number + 1, total=job.warmup_runs + job.timed_runs)
        tokens = torch.cat(runs[-1][0])
        expected = tokens if expected is None else expected
        timed = runs[job.warmup_runs :]
        found.append(
            {
                "schedule": name,
                "stages": len(parts),
                "micro_batches": len(batches),
                "micro_batch_size": len(batches[0]),
                "wall_ms": [wall_ms for _, wall_ms, _ in timed],
                "busy_ms": [busy_ms for _, _, busy_ms in timed],
                "identical": int((tokens == expected).all(dim=1).sum()),
            }
        )
    for part in parts:
        part.caches.clear()
    loaded.model.to(loaded.device)  # together again, for the output check
    return [], expected[:1], {"schedules": found, "prompt_tokens": len(prompt), "new_tokens": new_tokens}
