"""Ranks, one process per GPU: start them, and gather their samples."""

import ctypes
import os
import signal
import socket
import subprocess
import sys


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


def die_with_parent():
    """Ask Linux to kill this process when its parent dies: a rank has its own session, so it would outlive its parent."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def gpus():
    """The indices of this process's GPUs: the rank's own, or all visible GPUs."""
    import torch

    return [torch.cuda.current_device()] if inside() else list(range(torch.cuda.device_count()))


def start(count, job_path, result_path):
    """Run `python -m bench` once for each of `count` GPUs on this machine; returns the exit code, 0 where a result was written.

    The first rank that fails writes the result, and torch.distributed.run ends the others.
    """
    if os.path.exists(result_path):
        os.unlink(result_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "1",
        "--nproc_per_node",
        str(count),
        "--master_addr",
        "127.0.0.1",
        "--master_port",
        str(port),
        "-m",
        "bench",
        job_path,
        result_path,
    ]
    # A container without a network has only the loopback interface, and NCCL does not use it by default.
    environment = dict(os.environ, NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "4"))
    exit_code = subprocess.call(command, env=environment, preexec_fn=die_with_parent)
    return 0 if os.path.exists(result_path) else exit_code


def leave():
    """End this rank at once with exit code 1, so that torch.distributed.run ends the ranks that wait for it in a collective.

    Otherwise they would wait for many minutes. An orderly exit, which closes the connections, might wait as well.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def gather(value):
    """[value of rank 0, value of rank 1, …] on every rank; [value] for a single rank, which needs no group."""
    if total() == 1:
        return [value]
    import torch.distributed as distributed

    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
