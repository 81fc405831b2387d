"""What a measuring job leaves for the judge (bench/checking/judge.py), for a guest never judges itself.

Two files in the job's folder: tokens.json, which stays with the result, and logits.npz. The tokens are those of the timed calls.
Three more calls are made after the last timed one, and nothing of them enters a time of the result:

    again    the longest run once more, with the logits of the prompt's last position and of a late step kept
    fresh    two prompts that no call had before, so that kept answers show in their tokens or in their times
"""

import hashlib
import json
import os

from bench.measuring import ranks

TOKENS, LOGITS = "tokens.json", "logits.npz"

#: So many rows of a batch are kept in full; all rows are in a call's digest.
KEPT_ROWS = 8


def greedy(job):
    """Does every run of the job take the largest logit at each step, up to its number of tokens? Only then the reference can judge a token."""

    def is_greedy(run):
        asked = run["arguments"]
        return not asked.get("do_sample") and asked.get("num_beams", 1) == 1 and not run.get("up_to")

    return all(is_greedy(run) for run in job.runs)


def late_step(new_tokens):
    """The step, from 0, whose logits stand for late ones: after four fifths of the tokens."""
    return int(0.8 * new_tokens)


def digest(rows):
    """12 hex digits of a call's tokens, a list of each row's."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def unique(rows):
    """The different ones among the first rows of a call, in their order."""
    kept = []
    for row in rows[:KEPT_ROWS]:
        if row not in kept:
            kept.append(row)
    return kept


def of_run(new_tokens, every, timed_ms):
    """A run's part of tokens.json, from the new tokens of each timed call, a list of each row's, and the calls' times."""
    other = next((call for call in every if call != every[0]), None)
    return {
        "new_tokens": new_tokens,
        "timed_ms": timed_ms,
        "digests": [digest(call) for call in every],
        "tokens": unique(every[0]),
        "other_tokens": unique(other) if other else None,
    }


def keeper(prompt_tokens, steps):
    """A logits processor that changes nothing and keeps, in `kept`, {step: logits [rows, vocabulary] on the CPU} of these steps."""
    import transformers

    class Keep(transformers.LogitsProcessor):
        kept = {}

        def __call__(self, input_ids, scores):
            step = input_ids.shape[1] - prompt_tokens
            if step in steps:
                self.kept[step] = scores[:KEPT_ROWS].detach().float().cpu()
            return scores

    Keep.kept = {}
    return Keep()


def write(job, loaded, form, runs, clock):
    """Make the calls that the judge wants and write both files; `runs` are the parts that `of_run` made.

    Each row of a batch is the same prompt: `loaded.prompt_ids`, [rows, tokens], as the form's calls had it.
    """
    longest = max(job.runs, key=lambda run: run["new_tokens"])
    found = {
        "greedy": greedy(job),
        "end_tokens": loaded.end_tokens(),
        "prompt": loaded.prompt_ids[0].tolist(),
        "late_step": late_step(longest["new_tokens"]),
        "runs": runs,
        "again": {"reason": "tokens are sampled"},
        "fresh": [],
    }
    if found["greedy"]:
        found["again"] = _again(job, loaded, form, longest)
        found["fresh"] = [_fresh(job, loaded, form, longest, place, clock) for place in (1, 2)]
    if ranks.is_first():
        with open(os.path.join(loaded.folder, TOKENS), "w") as stream:
            json.dump(found, stream, sort_keys=True)


def _again(job, loaded, form, run):
    """{digest, tokens} of the longest run with its logits kept, or {reason} where the backend does not let them be kept."""
    import numpy
    import transformers

    steps = (0, late_step(run["new_tokens"]))
    keep = keeper(loaded.prompt_ids.shape[1], steps)
    try:
        tokens = form.call(job, loaded, run, loaded.prompt_ids, logits_processor=transformers.LogitsProcessorList([keep])).tolist()
        kept = {"prompt": keep.kept[steps[0]].numpy(), "late": keep.kept[steps[1]].numpy()}
    except Exception as error:  # whatever the backend says to a logits processor: the row is then judged without its logits
        return {"reason": "{}: {}".format(type(error).__name__, str(error).splitlines()[0] if str(error) else "")}
    if ranks.is_first():
        numpy.savez(os.path.join(loaded.folder, LOGITS), **kept)
    return {"digest": digest(tokens), "tokens": unique(tokens)}


def _fresh(job, loaded, form, run, place, clock):
    """{prompt, tokens, ms} of a call with the prompt rotated by `place`."""
    prompt = loaded.prompt_ids.roll(place, dims=1)
    kept = []
    ms = clock(lambda: kept.append(form.call(job, loaded, run, prompt)))
    return {"prompt": prompt[0].tolist(), "tokens": unique(kept[0].tolist()), "ms": ms}
