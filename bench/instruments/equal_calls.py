"""python -m bench.instruments.equal_calls JOB OUT: do equal calls of plain transformers give equal numbers, and where does the first difference begin?

The program makes two calls with the job's prompt, each CALLS times: one reads the whole prompt, the other reads one more token over a cache of the prompt.
It compares each layer's output, and the last norm's output for the last token, with those of the first call, bit by bit. It also counts the
different outputs of the last norm, which tells one odd first call from calls that all differ. It does this with the attention kernel that torch chooses,
and with each of torch's kernels alone. The rows of the batch have the same prompt, so it compares the rows of a call as well. After each kernel it
rewrites the JSON file with the answers of `compare` for each kernel and call.
"""

import sys

from bench import backends
from bench.instruments import attention_kernels, fitting, layers
from bench.job import read_job, to_json, write_whole
from bench.models import pretrained, prompts

#: Reading a long prompt takes as long as many tokens.
CALLS = {"prompt": 4, "token": 10}


def choices():
    """{name: a function that makes a context in which torch takes this attention kernel and no other}; "chosen" leaves the choice to torch."""
    return {"chosen": attention_kernels.only(), **{name: attention_kernels.only(name) for name in attention_kernels.known()}}


def outputs(model, call):
    """[each layer's output [batch, tokens, hidden size]…, the last token's [batch, hidden size] behind the last norm] of `call()`, on their GPU."""
    with layers.layer_outputs(model, lambda hidden: hidden.detach().clone()) as kept:
        last = call().last_hidden_state[:, -1].clone()
    return [*kept, last]


def first_difference(ones, others):
    """The index of the first layer whose outputs differ in a bit; the number of layers where only the last norm's outputs differ; None where none do."""
    import torch

    return next((index for index, (one, other) in enumerate(zip(ones, others)) if not torch.equal(one, other)), None)


def different(tensors):
    """How many of the tensors are different from all before them."""
    import torch

    kept = []
    for tensor in tensors:
        if not any(torch.equal(tensor, other) for other in kept):
            kept.append(tensor)
    return len(kept)


def compare(model, call, calls):
    """{calls, differing_calls, different_outputs, first_layer, differing_rows, first_layer_of_rows}: calls against the first one, the outputs behind the
    last norm of all calls, rows of the first call against its first row.

    A first layer is the smallest that `first_difference` gives, None without a difference.
    """
    first = outputs(model, call)
    of_calls, last = [], [first[-1]]
    for _ in range(calls - 1):
        again = outputs(model, call)
        of_calls.append(first_difference(first, again))
        last.append(again[-1])
    of_rows = [first_difference([part[0] for part in first], [part[row] for part in first]) for row in range(1, len(first[-1]))]
    other_calls, other_rows = ([layer for layer in found if layer is not None] for found in (of_calls, of_rows))
    return {
        "calls": calls,
        "differing_calls": len(other_calls),
        "different_outputs": different(last),
        "first_layer": min(other_calls, default=None),
        "differing_rows": len(other_rows),
        "first_layer_of_rows": min(other_rows, default=None),
    }


def both_calls(model, input_ids):
    """{"prompt" and "token": a function that makes the call}; the second reads a cache of the prompt, and takes its own token out again.

    Both have the mask that `generate` makes, which hides nothing.
    """
    import torch

    body = model.base_model  # without the output matrix, whose logits of a whole prompt take gigabytes
    token = input_ids[:, -1:]
    mask, longer = torch.ones_like(input_ids), torch.ones_like(torch.cat([input_ids, token], dim=1))
    cache = body(input_ids, attention_mask=mask, use_cache=True).past_key_values

    def one_token():
        output = body(token, attention_mask=longer, past_key_values=cache, use_cache=True)
        pretrained.drop(cache, 1)
        return output

    return {"prompt": lambda: body(input_ids, attention_mask=mask, use_cache=False), "token": one_token}


def examine(model, input_ids, tell=lambda answers: None):
    """{kernel: {"prompt" and "token": what `compare` answers}, or {"reason"} where the kernel cannot compute this attention}; `tell` gets all so far."""
    import torch

    answers = {}
    for kernel, only in choices().items():
        try:
            with torch.no_grad(), only():
                answers[kernel] = {name: compare(model, call, CALLS[name]) for name, call in both_calls(model, input_ids).items()}
        except RuntimeError as error:
            answers[kernel] = {"reason": str(error)[:300]}
        print(kernel, answers[kernel], flush=True)
        tell(answers)
    return answers


def main(job_path, out):
    job = read_job(job_path)
    fitting.must_fit("equal_calls", job)
    import torch
    import transformers

    loaded = backends.find(job.backend).load(job)
    input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    told = {"shape": list(input_ids.shape), "torch": torch.__version__, "transformers": transformers.__version__}
    examine(loaded.model, input_ids, lambda answers: write_whole(out, to_json({**told, "kernels": answers})))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.instruments.equal_calls JOB OUT")
    main(*sys.argv[1:])
