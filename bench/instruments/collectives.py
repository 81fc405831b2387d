"""python -m bench.instruments.collectives JOB OUT [ROWS]: what does a token wait for, where DeepSpeed splits a model over several GPUs?

The program loads the job's model on its GPUs, one rank each, and decodes with the job's batch, or with ROWS rows, in four ways:

    library     as DeepSpeed does it
    direct      DeepSpeed's all-reduce is replaced by torch's own, without DeepSpeed's wrapper around it
    left-out    no all-reduce at all: the numbers are wrong, the time is that of everything else
    unrecorded  as the library, in ranks in which torch keeps no records of collectives (bench/backends/deepspeed.py): the program starts such ranks
                after the others, unless torch is too old to keep any records

The ways of one start take turns (rounds.py). For each way the program writes, for every round and as the median over the rounds, the time of a
further token, the all-reduces of a token, and the host's time for an all-reduce (the call returns before the GPUs have computed it). torch's profiler
adds how long kernels ran on each rank's GPU in a call of a few tokens, with its prompt; kernels that wait for another rank count too. The slowest
rank counts. Each rank's own times stand beside its GPU: without all-reduces no rank waits for another, so these times may differ.
"""

import contextlib
import dataclasses
import functools
import json
import statistics
import sys
import time
from importlib import metadata
from unittest import mock

from bench import backends, compat, profile
from bench.instruments import fitting, rounds
from bench.job import read_job, to_json, write_whole
from bench.measuring import measure, ranks
from bench.models import prompts

#: New tokens of a short and a long call, whose difference is that of further tokens.
SHORT, LONG = 1, 33

#: DeepSpeed's names for an all-reduce: the second one for inference, in newer versions.
NAMES = ("all_reduce", "inference_all_reduce")

WAYS = ("library", "direct", "left-out", "unrecorded")


class Counted:
    """A function, with the number of its calls and the host's seconds in them."""

    def __init__(self, function, clock=time.perf_counter):
        self.function, self.clock, self.calls, self.seconds = function, clock, 0, 0.0

    def __call__(self, *arguments, **named):
        began = self.clock()
        try:
            return self.function(*arguments, **named)
        finally:
            self.seconds += self.clock() - began
            self.calls += 1


def replacement(way, original, direct):
    """What stands in place of the library's all-reduce; `direct` is torch's own."""

    @functools.wraps(original)
    def by_torch(tensor, *arguments, **named):
        return direct(tensor, group=named.get("group"))

    @functools.wraps(original)
    def nothing(tensor, *arguments, **named):
        return None

    return {"direct": by_torch, "left-out": nothing}.get(way, original)


@contextlib.contextmanager
def replaced(modules, way, direct):
    """Within the block the all-reduces of `modules` are those of a way; gives a Counted for each different all-reduce."""
    found = [(module, name, getattr(module, name)) for module in modules for name in NAMES if hasattr(module, name)]
    counts = {original: Counted(replacement(way, original, direct)) for _, _, original in found}
    with contextlib.ExitStack() as changed:
        for module, name, original in found:
            changed.enter_context(mock.patch.object(module, name, counts[original]))
        yield list(counts.values())


def decoded(generate, synchronize, counts, meet):
    """{ms_a_further_token, all_reduces_a_token, host_us_an_all_reduce} of a call of SHORT and one of LONG new tokens.

    Before each call the ranks `meet`: without all-reduces they drift apart, and the next call would begin with waiting.
    """
    times_ms, calls, seconds = {}, {}, {}
    for new_tokens in (SHORT, LONG):
        meet()
        before = [(one.calls, one.seconds) for one in counts]
        times_ms[new_tokens] = measure.elapsed_ms(functools.partial(generate, new_tokens), synchronize)[0]
        calls[new_tokens] = sum(one.calls - count for one, (count, _) in zip(counts, before))
        seconds[new_tokens] = sum(one.seconds - spent for one, (_, spent) in zip(counts, before))
    further = LONG - SHORT
    made = calls[LONG] - calls[SHORT]
    return {
        "ms_a_further_token": (times_ms[LONG] - times_ms[SHORT]) / further,
        "all_reduces_a_token": made / further,
        "host_us_an_all_reduce": 1e6 * (seconds[LONG] - seconds[SHORT]) / made if made else None,
    }


def slowest(by_rank):
    """The ranks' answers for one way, merged: the largest number of each kind in each round, the medians over the rounds, each rank's GPU and times."""
    slowest_of = [{name: _known(max, (one[name] for one in of_round)) for name in of_round[0]} for of_round in zip(*(one["rounds"] for one in by_rank))]
    medians = {name: _known(statistics.median, (one[name] for one in slowest_of)) for name in slowest_of[0]}
    return dict(medians, rounds=slowest_of, gpus=[dict(one["gpu"], ms_a_further_token=_each_ms(one["rounds"])) for one in by_rank])


