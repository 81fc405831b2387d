"""Is a padded batch right? The greedy answers of a batch, padded on the left and on the right, against those of each text alone.

Options: bench/models/texts.py, and `rows`, the number of texts of the batch (instead of the job's batch size). The timed calls are those
of the left-padded batch. Figures: {padding: {new_tokens, prompt_tokens: [of each text], left, right}}. Each side has for each text
`first_different_token` (null where all tokens are the same) and `logits_relative_error`, |x - y| / |y| in the 2-norm, of the first new
token's logits against those of the text alone.
"""

from bench.checking import check
from bench.models import texts

TIMES_RUNS = True
OPTIONS = dict(texts.OPTIONS, rows=())

#: Stands for an error that is not finite, which JSON has no word for.
NOT_FINITE = 1e9


def _padded(job, tokenizer, batch, side, device):
    tokenizer.padding_side = side
    encoded = texts.encode(job, tokenizer, batch).to(device)
    return encoded["input_ids"], encoded["attention_mask"]


def _first_logits(model, ids, mask):
    """The logits of the first new token, computed as in `generate`: at the last position, with positions counted by the mask."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, -1, :].float().cpu().numpy()


def _first_different(answer, alone):
    """The index of the first token that differs, or None."""
    return None if answer == alone else check.common_prefix(answer, alone)


def run(job, loaded, say):
    import torch

    tokenizer, model = texts.tokenizer_of(job), loaded.model
    batch = [item.text for item in texts.workload(job, tokenizer, job.options["rows"])]
    arguments_of_run = texts.generate_arguments(job, tokenizer, job.runs[0])
    padded = {side: _padded(job, tokenizer, batch, side, loaded.device) for side in ("left", "right")}

    def answers(ids, mask, arguments=arguments_of_run):
        return model.generate(input_ids=ids, attention_mask=mask, **arguments)[:, ids.shape[1] :].tolist()

    measurements, _, figures = texts.time_runs(job, tokenizer, lambda arguments: answers(*padded["left"], arguments=arguments), say)
    with torch.no_grad():
        alone, logits_alone = [], []
        for number, text in enumerate(batch):
            ids, mask = _padded(job, tokenizer, [text], "left", loaded.device)
            alone += answers(ids, mask)
            logits_alone.append(_first_logits(model, ids, mask))
            say(run="alone", done=number + 1, total=len(batch), new_tokens=job.runs[0]["new_tokens"])
        figures["padding"] = {"new_tokens": job.runs[0]["new_tokens"], "prompt_tokens": padded["left"][1].sum(-1).tolist()}
        for side, (ids, mask) in padded.items():
            logits = _first_logits(model, ids, mask)
            figures["padding"][side] = {
                "first_different_token": [_first_different(row, right) for row, right in zip(answers(ids, mask), alone)],
                "logits_relative_error": [min(check.relative_error(logits[row : row + 1], right), NOT_FINITE) for row, right in enumerate(logits_alone)],
            }
    return measurements, None, figures
