"""python -m bench.instruments.layers JOB OUT: in which layer does a wrong output begin?

The program runs one prompt through plain transformers and through the job's backend, both in the job's dtype, and writes the relative
error of each layer's output and of the last logits as JSON. It does so twice, with the attention mask of `generate` (int64 ones) and
without a mask, because backends treat a missing mask differently. For backends with one process.
"""

import contextlib
import gc
import sys

from bench import backends
from bench.checking import check
from bench.instruments import fitting
from bench.job import read_job, to_json, write_whole
from bench.models import pretrained, prompts


@contextlib.contextmanager
def layer_outputs(model, take):
    """Within the block the list fills with `take(output)` of each layer's output [batch, tokens, hidden size], in the order of the calls."""
    kept = []

    def keep(module, arguments, output):
        kept.append(take(output[0] if isinstance(output, tuple) else output))

    hooks = [layer.register_forward_hook(keep) for layer in pretrained.layers_of(model)]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def outputs(model, input_ids, mask):
    """[each layer's output at the last position…, the last logits], as float32 on the CPU."""
    import torch

    def last(hidden):
        return hidden.reshape(input_ids.shape[0], -1, hidden.shape[-1])[:, -1].float().cpu()

    arguments = {"attention_mask": torch.ones_like(input_ids)} if mask else {}
    with torch.no_grad(), layer_outputs(model, last) as kept:
        logits = model(input_ids, **arguments).logits[:, -1].float().cpu()
    return [*kept, logits]


def errors(values, expected):
    """|x - y| / |y| of each pair, in the 2-norm; None where it is not finite, which JSON has no number for."""
    return [check.tensor_error(value, right) for value, right in zip(values, expected)]


def in_words(error):
    return "not finite" if error is None else "{:.2g}".format(error)


def compare(job):
    """{"with_mask"|"without_mask": {"layers": [error of each], "logits": error}}"""
    import torch

    def run(load):
        model, device = load()
        input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(device)
        return {mask: outputs(model, input_ids, mask) for mask in (True, False)}

    def plain():
        device = pretrained.first_device(job)
        return pretrained.load_model(job, low_cpu_mem_usage=True).to(device), device

    def tested():
        loaded = backends.find(job.backend).load(job)
        return loaded.model, loaded.device

    expected = run(plain)
    gc.collect()
    torch.cuda.empty_cache()
    actual = run(tested)
    names = {True: "with_mask", False: "without_mask"}
    all_errors = {names[mask]: errors(actual[mask], expected[mask]) for mask in names}
    return {name: {"layers": values[:-1], "logits": values[-1]} for name, values in all_errors.items()}


def main(job_path, out):
    job = read_job(job_path)
    fitting.must_fit("layers", job)
    answer = compare(job)
    write_whole(out, to_json({"backend": job.backend, "prompt_tokens": job.prompt["tokens"], **answer}))
    for mask, relative in answer.items():
        told = map(in_words, (relative["layers"][0], relative["layers"][-1], relative["logits"]))
        print(mask, "first layer {}, last layer {}, logits {}".format(*told))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.instruments.layers JOB OUT")
    main(*sys.argv[1:])
