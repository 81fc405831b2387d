"""Does the kit's clock tell what the first article's own loop tells? Both time the same calls of the same model.

    PYTHON -m tests.honesty [ROUNDS]            a tiny model on the CPU (`make honesty`)
    PYTHON -m tests.honesty ROUNDS JOB OUT      the model and the prompt of a run's job.json, loaded by the article's own lines on
                                                GPUs; for DeepSpeed under `python -m torch.distributed.run --nproc_per_node N`

LIMIT_S=60 in the environment holds this script and its two siblings to about the rounds of so many seconds, unless several ranks run it.

Each round times a few calls with the article's loop (perf_counter around `generate`, nothing else) and as many with
bench/measuring/measure.py, in turn, each first in every other round, so that a drift of the machine hits both: hosts change their speed within a
second. Printed: the ratio of the two means over all rounds with its interval. A ratio that is not 1 within it would be the kit's own overhead.
"""

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench import compat, forms
from bench.job import parse_job, to_json, write_whole
from bench.measuring import clock, measure
from bench.models import prompts, weights

#: Calls in a round by either clock. The article makes ten in a row; fewer let more rounds see the same moment of a host.
CALLS = 4


def articles_loop(generate):
    """Mean ms of a round's calls, as the article's measure_latency takes it: without waiting for any device."""
    latencies = []
    for _ in range(CALLS):
        began = perf_counter()
        generate()
        latencies.append(perf_counter() - began)
    return 1000 * statistics.fmean(latencies)


def kits_clock(generate, synchronize):
    """Mean ms of a round's calls, as the guest takes it."""
    samples = measure.measure(generate, new_tokens=1, warmup_runs=0, timed_runs=CALLS, cold=False, synchronize=synchronize)
    return statistics.fmean(samples["timed_ms"])


def tiny_model():
    """(A tiny random BLOOM through the kit's own checkpoint, a prompt of 64 tokens)."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    with checkpoint("-", "bloomz-7b1") as folder:
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval(), torch.arange(64).reshape(1, 64) + 10


def articles_model(job):
    """The model of a job on its GPUs, by the loading lines of the article's script for that system."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    path, devices = job.model["path"], [f"cuda:{index}" for index in range(job.device_count)]
    if job.case == "layer-parallel":
        return AutoModelForCausalLM.from_pretrained(path, device_map="auto")
    if job.case == "tensor-parallel":
        import tensor_parallel as tp

        return tp.tensor_parallel(AutoModelForCausalLM.from_pretrained(path, low_cpu_mem_usage=True), devices)
    if job.case == "int8":
        eight_bit = compat.eight_bit_arguments(transformers.__version__, lambda: transformers.BitsAndBytesConfig(load_in_8bit=True))
        return AutoModelForCausalLM.from_pretrained(path, device_map="auto", max_memory={0: "24GB"}, **eight_bit)
    if job.case == "bminf":
        import bminf

        model = AutoModelForCausalLM.from_pretrained(path, low_cpu_mem_usage=True)
        return bminf.wrapper(model, quantization=False, memory_limit=8 << 30)
    if job.case == "deepspeed":
        import deepspeed

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # Not the article's: low_cpu_mem_usage, which shortens the loading by minutes and changes nothing afterwards.
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float16, low_cpu_mem_usage=True)
        return deepspeed.init_inference(model=model, mp_size=job.device_count, dtype=torch.float16, replace_method="auto", replace_with_kernel_inject=True)
    sys.exit(f"error: the article has no script for {job.case!r}")


def compare(model, ids, arguments, rounds, synchronize=lambda: None):
    """`summary` of the rounds, after five calls to warm up, and beside it `wait_ms`."""
    import torch

    def generate():
        with torch.no_grad():
            return model.generate(ids, **arguments).shape[1] - ids.shape[1]

    for _ in range(5):
        generate()
    means = in_turn(lambda: kits_clock(generate, synchronize), lambda: articles_loop(generate), rounds)
    return summary(means) | {"wait_ms": wait_ms(generate, synchronize, calls=CALLS * 10)}


def wait_ms(generate, synchronize, calls):
    """Mean ms that devices still compute once `generate` has returned: the kit counts them, the article's loop lets the next call begin meanwhile."""
    waits = []
    for _ in range(calls):
        synchronize()
        generate()
        returned = perf_counter()
        synchronize()
        waits.append(perf_counter() - returned)
    return 1000 * statistics.fmean(waits)


