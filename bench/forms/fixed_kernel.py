"""A fixed piece of work without a model, timed by the kit's own clock: it shows how steady this machine is, and what the clock itself takes.

Options: `kernel`, "product" (PRODUCTS matrix products of a fixed size, in a row) or "none" (nothing: what remains is the clock).
"""

import functools

from bench.measuring import measure

LOADS = False
TIMES_RUNS = True
OPTIONS = {"kernel": ()}

#: Rows and columns of the square matrices: some 10 ms on a core, about 1 ms on an H200 in float16.
SIZES = {"cpu": 512, "cuda": 4096}

#: Products of a call.
PRODUCTS = 4


def run(job, loaded, say):
    work = kernel(job)

    def one_call(new_tokens):
        work()
        return new_tokens  # a job counts tokens; a kernel makes none

    measurements = [measure.measure_run(job, run, functools.partial(one_call, run["new_tokens"]), place == 0, say) for place, run in enumerate(job.runs)]
    return measurements, None, {"kernel": {"kernel": job.options["kernel"], "size": SIZES[job.device], "products": PRODUCTS, "dtype": job.load["dtype"]}}


def kernel(job):
    """A function that does the job's work once; the devices may still compute when it returns, as with `generate`."""
    if job.options["kernel"] == "none":
        return lambda: None
    import torch

    size, device = SIZES[job.device], "cuda:0" if job.device == "cuda" else "cpu"
    generator = torch.Generator().manual_seed(0)
    matrix = (torch.randn(size, size, generator=generator) / size**0.5).to(device, getattr(torch, job.load["dtype"]))

    def products():
        value = matrix
        for _ in range(PRODUCTS):
            value = value @ matrix
        return value

    return products