def _each_ms(of_rank):
    return [one["ms_a_further_token"] for one in of_rank]


def _known(summary, numbers):
    """The summary of the known numbers; None where none is known: without all-reduces there is no time of one."""
    known = [number for number in numbers if number is not None]
    return summary(known) if known else None


def run(job, ways):
    """[{way, …}] of the ways, on rank 0; the other ranks take part."""
    import torch

    loaded = backends.find(job.backend).load(job)
    try:
        import deepspeed
        import transformers

        loaded.input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
        modules = [deepspeed.comm] + ([deepspeed.comm.comm] if hasattr(deepspeed.comm, "comm") else [])
        synchronize, found = measure.synchronizer(job), []

        def generate(new_tokens):
            lengths = compat.length_arguments(transformers.__version__, {"do_sample": False}, loaded.input_ids.shape[1], new_tokens)
            loaded.generate(loaded.input_ids, do_sample=False, **lengths)

        def meet():
            torch.distributed.barrier()
            synchronize()

        def decode(way):
            with replaced(modules, way, torch.distributed.all_reduce) as counts:
                return decoded(generate, synchronize, counts, meet)

        for way, of_rounds in rounds.in_turn(ways, decode).items():
            with replaced(modules, way, torch.distributed.all_reduce):
                traced = profile.profile(job, loaded)
            busy = sum(device["busy_ms"] for device in traced["devices"].values())
            gpu = {"busy_ms": busy, "wall_ms": traced["wall_ms"], "kernels": traced["kernels"], "new_tokens": traced["new_tokens"]}
            found.append(dict(slowest(ranks.gather({"rounds": of_rounds, "gpu": gpu})), way=way))
        return found
    finally:
        loaded.close()


def facts(job):
    import deepspeed
    import torch

    return {
        "backend": job.backend,
        "stack": job.stack,
        "model": job.model.get("shape"),
        "ranks": job.device_count,
        "rows": job.prompt["batch_size"],
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "deepspeed": deepspeed.__version__,
    }


def as_rank(job, out_path):
    """Measure with the other ranks; the first one writes what all found. Ends the process."""
    ranks.die_with_parent()
    found = dict(facts(job), ways=run(job, WAYS[:3] if job.load["torch_records"] else WAYS[3:]))
    if ranks.is_first():
        write_whole(out_path, json.dumps(found))
    ranks.leave(0)


def main(job, out_path):
    """Start the ranks with torch's records and, where torch keeps any, without; returns the exit code."""
    fitting.must_fit("collectives", job)
    version = metadata.version("torch")
    keeps_records = compat.records_collectives(version)
    parts = []
    for records in (True, False) if keeps_records else (True,):
        write_whole(out_path + ".job", to_json(dataclasses.replace(job, load=dict(job.load, torch_records=records))))
        # A start removes the file that its ranks will write. `out_path` keeps what the earlier start found, even if this one never ends.
        code = ranks.start(job.device_count, out_path + ".job", out_path + ".part", "bench.instruments.collectives")
        if code:
            break
        with open(out_path + ".part", encoding="utf-8") as source:
            parts.append(json.load(source))
        told = dict(parts[0], ways=[way for part in parts for way in part["ways"]])
        write_whole(out_path, to_json(told))
    if not parts:
        return code
    if not keeps_records:
        print("unrecorded is left out: torch {} keeps no records of collectives".format(version))
    for way in told["ways"]:
        each_us = way["host_us_an_all_reduce"]
        reduces = "{:.0f} all-reduces".format(way["all_reduces_a_token"]) + ("" if each_us is None else ", each {:.0f} us of the host".format(each_us))
        of_rounds = sorted(one["ms_a_further_token"] for one in way["rounds"])
        print("{:10} {:7.2f} ms ({:.2f} to {:.2f}) a further token, {}".format(way["way"], way["ms_a_further_token"], of_rounds[0], of_rounds[-1], reduces))
    return code


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m bench.instruments.collectives JOB OUT [ROWS]")
    asked = read_job(sys.argv[1])
    if len(sys.argv) == 4:
        asked = dataclasses.replace(asked, prompt=dict(asked.prompt, batch_size=int(sys.argv[3])))
    if ranks.inside():
        as_rank(asked, sys.argv[2])
    sys.exit(main(asked, sys.argv[2]))
