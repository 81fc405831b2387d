"""python -m bench.instruments.new_lengths JOB OUT: does a token take longer where the process sees its cache's length for the first time?

cuDNN plans an attention for one shape, so each new length of the cache may cost the host a plan. The program makes LENGTHS tokens one after another
over a cache of the job's prompts, then once more over a copy of the same cache, so over the same lengths. It does so for each combination of a kernel
choice (torch's own, cuDNN's kernel alone, all but cuDNN's) and a mask (none, or one that hides the first token of every other row). The cache grows from
one combination to the next, so each combination has new lengths. It begins with BEFORE untimed tokens, which bear what only a first call costs. Each of
ROUNDS rounds begins with another kernel choice, so that none is always first. After each combination the program rewrites the JSON file with the ms of
each token and the kernels that torch took.
"""

import copy
import itertools
import statistics
import sys
import time

from bench import backends
from bench.instruments import attention_kernels, fitting
from bench.job import read_job, to_json, write_whole
from bench.measuring import measure
from bench.models import prompts

BEFORE, LENGTHS, ROUNDS = 4, 16, 3

MASKS = ("unmasked", "masked")

#: The tokens of a prompt whose job names no length: about as many as in the longest texts of a workload, whose rows are padded.
TOKENS = 192


def choices():
    """{name: a function that makes a context in which torch takes these attention kernels}; only torch's own choice where torch lacks cuDNN's."""
    known = attention_kernels.known()
    if "CUDNN_ATTENTION" not in known:
        return {"chosen": attention_kernels.only()}
    others = [name for name in known if name != "CUDNN_ATTENTION"]
    return {"chosen": attention_kernels.only(), "cudnn": attention_kernels.only("CUDNN_ATTENTION"), "without_cudnn": attention_kernels.only(*others)}


class Growing:
    """A cache of prompts that tokens are added to, with their attention mask [rows, tokens]."""

    def __init__(self, model, input_ids, synchronize):
        import torch

        self.body = model.base_model  # without the output matrix, whose time depends on no length
        self.synchronize, self.token = synchronize, input_ids[:, -1:]
        self.mask = torch.ones_like(input_ids)
        self.cache = self.body(input_ids, attention_mask=self.mask, use_cache=True).past_key_values

    def add(self, masked):
        """The ms of one more token in each row."""
        import torch

        self.mask = torch.cat([self.mask, torch.ones_like(self.token)], dim=1)
        self.mask[::2, 0] = 0 if masked else 1
        self.synchronize()
        began = time.monotonic()
        self.cache = self.body(self.token, attention_mask=self.mask, past_key_values=self.cache, use_cache=True).past_key_values
        self.synchronize()
        return (time.monotonic() - began) * 1000

    def kept(self):
        """A copy for one `back_to`: how a cache is shortened depends on the version of transformers, and a call that failed fills only some layers."""
        return self.mask, copy.deepcopy(self.cache)

    def back_to(self, kept):
        self.mask, self.cache = kept


def compare(growing, masked):
    """{kernels, first_length, new_ms, seen_ms, extra_ms} of one round.

    `kernels` are those of the untimed tokens, see `attention_kernels.heard`. The first timed token is added to a cache of `first_length` tokens.
    `extra_ms` is the median of `new_ms`, over lengths seen for the first time, less that of `seen_ms`, over the same lengths.
    """
    with attention_kernels.heard() as kernels:
        for _ in range(BEFORE):
            growing.add(masked)
    kept = growing.kept()
    first_length = growing.mask.shape[1]
    new_ms = [growing.add(masked) for _ in range(LENGTHS)]
    growing.back_to(kept)
    seen_ms = [growing.add(masked) for _ in range(LENGTHS)]
    extra_ms = statistics.median(new_ms) - statistics.median(seen_ms)
    return {"kernels": sorted(kernels), "first_length": first_length, "new_ms": new_ms, "seen_ms": seen_ms, "extra_ms": extra_ms}


def examine(model, input_ids, synchronize, tell=lambda answers: None):
    """{choice: {"unmasked" and "masked": [of each round what `compare` answers, or {"reason"} where it failed]}}; `tell` hears the answers so far."""
    import torch

    contexts = choices()
    order, answers = list(contexts), {kernels: {name: [] for name in MASKS} for kernels in contexts}
    with torch.no_grad():
        growing = Growing(model, input_ids, synchronize)
        for _ in range(ROUNDS):
            for kernels, name in itertools.product(order, MASKS):
                kept = growing.kept()
                try:
                    with contexts[kernels]():
                        answer = compare(growing, name == "masked")
                except RuntimeError as error:  # such as a kernel that cannot compute this attention
                    answer = {"reason": str(error)[:300]}
                    growing.back_to(kept)
                answers[kernels][name].append(answer)
                print(kernels, name, answer, flush=True)
                tell(answers)
            order = order[1:] + order[:1]
    return answers


def main(job_path, out):
    job = read_job(job_path)
    fitting.must_fit("new_lengths", job)
    import torch
    import transformers

    loaded = backends.find(job.backend).load(job)
    prompt = dict(job.prompt, tokens=job.prompt.get("tokens") or TOKENS)
    input_ids = prompts.token_ids(prompt, job.model["path"]).to(loaded.device)
    told = {"shape": list(input_ids.shape), "torch": torch.__version__, "transformers": transformers.__version__}
    examine(loaded.model, input_ids, measure.synchronizer(job), lambda answers: write_whole(out, to_json({**told, "kernels": answers})))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench.instruments.new_lengths JOB OUT")
    main(*sys.argv[1:])
