"""Ranks, one process per GPU: start them, and gather their samples."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

from bench import reasons

#: Prefixes of the variables that say how GPUs exchange data: of NCCL, of torch's collectives and symmetric memory, of NVSHMEM and of vLLM's
#: all-reduces. A machine may need these variables, and a time on several GPUs depends on them.
BETWEEN_GPUS = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_SYMM_", "NVSHMEM_", "VLLM_ALLREDUCE_")

#: The errors by which an engine refuses an argument, on all ranks alike.
REFUSALS = (TypeError, ValueError, NotImplementedError)

#: The interval at which the process that started the ranks looks whether one has ended.
LOOK_EVERY_S = 0.05


def inside():
    """Is this process one of several ranks?"""
    return "LOCAL_RANK" in os.environ


def is_first():
    return int(os.environ.get("RANK", "0")) == 0


def local():
    """This rank's number on this machine, which is its GPU's index; 0 without ranks."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def total():
    """The number of ranks; 1 without ranks."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class LaterCallFailed(Exception):
    """A call after the timed ones failed on one of several ranks: the run has its times, and fails."""


def told(error, alike=()):
    """{reason} of an error in calls that the run can do without. One of several ranks raises LaterCallFailed instead, because the others would
    wait for a rank that gave up alone; all ranks raise an error of `alike` at once, so its reason is returned."""
    reason = reasons.reason(error)
    if total() > 1 and not isinstance(error, alike):
        raise LaterCallFailed("a call after the timed ones failed on one of {} ranks: {}".format(total(), reason)) from error
    return {"reason": reason}


def die_with_parent():
    """Ask Linux to kill this process when its parent dies: a rank has its own session, so it would outlive its parent."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def gpus():
    """The indices of this process's GPUs: the rank's own, or all visible GPUs."""
    import torch

    return [torch.cuda.current_device()] if inside() else list(range(torch.cuda.device_count()))


def start(count, job_path, result_path, module="bench"):
    """Run `python -m MODULE JOB RESULT` once for each of `count` GPUs on this machine; returns the exit code, 0 where a result was written.

    The first rank that fails writes the result, and the others are ended. The ranks find each other as under torch.distributed.run, a
    launcher that would import torch before it starts them.
    """
    if os.path.exists(result_path):
        os.unlink(result_path)
    command = [sys.executable, "-m", module, job_path, result_path]
    workers = []
    try:
        common = _environment(count)
        for rank in range(count):
            own = dict(common, RANK=str(rank), LOCAL_RANK=str(rank))
            workers.append(subprocess.Popen(command, env=own, start_new_session=True, preexec_fn=die_with_parent))
        exit_code = _first_failure(workers)
    finally:
        for worker in workers:
            _end(worker)
    return 0 if os.path.exists(result_path) else exit_code


def _environment(count):
    """What all ranks are told: the variables of this process, and how they find each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    unless_set = {"OMP_NUM_THREADS": "4", "NCCL_ASYNC_ERROR_HANDLING": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    own = {
        # A container without a network has only the loopback interface; NCCL looks for another one unless told.
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    return dict(dict(unless_set, **os.environ), **own)


def _first_failure(workers):
    """Wait until all have ended, or one of them badly; the exit code, 128 + n where signal n ended it."""
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [code for code in codes if code]
        if failed:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        time.sleep(LOOK_EVERY_S)


def _end(worker):
    """Kill a rank and its whole session: a rank that waits in a collective does not react to a gentler signal."""
    if worker.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def leave(exit_code):
    """End this process at once, without the ordinary end of an interpreter.

    A rank that failed leaves so, and the process that started it then ends the others, which could wait in a collective for many minutes. With
    an ordinary end the failed rank would close its connections in order, and might wait as well.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def gather(value):
    """[value of rank 0, value of rank 1, …] on every rank; [value] for a single rank, which needs no group."""
    if total() == 1:
        return [value]
    import torch.distributed as distributed

    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
