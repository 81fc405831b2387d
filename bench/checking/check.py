"""Is the output right? Every result holds a comparison with plain transformers on the same weights and prompt.

A job of kind "reference" computes the right answer once for each checkpoint, prompt and stack, with transformers in float32:
the logits of the last prompt position [batch, vocabulary], and the greedy continuation.
"""

import hashlib
import math

#: The number of rows of a batch that are checked: the logits of every position of a large batch would not fit beside the model.
CHECKED_ROWS = 8


def digest(input_ids):
    """12 hex digits of a prompt's token ids [batch, tokens]: only answers to the same prompt are compared.

    A batch that repeats one sequence has the digest of that sequence.
    """
    rows = input_ids.tolist()
    same = all(row == rows[0] for row in rows)
    return hashlib.sha256(repr(rows[:1] if same else rows).encode()).hexdigest()[:12]


def save_reference(path, logits, tokens, input_ids):
    """Write the right answer: logits [batch, vocabulary], tokens [batch, new tokens], the prompt's ids."""
    import numpy

    with open(path, "wb") as stream:
        numpy.savez(stream, logits=logits.float().cpu().numpy(), tokens=tokens.cpu().numpy(), prompt=digest(input_ids))


def expected_tokens(reference_path, input_ids):
    """The reference's greedy tokens after this prompt [batch, tokens], a list of ids; None where it read another prompt."""
    import numpy

    reference = numpy.load(reference_path)
    return reference["tokens"].tolist()[0] if str(reference["prompt"]) == digest(input_ids[:CHECKED_ROWS]) else None


def common_prefix(left, right):
    """The number of leading items that two sequences share."""
    length = 0
    for left_item, right_item in zip(left, right):
        if left_item != right_item:
            break
        length += 1
    return length


def alike(calls, expected):
    """How many sequences have the tokens of `expected` in every one of `calls`; each is a list of token ids per sequence."""
    return sum(all(tokens == right for tokens in of_calls) for right, *of_calls in zip(expected, *calls))


def relative_error(logits, reference):
    """The largest |x - reference| / |reference| over the batch, in the 2-norm over the vocabulary; inf for NaN."""
    import numpy

    error = numpy.linalg.norm(logits - reference, axis=-1) / numpy.linalg.norm(reference, axis=-1)
    worst = float(error.max())
    return worst if worst == worst else float("inf")


def tensor_error(values, expected):
    """|x - y| / |y| of two torch tensors in the 2-norm over all values; None where it is not finite."""
    error = float((values.float() - expected).norm() / expected.norm())
    return error if math.isfinite(error) else None


def compare(reference_path, logits, tokens, input_ids, tolerance):
    """The check of a Result: {logits_relative_error, tolerance, greedy_common_prefix_tokens, greedy_tokens, passed, reason}.

    The reference is of one sequence, and every row of a batch is that sequence. `tokens` is None where a form makes none for
    this prompt; the result then has no greedy prefix.

    Only the error of the logits decides. The greedy prefix ends at the first near-tie of two tokens, early for random weights,
    so it says little about the size of an error.
    """
    import numpy

    reference = numpy.load(reference_path)
    if str(reference["prompt"]) != digest(input_ids):
        return {"passed": False, "reason": "the reference was computed for another prompt", "tolerance": tolerance}
    error = relative_error(logits.float().cpu().numpy(), reference["logits"])
    expected = reference["tokens"].tolist()[0]
    rows = tokens.tolist() if tokens is not None else []
    finite = error != float("inf")
    passed = finite and error <= tolerance
    return {
        "logits_relative_error": error if finite else None,
        "tolerance": tolerance,
        "greedy_common_prefix_tokens": min((common_prefix(row, expected) for row in rows), default=None),
        "greedy_tokens": min((min(len(row), len(expected)) for row in rows), default=None),
        "passed": passed,
        "reason": "" if passed else "the logits are {} off, {:.2g} is allowed".format("{:.2g}".format(error) if finite else "not finite", tolerance),
    }
