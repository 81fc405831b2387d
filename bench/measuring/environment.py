"""This interpreter and this machine, as the guest sees them."""

import glob
import os
import platform
import sys

from bench.measuring import ranks


def packages():
    """{normalised name: version} of every installed distribution."""
    from importlib import metadata  # here, because it loads the e-mail parser: the host imports this module and asks for no packages

    versions = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            versions.setdefault(name.lower().replace("_", "-"), distribution.version)
    return dict(sorted(versions.items()))


def arch_list(torch):
    """The GPU architectures that this torch has code for; `torch.cuda.get_arch_list` is empty without a GPU."""
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return (flags or "").split()


def between_gpus():
    """{name: value} of the variables that ranks.BETWEEN_GPUS names. A path may tell of its user, and the result is published: "a path" stands for it."""
    return {name: "a path" if "/" in value else value for name, value in sorted(os.environ.items()) if name.startswith(ranks.BETWEEN_GPUS)}


def interpreter():
    """The part of a Result's environment that needs no GPU. It has facts of torch only where the job imported torch: the import takes seconds."""
    facts = {
        "python": platform.python_version(),
        "platform": "{} {}".format(platform.system(), platform.machine()),
        "executable": os.path.basename(sys.executable),
        "packages": packages(),
        "device_nodes": sorted(glob.glob("/dev/nvidia[0-9]*")),
        "between_gpus": between_gpus(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["torch"] = {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "arch_list": arch_list(torch),
            "threads": torch.get_num_threads(),
        }
    return facts


def describe():
    """The environment of a Result: `interpreter`, and the devices where torch is imported. CUDA starts here at the latest, and may raise."""
    facts, torch = interpreter(), sys.modules.get("torch")
    if torch is None:
        return facts
    facts["devices"] = [
        {
            "name": torch.cuda.get_device_name(index),
            "compute_capability": "{}.{}".format(*torch.cuda.get_device_capability(index)),
            "memory_total_bytes": torch.cuda.get_device_properties(index).total_memory,
        }
        for index in range(torch.cuda.device_count())
    ]
    return facts


def gpu_memory(job):
    """[{device, allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes}] of this process's GPUs, as torch counts them.

    [] in a process that touched no GPU because the engine works in others: torch counts the memory of its own process only.
    """
    if job.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_initialized():
        return []
    return [
        {
            "device": "cuda:{}".format(index),
            "allocated_bytes": torch.cuda.memory_allocated(index),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
            "reserved_bytes": torch.cuda.memory_reserved(index),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
        }
        for index in ranks.gpus()
    ]


def peak_rss_bytes():
    """The peak resident set of this process, by the kernel."""
    return _status("self").get("VmHWM", 0)


def peak_rss_of_all():
    """(the sum of the peak resident sets of this process and all its descendants, the number of these processes).

    Processes that have ended by now are missing, and memory that several processes share counts in each.
    """
    found = {int(path.rpartition("/")[2]): _status(path.rpartition("/")[2]) for path in glob.glob("/proc/[0-9]*")}
    family, grown = {os.getpid()}, True
    while grown:
        children = {pid for pid, status in found.items() if status.get("PPid") in family} - family
        family, grown = family | children, bool(children)
    peaks = [found[pid]["VmHWM"] for pid in family if "VmHWM" in found.get(pid, {})]  # one that ended and was not waited for has none
    return sum(peaks), len(peaks)


def _status(pid):
    """{PPid, VmHWM in bytes} of a process; {} where it ended, or where it is another user's."""
    numbers = {}
    try:
        with open("/proc/{}/status".format(pid)) as stream:
            for line in stream:
                name, _, words = line.partition(":")
                if name in ("PPid", "VmHWM"):
                    numbers[name] = int(words.split()[0]) * (1024 if name == "VmHWM" else 1)
    except OSError:
        return {}
    return numbers
