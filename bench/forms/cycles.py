"""The benchmark of huggingface/transformers-bloom-inference: sentences of different lengths, padded on the left into one batch.

A call tokenises, generates and turns the answer into text, as that benchmark times it. The batch is the sentences over and over.

The job's prompt holds the sentences as `texts`.
options: tokens_times_ranks, which only the report reads: the ZeRO script multiplies its tokens by the number of processes.

figures: {"cycles": {sequences, counted_tokens, real_tokens, ranks, memory: {before, after}, padded_logits_relative_error}}.
`counted_tokens` are those of one call as the benchmark counts them: whatever `generate` appended, with the padding after the end
token. `real_tokens` end with the end token. `memory` is what torch holds on this process's devices before the first call and after
the last, and its peaks. `ranks` is how many processes ran these same sentences. The error is of the first sentence's last logits,
padded in a batch against alone, by this very model: the output check has no padding.
"""

import re

from bench.checking import check
from bench.measuring import environment, measure, ranks
from bench.models import texts

TIMES_RUNS = True
OPTIONS = {"tokens_times_ranks": ()}


def batch_of(sentences, batch_size):
    """The first `batch_size` of the sentences, which are repeated as often as needed."""
    return (sentences * -(-batch_size // len(sentences)))[:batch_size]


def words(text):
    """How many words and marks a text has: about what a model's own tokenizer makes of English."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def padded(tokenizer, sentences, cut):
    """{input_ids, attention_mask} of the sentences, padded on the left; with `cut` each is as many tokens as it has words."""
    import torch

    ids = tokenizer(sentences).input_ids  # all at once, as the benchmark does: a fast tokenizer shares them among threads
    if cut:
        ids = [one[: words(sentence)] for one, sentence in zip(ids, sentences)]
    longest = max(len(one) for one in ids)
    rows = [[tokenizer.pad_token_id] * (longest - len(one)) + one for one in ids]
    masks = [[0] * (longest - len(one)) + [1] * len(one) for one in ids]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def padding_error(loaded, tokenizer, sentences, cut):
    """|x - y| / |y| of the first sentence's last logits, x padded among the others and y alone; None where it is not finite."""

    def last_logits(some):
        inputs = {name: tensor.to(loaded.device) for name, tensor in padded(tokenizer, some, cut).items()}
        return loaded.model(**inputs).logits[0, -1].float()

    return check.tensor_error(last_logits(sentences), last_logits(sentences[:1]))


def run(job, loaded, say):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model["path"])
    sentences = batch_of(job.prompt["texts"], job.prompt["batch_size"])
    end_tokens = end_tokens_of(loaded.model)
    cut = job.prompt["tokens"] is not None
    (one,) = job.runs
    kept = {}

    def call():
        inputs = {name: tensor.to(loaded.device) for name, tensor in padded(tokenizer, sentences, cut).items()}
        output = loaded.model.generate(**inputs, **one["arguments"])
        kept["new"] = output[:, inputs["input_ids"].shape[1] :]
        tokenizer.batch_decode(output, skip_special_tokens=True)
        return kept["new"].shape[1]

    before = environment.gpu_memory(job)
    with torch.no_grad():
        measurement = measure.measure_run(job, one, call, cold=True, say=say)
    figures = {
        "sequences": len(sentences),
        "counted_tokens": kept["new"].numel(),
        "real_tokens": sum(texts.made(kept["new"].tolist(), end_tokens)),
        "ranks": ranks.total(),
        "memory": {"before": before, "after": environment.gpu_memory(job)},
    }
    with torch.no_grad():
        figures["padded_logits_relative_error"] = padding_error(loaded, tokenizer, sentences[: check.CHECKED_ROWS], cut)
    first_is_prompt = sentences[0] == job.prompt["text"]
    return [measurement], kept["new"][:1] if first_is_prompt else None, {"cycles": figures}


def end_tokens_of(model):
    """The token ids that end an answer."""
    end = getattr(model, "module", model).generation_config.eos_token_id
    return set(end) if isinstance(end, (list, tuple)) else {end}