def limit_s():
    """How long the rounds may take, by LIMIT_S; without end for several ranks: those that stopped at rounds of their own would wait for each other for ever."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return float("inf" if several else os.environ.get("LIMIT_S", "inf"))


def in_turn(kit, article, rounds):
    """[(what `kit()` gives, what `article()` gives)] of each round, each of them first in every other one; of as many as LIMIT_S allows."""
    means, began = [], perf_counter()
    for number in range(rounds):
        if means and perf_counter() - began > limit_s():
            break
        times = {clock: clock() for clock in ((article, kit) if number % 2 else (kit, article))}
        means.append((times[kit], times[article]))
    return means


def call_by_call(job, loaded, article, rounds):
    """([(the kit's ms of a call, what `article()` gives)], the form's figures): the job's form makes its calls, and after each, with the kit's clock
    stopped, the article's loop makes one. So both see the same moment of a host whose speed changes within seconds.

    Each call of either follows one of the other: the cold call and the first pair, which do not, are left out.
    """
    article()  # to warm up
    began = perf_counter()
    article()
    rounds = max(1, int(min(rounds, limit_s() / 2 / (perf_counter() - began))))
    others = []
    timed = dataclasses.replace(job, warmup_runs=0, timed_runs=rounds + 1)
    (measurement,), _, figures = forms.find(job.form).run(timed, loaded, lambda **event: others.append(article()))
    return list(zip(measurement["timed_ms"], others, strict=True))[1:], figures


def summary(means, unit="ms"):
    """{ratio (of the means over all rounds), half_width (of its 95 % interval, None for one round), median (of the rounds' ratios), …,
    rounds_UNIT: the pairs themselves}.

    The mean of the rounds' own ratios would lie above 1 for two equal clocks, by their variance. The interval is that of a
    ratio of paired means, linearised (Cochran, Sampling Techniques, 3rd edition, section 2.11).
    """
    kit, article = (statistics.fmean(pair[clock] for pair in means) for clock in (0, 1))
    ratio = kit / article
    residuals = [one - ratio * other for one, other in means]
    return {
        "ratio": ratio,
        "half_width": 1.96 * statistics.stdev(residuals) / article / len(means) ** 0.5 if len(means) > 1 else None,
        "median": statistics.median(one / other for one, other in means),
        "rounds": len(means),
        f"kit_{unit}": kit,
        f"article_{unit}": article,
        f"rounds_{unit}": [[round(one, 4), round(other, 4)] for one, other in means],
    }


def options(case=None):
    """What was typed after a script that runs beside an article's loop: CHECKPOINT BATCH ROUNDS OUT NEW_TOKENS, before them a case where one is the default."""
    parser = argparse.ArgumentParser()
    if case:
        parser.add_argument("case", nargs="?", default=case)
    parser.add_argument("checkpoint", nargs="?", default="-")
    parser.add_argument("batch", nargs="?", type=int, default=4)
    parser.add_argument("rounds", nargs="?", type=int, default=30)
    parser.add_argument("out", nargs="?")
    parser.add_argument("new_tokens", nargs="?", type=int)
    return parser.parse_args()


@contextlib.contextmanager
def checkpoint(given, shape):
    """The folder of the weights: the one given, or for "-" a tiny random model of this shape, gone afterwards."""
    if given != "-":
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        weights.write_checkpoint(folder, shape, "tiny", seed=0)
        yield folder


def tell(what, found, out=None):
    """Print a summary, of several ranks the first one's; `out` is the file that gets it as JSON, with the GPU and the number of cores that it was found on."""
    import torch
    import transformers

    if os.environ.get("RANK", "0") != "0":
        return
    found |= {"launch_us": clock.launch_us("cuda" if torch.cuda.is_available() else "cpu"), "cpu_cores": len(os.sched_getaffinity(0))}
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "device_count": torch.cuda.device_count(), "transformers": transformers.__version__}
    if out:
        write_whole(out, to_json(found))
    spread = "" if found["half_width"] is None else f" ± {found['half_width']:.4f}"
    print(f"{what}: kit / article's loop: {found['ratio']:.4f}{spread} (95 % interval over {found['rounds']} rounds, median {found['median']:.4f})")


def main(rounds, job_path=None, out=None):
    if job_path is None:
        tell(f"{CALLS} calls a round", compare(*tiny_model(), {"max_new_tokens": 1, "do_sample": False}, rounds))
        return
    import torch
    import transformers

    job = parse_job(Path(job_path).read_text(encoding="utf-8"))
    model = articles_model(job)
    device = torch.cuda.current_device()
    ids = prompts.token_ids(job.prompt, job.model["path"]).to(f"cuda:{device}")
    every = [device] if "LOCAL_RANK" in os.environ else range(torch.cuda.device_count())
    arguments = compat.length_arguments(transformers.__version__, {}, ids.shape[1], 1)
    found = compare(model, ids, arguments, rounds, lambda: [torch.cuda.synchronize(index) for index in every])
    tell(f"{job.case} ({job.stack}), {CALLS} calls a round", found | {"case": job.case, "stack": job.stack}, out)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 75, *sys.argv[2:])
