"""python -m bench.profile JOB OUT: what do the GPUs do during one call of a job's first run?

Writes, as JSON: the call's wall time without a profiler (median of ten), and from torch's profiler the number of kernels, how long
each GPU was busy with them, and the kernels that took longest. A GPU that is busy for a small share of the wall time
waits for the host. For backends of one process, on GPUs.
"""

import collections
import gzip
import json
import os
import statistics
import sys
import tempfile
import time

from bench import backends, compat, inputs
from bench.job import parse_job


def kernels(trace):
    """[(device, name, begin in µs, duration in µs)] of a Chrome trace's kernels."""
    return [
        (event["args"].get("device", 0), event["name"], float(event["ts"]), float(event["dur"]))
        for event in trace["traceEvents"]
        if event.get("cat") == "kernel" and "dur" in event
    ]


def busy_ms(spans):
    """Milliseconds covered by [(begin, duration)] in µs, overlaps counted once."""
    total, reached = 0.0, float("-inf")
    for begin, duration in sorted(spans):
        total += max(0.0, begin + duration - max(begin, reached))
        reached = max(reached, begin + duration)
    return total / 1000


def summary(found):
    """{"kernels", "devices": {device: {"kernels", "busy_ms"}}, "top": [{name, count, ms}]}"""
    devices, names = collections.defaultdict(list), collections.defaultdict(list)
    for device, name, begin, duration in found:
        devices[device].append((begin, duration))
        names[name].append(duration)
    top = sorted(names.items(), key=lambda item: -sum(item[1]))[:10]
    return {
        "kernels": len(found),
        "devices": {str(device): {"kernels": len(spans), "busy_ms": busy_ms(spans)} for device, spans in sorted(devices.items())},
        "top": [{"name": name[:100], "count": len(times), "ms": sum(times) / 1000} for name, times in top],
    }


def trace(call, keep=None):
    """The Chrome trace of one call as data, by torch's profiler; also written to `keep`, gzipped, where that is a path."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with torch.profiler.profile(activities=activities) as profiler:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        profiler.export_chrome_trace(path)
        with open(path, "rb") as stream:
            text = stream.read()
    finally:
        os.unlink(path)
    if keep:
        with gzip.open(keep, "wb") as stream:
            stream.write(text)
    return json.loads(text.decode("utf-8", errors="replace"))


def profile(job):
    """{"wall_ms", "profiled_wall_ms", and the summary of the kernels}"""
    import torch
    import transformers

    loaded = backends.find(job.backend).load(job)
    input_ids = inputs.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    arguments = dict(job.runs[0]["arguments"])
    arguments.update(compat.length_arguments(transformers.__version__, arguments, input_ids.shape[1], job.runs[0]["new_tokens"]))

    def call():
        began = time.perf_counter()
        with torch.no_grad():
            loaded.model.generate(input_ids, **arguments)
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)
        return (time.perf_counter() - began) * 1000

    wall_ms = [call() for _ in range(13)][3:]
    profiled_ms = []
    found = kernels(trace(lambda: profiled_ms.append(call())))
    return {"wall_ms": statistics.median(wall_ms), "profiled_wall_ms": profiled_ms[0], **summary(found)}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.profile JOB OUT")
    with open(sys.argv[1], encoding="utf-8") as source:
        asked = parse_job(source.read())
    answer = {"backend": asked.backend, "stack": asked.stack, "load": asked.load, "devices_asked": asked.device_count, **profile(asked)}
    with open(sys.argv[2], "w", encoding="utf-8") as target:
        json.dump(answer, target, indent=1)
    for device, one in answer["devices"].items():
        print("GPU {}: {} kernels, busy {:.1f} of {:.1f} ms".format(device, one["kernels"], one["busy_ms"], answer["wall_ms"]))
