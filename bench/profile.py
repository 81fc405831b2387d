"""What do the devices do during one call of `generate`? For jobs of kind "profile".

The call makes few new tokens, so that a trace stays small. A profile holds the call's wall time without a profiler (median of five), and
from torch's profiler the number of kernels, the busy time of each GPU, and the kernels that took longest. On a CPU operators take the place
of kernels; the time of an operator includes the operators that it calls. A GPU with a short busy time waits for the host.

With the profiler "nsys" the host runs the job under Nsight Systems; this module then only marks the profiled call.
"""

import collections
import gzip
import json
import os
import statistics
import tempfile

from bench import compat
from bench.measuring import measure

#: New tokens of a profiled call.
NEW_TOKENS = 8


def kernels(trace, category="kernel"):
    """[(device, name, begin in µs, duration in µs)] of a Chrome trace's kernels, or of its "cpu_op" operators."""
    return [
        (event.get("args", {}).get("device", 0), event["name"], float(event["ts"]), float(event["dur"]))
        for event in trace["traceEvents"]
        if event.get("cat") == category and "dur" in event
    ]


def busy_ms(spans):
    """Milliseconds covered by [(begin, duration)] in µs, overlaps counted once."""
    total, reached = 0.0, float("-inf")
    for begin, duration in sorted(spans):
        total += max(0.0, begin + duration - max(begin, reached))
        reached = max(reached, begin + duration)
    return total / 1000


def summary(kernels_found):
    """{"kernels", "devices": {device: {"kernels", "busy_ms"}}, "top": [{name, count, ms}]}"""
    devices, names = collections.defaultdict(list), collections.defaultdict(list)
    for device, name, begin, duration in kernels_found:
        devices[device].append((begin, duration))
        names[name].append(duration)
    top = sorted(names.items(), key=lambda item: -sum(item[1]))[:10]
    return {
        "kernels": len(kernels_found),
        "devices": {str(device): {"kernels": len(spans), "busy_ms": busy_ms(spans)} for device, spans in sorted(devices.items())},
        "top": [{"name": name[:100], "count": len(times), "ms": sum(times) / 1000} for name, times in top],
    }


def trace(call, keep=None):
    """The Chrome trace of one call as data, by torch's profiler; also written to the path `keep`, gzipped, unless that is None."""
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


def profile(job, loaded, keep=None):
    """{"profiler", "new_tokens", "wall_ms", "profiled_wall_ms", and the summary of the kernels}; the trace is kept at `keep`."""
    import transformers

    arguments = {name: value for name, value in job.runs[0]["arguments"].items() if "length" not in name and name != "max_new_tokens"}
    arguments.update(compat.length_arguments(transformers.__version__, {"do_sample": False}, loaded.input_ids.shape[1], NEW_TOKENS))
    synchronize = measure.synchronizer(job)

    def call():
        return measure.elapsed_ms(lambda: loaded.generate(loaded.input_ids, **arguments), synchronize)[0]

    wall_ms = [call() for _ in range(7)][2:]
    figures = {"profiler": job.options.get("profiler", "torch"), "new_tokens": NEW_TOKENS, "wall_ms": statistics.median(wall_ms)}
    if figures["profiler"] == "nsys":
        return dict(figures, profiled_wall_ms=_marked(call))
    profiled_ms = []
    traced = trace(lambda: profiled_ms.append(call()), keep)
    spans = kernels(traced) if job.device == "cuda" else kernels(traced, "cpu_op")
    return dict(figures, profiled_wall_ms=profiled_ms[0], **summary(spans))


def _marked(call):
    """Make the call between the marks where Nsight Systems starts and stops recording; without a GPU there are no marks."""
    import torch

    if not torch.cuda.is_available():
        return call()
    torch.cuda.profiler.start()
    try:
        return call()
    finally:
        torch.cuda.profiler.stop()
