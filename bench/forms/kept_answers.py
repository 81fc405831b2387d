"""Answers that come one by one, written as they come: for the workloads `continuous` and `engine_queue`."""

import time

#: Answers are written once there are WRITE_ITEMS of them, or after WRITE_S seconds.
WRITE_ITEMS, WRITE_S = 256, 2.0


def _line(answers, tokenizer, width_of):
    prompt_tokens = sum(width_of[number] for number, _ in answers)
    return {
        "items": [[number, len(tokens), tokenizer.decode(tokens, skip_special_tokens=True)] for number, tokens in answers],
        "prompt_tokens": prompt_tokens,
        "padded_prompt_tokens": prompt_tokens,
        "decode_rows": sum(len(tokens) for _, tokens in answers),
    }


def as_asked(finished, waiting, ends):
    """The answers of `finished` as they come, checked against the items in `waiting`; `ends` are the tokens that end an answer before its length.

    Raises RuntimeError for an answer that is longer than its item asked for, empty, or shorter without an end token: its time would be that of
    another amount of work. `keep` refuses items that were not asked for.
    """
    most_of = {item.number: item.new_tokens for item in waiting}
    for number, tokens in finished:
        most = most_of.get(number, len(tokens))
        if len(tokens) > most or not tokens:
            raise RuntimeError("item {} came with {} new tokens, 1 to {} were asked for".format(number, len(tokens), most))
        if len(tokens) < most and tokens[-1] not in ends:
            raise RuntimeError("item {} came with {} new tokens and no end token, {} were asked for".format(number, len(tokens), most))
        yield number, tokens


def keep(finished, outputs, tokenizer, width_of, progress, coming=None):
    """Write the answers of `finished`, pairs (number of the item, new tokens) in the order of finishing; `width_of` has each item's prompt tokens.

    The time of a line begins at the line before it. The first line's time begins with this call, or with the start of `coming`: the Arrivals of
    items that come over time, whose latencies are written too. Raises RuntimeError where an item of `width_of` is missing or comes twice, or
    another item comes: the file would count what nobody asked for.
    """
    written, answers, missing = coming.began_s if coming else time.perf_counter(), [], set(width_of)
    for count, answer in enumerate(finished, start=1):
        if answer[0] not in missing:
            raise RuntimeError("item {} came, but it was not asked for or had come before".format(answer[0]))
        missing.remove(answer[0])
        answers.append(answer)
        now = time.perf_counter()
        if len(answers) < WRITE_ITEMS and now - written < WRITE_S and count < len(width_of):
            continue
        line = _line(answers, tokenizer, width_of)
        line["ms"], written = (now - written) * 1000, now
        if coming:
            line["latency_ms"] = [coming.latency_ms[number] for number, _ in answers]
        outputs.add(line)
        progress(len(answers))
        answers = []
    if missing:
        raise RuntimeError("{} of {} items did not come, item {} first".format(len(missing), len(width_of), min(missing)))
