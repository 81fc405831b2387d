"""Kernel fusion: the four fused regions of a layer (bench/forms/fused_regions.py), one new token, in several batch sizes, without a model.

options: implementations (of fused_regions.IMPLEMENTATIONS), batch_sizes, past_tokens, samples, calls_per_sample.

figures: {"fusion": [{region, implementation, batch_size, us: [samples], device_us, relative_error, reason}]}; `device_us` is the time
of one call's GPU kernels, from torch's profiler; `relative_error` is against the same computation in float32. Where an implementation
cannot run, `us` is empty and `reason` says why.
"""

from bench import compat, profile, reasons
from bench.checking import check
from bench.forms import fused_regions
from bench.measuring import clock
from bench.models import pretrained, weights

LOADS = False
OPTIONS = dict.fromkeys(("implementations", "batch_sizes", "past_tokens", "samples", "calls_per_sample"), ())


def shape_of(job):
    """(hidden size, heads) of the job's model."""
    config = weights.config_of(job.model["shape"], job.model["scale"])
    return config.get("hidden_size") or config["n_embd"], config.get("n_head") or config["num_attention_heads"]


def run(job, loaded, say):
    import torch

    device, options = pretrained.first_device(job), job.options
    if device != "cpu":
        torch.cuda.set_device(device)
    hidden, heads = shape_of(job)
    layer = fused_regions.make_weights(hidden, getattr(torch, job.load["dtype"]), device)
    rows = []
    with torch.no_grad():
        for batch_size in options["batch_sizes"]:
            inputs = fused_regions.make_activations(hidden, batch_size, options["past_tokens"], layer.norm_bias.dtype, device)
            exact = fused_regions.exact_answers(layer, inputs, heads)
            for implementation in options["implementations"]:
                say(run=implementation, batch_size=batch_size)
                for row in _rows(implementation, layer, inputs, heads, exact, device, options):
                    rows.append(dict(row, implementation=implementation, batch_size=batch_size))
    return [], None, {"fusion": rows}


def _rows(implementation, layer, inputs, heads, exact, device, options):
    """One row for each region; an implementation that does not run here gives rows with the reason."""
    import torch

    try:
        calls = fused_regions.calls_of(implementation, layer, inputs, heads)
    except Exception as error:  # a library or a compiler is missing: the other implementations still count
        return [_without(region, error) for region in fused_regions.REGIONS]
    rows = []
    for region in fused_regions.REGIONS:
        function, arguments = calls[region]
        try:
            rows.append(_row(region, lambda function=function, arguments=arguments: function(*arguments), exact[region], device, options))
        except compat.out_of_memory_errors(torch):
            raise
        except Exception as error:
            rows.append(_without(region, error))
    return rows


def _row(region, call, exact, device, options):
    error = check.tensor_error(call(), exact)
    us = clock.call_times_us(call, device, options["samples"], options["calls_per_sample"])
    return {"region": region, "us": us, "device_us": _device_us(call, device), "relative_error": error, "reason": ""}


def _without(region, error):
    reason = reasons.reason(error)
    return {"region": region, "us": [], "device_us": None, "relative_error": None, "reason": reason[:300]}


def _device_us(call, device, calls=20):
    """µs of one call's kernels on the GPU; None on a CPU, and where the profiler saw no kernel."""
    if device == "cpu":
        return None

    def several():
        for _ in range(calls):
            call()

    kernels = profile.kernels(profile.trace(several))
    return sum(duration for _, _, _, duration in kernels) / calls if kernels else None
