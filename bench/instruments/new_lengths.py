"""python -m bench.instruments.new_lengths JOB OUT: does a token take longer where the process sees its cache's length for the first time?

cuDNN plans an attention for one shape, so each new length of the cache may cost the host a plan. The program makes LENGTHS tokens one after another
over a cache of the job's prompts, takes them out again and makes them once more, over the same lengths. It does so with the attention kernel that
torch chooses, with cuDNN's alone, and with all but cuDNN's; without padding, and with a mask that hides the first token of every other row. Each of
these has lengths of its own, because the cache grows from one to the next, and begins with BEFORE tokens without a time, for what only a first call
costs. Each of ROUNDS rounds begins with another one, so that none is always first. It writes the ms of each token, and which kernels torch took, as
JSON, anew after each.
"""

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

#: Of a prompt whose job names no length: about as long as the longest texts of a workload, whose rows have paddings.
TOKENS = 192


def choices():
    """{name: a function that makes a context in which torch takes these attention kernels}; without cuDNN's kernel in torch its own choice alone."""
    known = attention_kernels.known()
    if "CUDNN_ATTENTION" not in known:
        return {"chosen": attention_kernels.only()}
    others = [name for name in known if name != "CUDNN_ATTENTION"]
    return {"chosen": attention_kernels.only(), "cudnn": attention_kernels.only("CUDNN_ATTENTION"), "without_cudnn": attention_kernels.only(*others)}


class Growing:
    """A cache of prompts that tokens are added to. `tokens` is its length."""

    def __init__(self, model, input_ids, synchronize):
        import torch

        self.body = model.base_model  # without the output matrix, whose time depends on no length
        self.synchronize, self.token = synchronize, input_ids[:, -1:]
        self.mask = torch.ones_like(input_ids)
        self.cache = self.body(input_ids, attention_mask=self.mask, use_cache=True).past_key_values

    @property
    def tokens(self):
        return self.mask.shape[1]

    def add(self, masked):
        """The ms of one more token in each row."""
        import torch

        self.mask = torch.cat([self.mask, torch.ones_like(self.token)], dim=1)
        mask = self.mask.clone()
        mask[::2, 0] = 0 if masked else 1
        self.synchronize()
        began = time.monotonic()
        self.cache = self.body(self.token, attention_mask=mask, past_key_values=self.cache, use_cache=True).past_key_values
        self.synchronize()
        return (time.monotonic() - began) * 1000

    def state(self):
        return self.tokens, self.cache

    def back_to(self, state):
        """Take out the tokens that were added since, also where a layer failed before all layers had the last one."""
        tokens, self.cache = state
        if hasattr(self.cache, "crop"):  # the tuples of earlier versions of transformers never came to hold them
            self.cache.crop(tokens)
        self.mask = self.mask[:, :tokens]


def compare(growing, masked):
    """{kernels, first_length, new_ms, seen_ms, extra_ms} of one round.

    `kernels` are those of the tokens before, see `attention_kernels.heard`; the first length is that of the first timed token's cache; `extra_ms` is
    the median of `new_ms`, over lengths seen for the first time, less that of `seen_ms`, over the same lengths.
    """
    with attention_kernels.heard() as kernels:
        for _ in range(BEFORE):
            growing.add(masked)
    state = growing.state()
    new_ms = [growing.add(masked) for _ in range(LENGTHS)]
    growing.back_to(state)
    first_length = growing.tokens
    seen_ms = [growing.add(masked) for _ in range(LENGTHS)]
    extra_ms = statistics.median(new_ms) - statistics.median(seen_ms)
    return {"kernels": sorted(kernels), "first_length": first_length, "new_ms": new_ms, "seen_ms": seen_ms, "extra_ms": extra_ms}


def in_turn(choice_names):
    """The (name of a choice, name of a mask) of each round, in its order: a round begins one choice later than the one before."""
    for number in range(ROUNDS):
        start = number % len(choice_names)
        yield [(kernels, name) for kernels in choice_names[start:] + choice_names[:start] for name in MASKS]


def examine(model, input_ids, synchronize, tell=lambda answers: None):
    """{choice: {"unmasked" and "masked": [what `compare` answers, a round each], or {"reason"} where the kernels cannot compute it}}; `tell` hears each."""
    import torch

    contexts = choices()
    answers = {kernels: {name: [] for name in MASKS} for kernels in contexts}
    with torch.no_grad():
        growing = Growing(model, input_ids, synchronize)
        for turns in in_turn(list(contexts)):
            for kernels, name in turns:
                if isinstance(answers[kernels][name], dict):
                    continue
                state = growing.state()
                try:
                    with contexts[kernels]():
                        answers[kernels][name].append(compare(growing, name == "masked"))
                except RuntimeError as error:
                    answers[kernels][name] = {"reason": str(error)[:300]}
                    growing.back_to(state)
                print(kernels, name, answers[kernels][name], flush=True)
                tell(answers)
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
