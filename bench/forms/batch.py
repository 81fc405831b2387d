"""One left-padded batch of texts: tokenize, `generate`, remove the prompts, decode. Options: bench/models/texts.py.

With a batch size of 1 this is `AutoModelForCausalLM` with one text at a time. The article slices an answer by the length of its row's mask;
the kit slices by the padded width, which is the same length.
"""

from bench.backends import MASK, TOKENS
from bench.models import texts

NEEDS = (TOKENS, MASK)
TIMES_RUNS = True
OPTIONS = texts.OPTIONS

call = texts.generate
judged = texts.judged


def run(job, loaded, say):
    import torch

    tokenizer = texts.tokenizer_of(job)
    batch = texts.batch_of(job, tokenizer)
    last = {}

    def one_call(arguments):
        encoded = texts.encode(job, tokenizer, batch).to(loaded.device)
        last["encoded"], rows = encoded, loaded.generate(encoded["input_ids"], encoded["attention_mask"], **arguments).tolist()
        last["answers"] = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
        return rows

    measurements, rows, figures = texts.time_runs(job, tokenizer, one_call, say, loaded.answers if judged(job) else None)
    ids, mask = last["encoded"]["input_ids"], last["encoded"]["attention_mask"]
    figures["prompt_tokens"], figures["padded_prompt_tokens"] = int(mask.sum()), int(ids.numel())
    if judged(job):
        loaded.prompt_ids = ids
    same = ids.tolist() == loaded.input_ids.tolist()
    return measurements, torch.tensor(rows) if same else None, figures
