"""The benchmark of huggingface/transformers-bloom-inference: sentences of different lengths, padded on the left into one batch.

A call tokenises, generates and decodes, as that benchmark times it. The sentences repeat to fill the batch.

The job's prompt holds the sentences as `texts`.
options: tokens_times_ranks, which only the report reads: the ZeRO script multiplies its tokens by the number of processes.

figures: {"cycles": {sequences, counted_tokens, real_tokens, ranks, memory: {before, after}, padded_logits_relative_error}}.
`counted_tokens` are the tokens of one call as the benchmark counts them: all that `generate` appended, with the padding after the end
token. `real_tokens` end with the end token. `memory` is torch's memory on this process's devices before the first call and after the
last, with its peaks. `ranks` is the number of processes that ran these same sentences. The error compares the first sentence's last
logits, padded in a batch, with those of the sentence alone, by the same model: the output check has no padding.
"""

import functools
import re

from bench.backends import LOGITS, MASK, TOKENS
from bench.checking import check
from bench.measuring import environment, measure, ranks, timed_tokens
from bench.models import texts

NEEDS = (TOKENS, MASK, LOGITS)
TIMES_RUNS = True
STOPS = True
OPTIONS = {"tokens_times_ranks": ()}


def batch_of(sentences, batch_size):
    """The first `batch_size` of the sentences, repeated as often as needed."""
    return (sentences * -(-batch_size // len(sentences)))[:batch_size]


def words(text):
    """The number of words and punctuation marks of a text: about as many tokens as a model's own tokenizer makes of English."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def padded(tokenizer, sentences, cut):
    """{input_ids, attention_mask} of the sentences, padded on the left; with `cut` each sentence keeps as many tokens as it has words."""
    import torch

    ids = tokenizer(sentences).input_ids  # all at once, as the benchmark does: a fast tokenizer shares them among threads
    if cut:
        ids = [tokens[: words(sentence)] for tokens, sentence in zip(ids, sentences)]
    longest = max(len(tokens) for tokens in ids)
    rows = [[tokenizer.pad_token_id] * (longest - len(tokens)) + tokens for tokens in ids]
    masks = [[0] * (longest - len(tokens)) + [1] * len(tokens) for tokens in ids]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def _inputs(loaded, tokenizer, sentences, cut):
    """`padded` on the engine's device."""
    return {name: tensor.to(loaded.device) for name, tensor in padded(tokenizer, sentences, cut).items()}


def padding_error(loaded, tokenizer, sentences, cut):
    """|x - y| / |y| of the first sentence's last logits, x padded among the others and y alone; None where it is not finite."""

    def last_logits(texts_of_batch):
        return loaded.last_logits(**_inputs(loaded, tokenizer, texts_of_batch, cut))[0].float()

    return check.tensor_error(last_logits(sentences), last_logits(sentences[:1]))


def call(job, loaded, run, input_ids, **more):
    """The new tokens [rows, new tokens] of one call on token ids that are padded as the job's own sentences are."""
    return loaded.generate(input_ids, loaded.prompt_mask, **dict(run["arguments"], **more))


def timed_call(job, loaded, job_run):
    """A function that makes one call as the clock times it, and returns its inputs {input_ids, attention_mask} and new tokens, each [rows, tokens]."""
    import torch

    tokenizer, sentences, cut = _tokenizer(job.model["path"]), _sentences(job), _cut(job)

    def one_call():
        inputs = _inputs(loaded, tokenizer, sentences, cut)
        new = loaded.generate(**inputs, **job_run["arguments"])
        tokenizer.batch_decode(torch.cat([inputs["input_ids"], new], dim=1), skip_special_tokens=True)
        return inputs, new

    return one_call


@functools.lru_cache(maxsize=1)  # a vocabulary of 250,000 words takes a second to load
def _tokenizer(path):
    import transformers

    return transformers.AutoTokenizer.from_pretrained(path)


def _sentences(job):
    return batch_of(job.prompt["texts"], job.prompt["batch_size"])


def _cut(job):
    """Does each sentence keep as many tokens as it has words?"""
    return job.prompt["tokens"] is not None


def run(job, loaded, say):
    (job_run,) = job.runs
    kept, calls, one_call = {}, [], timed_call(job, loaded, job_run)

    def counted_call():
        kept["inputs"], new = one_call()
        calls.append(new)
        return new.shape[1]

    before = environment.gpu_memory(job)
    measurement = measure.measure_run(job, job_run, counted_call, cold=True, say=say)
    timed = [new.tolist() for new in calls[-job.timed_runs :]]
    loaded.answers.append(timed_tokens.Timed(job_run["new_tokens"], timed, measurement["timed_ms"]))
    loaded.prompt_ids, loaded.prompt_mask = kept["inputs"]["input_ids"], kept["inputs"]["attention_mask"]
    sentences = _sentences(job)
    figures = {
        "sequences": len(sentences),
        "counted_tokens": calls[-1].numel(),
        "real_tokens": sum(texts.lengths_of(timed[-1], set(loaded.end_tokens()))),
        "ranks": ranks.total(),
        "memory": {"before": before, "after": environment.gpu_memory(job)},
    }
    figures["padded_logits_relative_error"] = padding_error(loaded, _tokenizer(job.model["path"]), sentences[: check.CHECKED_ROWS], _cut(job))
    first_is_prompt = sentences[0] == job.prompt["text"]
    padded_tokens = kept["inputs"]["input_ids"].numel()
    return [measurement], calls[-1][:1] if first_is_prompt else None, {"cycles": figures, "padded_prompt_tokens": padded_tokens}
