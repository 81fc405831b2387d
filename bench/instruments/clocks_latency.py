"""python -m bench.instruments.clocks_latency JOB OUT [ROUNDS]: compare the first article's loop with the kit's clock.

JOB is a job.json; the article's own lines for its case load the model. For DeepSpeed the command runs under
`python -m torch.distributed.run --nproc_per_node N`. Each round times a few calls with the article's loop (perf_counter around
`generate`, nothing else) and as many with bench/measuring/measure.py.
"""

import statistics
import sys
from time import perf_counter

from bench import compat
from bench.instruments import clocks
from bench.measuring import measure, ranks
from bench.models import prompts

#: Calls per round of each clock. The article makes ten in a row; with fewer, both clocks see the host at the same speed.
CALLS = 4


def articles_loop(generate):
    """Mean ms of a round's calls as the article's measure_latency times them: without waiting for the devices."""
    latencies = []
    for _ in range(CALLS):
        began = perf_counter()
        generate()
        latencies.append(perf_counter() - began)
    return 1000 * statistics.fmean(latencies)


def kits_clock(generate, synchronize):
    """Mean ms of a round's calls as the guest times them."""
    samples = measure.measure(generate, new_tokens=1, warmup_runs=0, timed_runs=CALLS, cold=False, synchronize=synchronize)
    return statistics.fmean(samples["timed_ms"])


def articles_model(job):
    """The model of a job on its devices, by the loading lines of the article's script for that system."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    path, devices = job.model["path"], ["cuda:{}".format(index) for index in range(job.device_count)]
    if job.case == "transformers":  # the kit's own row
        return AutoModelForCausalLM.from_pretrained(path).eval().to(job.device)
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

        torch.cuda.set_device(ranks.local())
        # Not the article's: low_cpu_mem_usage, which shortens the loading by minutes and changes nothing afterwards.
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float16, low_cpu_mem_usage=True)
        return deepspeed.init_inference(model=model, mp_size=job.device_count, dtype=torch.float16, replace_method="auto", replace_with_kernel_inject=True)
    sys.exit("error: the article has no script for {!r}".format(job.case))


def compare(model, ids, arguments, rounds, synchronize):
    """The summary of the rounds after five warm-up calls, with `wait_ms`."""
    import torch

    def generate():
        with torch.no_grad():
            return model.generate(ids, **arguments).shape[1] - ids.shape[1]

    for _ in range(5):
        generate()
    pairs = clocks.in_turn(lambda: kits_clock(generate, synchronize), lambda: articles_loop(generate), rounds)
    return {**clocks.summary(pairs), "wait_ms": wait_ms(generate, synchronize, calls=CALLS * 10)}


def wait_ms(generate, synchronize, calls):
    """Mean ms of device work after `generate` has returned: the kit counts this time; the article's loop starts the next call meanwhile."""
    waits = []
    for _ in range(calls):
        synchronize()
        generate()
        returned = perf_counter()
        synchronize()
        waits.append(perf_counter() - returned)
    return 1000 * statistics.fmean(waits)


def main():
    job, out, rounds = clocks.arguments("clocks_latency")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    model = articles_model(job)
    place = "cuda:{}".format(torch.cuda.current_device()) if job.device == "cuda" else "cpu"
    ids = prompts.token_ids(job.prompt, job.model["path"]).to(place)
    length = compat.length_arguments(transformers.__version__, {}, ids.shape[1], 1)
    clocks.write(job, compare(model, ids, length, rounds, measure.synchronizer(job)), out)


if __name__ == "__main__":
    main()
