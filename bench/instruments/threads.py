"""python -m bench.instruments.threads JOB OUT: what does a call wait for, where tensor_parallel splits a model over several GPUs?

tensor_parallel drives each GPU from a thread of one process. The threads share Python's lock, and meet wherever the parts of the GPUs are put
together. The program loads the job's model and makes one token after the job's prompts in five ways:

    library     as tensor_parallel does it
    switching   the same, and a thread that waits for Python's lock gets it after 0.1 ms in place of 5
    left-out    the threads never meet, and no part moves between GPUs: the numbers are wrong, the time is that of everything else
    one-thread  left-out, and one thread drives all GPUs, one after another
    alone       left-out, and one thread drives one GPU with its part of the model

The ways take turns (rounds.py). Two threads that do not hinder each other take as long as `alone`; two that only take turns, as `one-thread`.
For each way the program writes the median call, each round's median and, from torch's profiler, how long kernels ran on each GPU in one call; on
CPUs operators take the place of kernels.
"""

import contextlib
import functools
import importlib
import statistics
import sys
from importlib import metadata
from unittest import mock

from bench import backends, compat, profile
from bench.instruments import fitting, rounds
from bench.job import read_job, to_json, write_whole
from bench.measuring import measure
from bench.models import prompts

WAYS = ("library", "switching", "left-out", "one-thread", "alone")

#: Timed calls of a way in a round.
CALLS = 5

#: Seconds after which a thread gets Python's lock from another; Python's own value is 0.005.
SWITCH_INTERVAL_S = 0.0001


def _own_part(self, x, rank):
    return x


def _own_part_for_each(self, x, rank):
    """As long as the result of NCCL's gather, which joins the parts along `dim`."""
    import torch

    return torch.cat([x] * self.world_size, dim=self.dim)


def _own_part_for_each_by_copies(self, x, rank):
    """The same for the gather without NCCL, which keeps a place for each part."""
    return self.gather_op([x] * len(self.parts), x.device)


def _own_result(self, x, rank):
    """An operation of a model's own, such as the one that keeps each GPU's part of the cache."""
    return self.func(*[x] * self.world_size)[rank]


#: What each of tensor_parallel's operations gives where no thread waits for another.
UNMET = {
    "NCCLAllReduce": _own_part,
    "AllReduce": _own_part,
    "NCCLAllGather": _own_part_for_each,
    "AllGather": _own_part_for_each_by_copies,
    "CollectiveOperation": _own_result,
}


@contextlib.contextmanager
def switching_after(seconds):
    kept = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(kept)


def one_after_another(modules, inputs, kwargs_tup=None, devices=None, count=None):
    """As torch's parallel_apply, but in the calling thread. With `count` only so many modules work; the first output stands for those of the others."""
    outputs = []
    for module, arguments, named, device in list(zip(modules, inputs, kwargs_tup or [{}] * len(modules), devices))[:count]:
        with _on(device):
            outputs.append(module(*arguments, **named))
    return outputs + outputs[:1] * (len(modules) - len(outputs))


def _on(device):
    if device.type != "cuda":
        return contextlib.nullcontext()
    import torch

    return torch.cuda.device(device)


@contextlib.contextmanager
def done(way, library, operations):
    """Within the block the modules of tensor_parallel, `library` and `operations`, work in a way."""
    with contextlib.ExitStack() as changed:
        if way == "switching":
            changed.enter_context(switching_after(SWITCH_INTERVAL_S))
        if way in ("left-out", "one-thread", "alone"):
            for name, call in UNMET.items():
                changed.enter_context(mock.patch.object(getattr(operations, name), "__call__", call))
        if way in ("one-thread", "alone"):
            apply = functools.partial(one_after_another, count=1 if way == "alone" else None)
            changed.enter_context(mock.patch.multiple(library, parallel_apply=apply, parallel_apply_simple=apply))
        yield


def examine(job, keep):
    """[{way, ms_a_call, rounds, devices}] of the ways, given to `keep` once they are timed, and again with what each profile tells as `devices`."""
    import transformers

    loaded = backends.find(job.backend).load(job)
    # The package has a function with the name of its module, so only importlib gives the module.
    library, operations = (importlib.import_module("tensor_parallel." + name) for name in ("tensor_parallel", "communications"))
    input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    lengths = compat.length_arguments(transformers.__version__, {"do_sample": False}, input_ids.shape[1], 1)
    synchronize = measure.synchronizer(job)

    def call():
        loaded.generate(input_ids, do_sample=False, **lengths)

    def take(way):
        with done(way, library, operations):
            return median_ms(call, synchronize)

    def traced(way):
        with done(way, library, operations):
            # The call waits for all GPUs: otherwise the kernels of the GPU that works last would be missing.
            kernels = profile.kernels(profile.trace(lambda: measure.elapsed_ms(call, synchronize)), "kernel" if job.device == "cuda" else "cpu_op")
        return profile.summary(kernels)["devices"]

    return timed_and_traced(take, traced, lambda ways: keep(input_ids.shape[1], ways))


def median_ms(call, synchronize):
    """The median of CALLS calls: some of them wait for another program of the host."""
    return statistics.median(measure.elapsed_ms(call, synchronize)[0] for _ in range(CALLS))


def timed_and_traced(take, traced, keep):
    """The ways by rounds of `take`, each then `traced`; what was timed stays where a profiler fails."""
    taken = rounds.in_turn(WAYS, take)
    ways = [{"way": way, "ms_a_call": statistics.median(of_rounds), "rounds": of_rounds} for way, of_rounds in taken.items()]
    keep(ways)
    for way in ways:
        way["devices"] = traced(way["way"])
    keep(ways)
    return ways


def facts(job, prompt_tokens):
    import torch

    return {
        "backend": job.backend,
        "model": job.model.get("shape"),
        "gpus": job.device_count,
        "gpu": torch.cuda.get_device_name(0) if job.device == "cuda" else "",
        "rows": job.prompt["batch_size"],
        "prompt_tokens": prompt_tokens,
        "torch": torch.__version__,
        "tensor_parallel": metadata.version("tensor_parallel"),
        "switch_interval_s": sys.getswitchinterval(),
    }


def main(job_path, out):
    job = read_job(job_path)
    fitting.must_fit("threads", job)
    for way in examine(job, lambda prompt_tokens, ways: write_whole(out, to_json(dict(facts(job, prompt_tokens), ways=ways)))):
        print("{:10} {:7.2f} ms ({:.2f} to {:.2f}) a call".format(way["way"], way["ms_a_call"], min(way["rounds"]), max(way["rounds"])))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.instruments.threads JOB OUT")
    main(*sys.argv[1:])
