"""python -m bench.instruments.equal_calls JOB OUT: do equal calls of a model give equal numbers, and where does the first difference begin?

The program loads the job's backend and calls it CALLS times with the job's prompt: a call that reads the whole prompt, then a call of one more token
over a cache of the prompt. It compares each layer's output and the last logits with those of the first call, bit by bit, and does so with each of
torch's attention kernels alone. It writes, for each kernel and each kind of call, how many calls differ from the first, and the first layer
that differs, as JSON. For backends with one process whose model is a module of transformers.
"""

import contextlib
import sys

from bench import backends
from bench.instruments import fitting
from bench.job import parse_job, to_json, write_whole
from bench.models import pretrained, prompts

CALLS = 10

#: torch's attention kernels (torch.nn.attention.SDPBackend); "default" leaves the choice to torch.
KERNELS = ("default", "FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


def only(kernel):
    """A context in which scaled_dot_product_attention takes this kernel and no other."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return contextlib.nullcontext() if kernel == "default" else sdpa_kernel([getattr(SDPBackend, kernel)])


def outputs(model, call):
    """[each layer's output…, the last logits] of `call(model)`, on the GPU."""
    kept = []

    def keep(module, arguments, output):
        kept.append((output[0] if isinstance(output, tuple) else output).detach().clone())

    hooks = [layer.register_forward_hook(keep) for layer in pretrained.layers_of(model)]
    try:
        kept.append(call().logits[:, -1].clone())
    finally:
        for hook in hooks:
            hook.remove()
    return kept


def compare(model, call):
    """{differing calls, first differing layer (None where none differs, the number of layers for the logits alone)} of CALLS equal calls."""
    import torch

    first, layers = outputs(model, call), []
    for _ in range(CALLS - 1):
        differing = [index for index, (one, other) in enumerate(zip(first, outputs(model, call))) if not torch.equal(one, other)]
        if differing:
            layers.append(differing[0])
    return {"calls": CALLS, "differing_calls": len(layers), "first_differing_layer": min(layers) if layers else None}


def examine(model, input_ids):
    """{kernel: {"prompt" | "token": what `compare` says, or {"reason"} where the kernel refuses}}"""
    import torch

    answers = {}
    for kernel in KERNELS:
        answers[kernel] = {}
        with torch.no_grad(), only(kernel):
            try:
                answers[kernel]["prompt"] = compare(model, lambda: model(input_ids, use_cache=False, logits_to_keep=1))
                cache = model(input_ids, use_cache=True, logits_to_keep=1).past_key_values
                length, token = input_ids.shape[1], input_ids[:, -1:]

                def one_token():
                    cache.crop(length)
                    return model(token, past_key_values=cache, use_cache=True)

                answers[kernel]["token"] = compare(model, one_token)
            except RuntimeError as error:
                answers[kernel]["reason"] = str(error)[:300]
        print(kernel, answers[kernel], flush=True)
    return answers


def main(job_path, out):
    import torch

    with open(job_path, encoding="utf-8") as source:
        job = parse_job(source.read())
    fitting.must_fit("equal_calls", job)
    loaded = backends.find(job.backend).load(job)
    input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    answers = examine(loaded.model, input_ids)
    write_whole(out, to_json({"shape": list(input_ids.shape), "torch": torch.__version__, "kernels": answers}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.instruments.equal_calls JOB OUT")
    main(*sys.argv[1:])
