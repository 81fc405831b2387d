"""From token ids to the text that each token adds: the report sets what the systems wrote side by side."""

#: So many of a row's new tokens are kept as text.
KEPT_TOKENS = 30

#: What a tokenizer writes for bytes that are no whole character yet.
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


def pieces(tokenizer, ids):
    """[[id, text]] of the first KEPT_TOKENS ids. The texts joined are the text of all; a character of several tokens stands at the last of them."""
    kept, told = [], ""
    for number, token in enumerate(ids[:KEPT_TOKENS], start=1):
        text = tokenizer.decode(ids[:number], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        last = number == min(len(ids), KEPT_TOKENS)
        whole = text.startswith(told) and (last or not text.endswith(UNFINISHED))
        kept.append([token, text[len(told) :] if whole else ""])
        told = text if whole else told
    return kept


def wrote(job, tokens, expected):
    """{system, reference} as `pieces`: the new tokens of a row, and those that the reference made for the same prompt, or None."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.model["path"])
    return {"system": pieces(tokenizer, tokens), "reference": None if expected is None else pieces(tokenizer, expected)}
