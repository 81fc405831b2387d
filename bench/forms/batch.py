"""One left-padded batch of texts: tokenize, `generate`, take off the prompts, decode. Options: bench/models/texts.py.

A batch of one is `AutoModelForCausalLM` one text at a time. The article slices an answer by its own prompt's mask; the kit by
the padded width, which is the same where the mask of the row is as long as the batch.
"""

from bench.models import texts

TIMES_RUNS = True
OPTIONS = texts.OPTIONS

call = texts.generate


def run(job, loaded, say):
    import torch

    tokenizer = texts.tokenizer_of(job)
    batch = texts.batch_of(job, tokenizer)
    seen = {}

    def one_call(arguments):
        encoded = texts.encode(job, tokenizer, batch).to(loaded.device)
        output = loaded.model.generate(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], **arguments)
        seen["encoded"], rows = encoded, output[:, encoded["input_ids"].shape[1] :].tolist()
        seen["answers"] = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
        return rows

    measurements, rows, figures = texts.time_runs(job, tokenizer, one_call, say, loaded.answers if texts.judged(job) else None)
    ids, mask = seen["encoded"]["input_ids"], seen["encoded"]["attention_mask"]
    figures["prompt_tokens"], figures["padded_prompt_tokens"] = int(mask.sum()), int(ids.numel())
    if texts.judged(job):
        loaded.prompt_ids = ids
    same = ids.tolist() == loaded.input_ids.tolist()
    return measurements, torch.tensor(rows) if same else None, figures
