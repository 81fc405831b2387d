"""The files that a measuring job writes for the judge (bench/checking/judge.py): a guest never judges itself.

They lie in the job's folder: tokens.json, which stays with the result, and logits.npz. The tokens are those of the timed calls.
After the last timed call the job makes three more calls or a few more, which enter no time of the result:

    again    the longest run once more; the logits of the prompt's last position and of a late step are kept
    fresh    two calls with prompts that no call had before: an engine that stores answers shows it in their tokens or times. Where
             both are slow a busy host may be the reason, so more such calls follow until one is not; an engine that stores the answer
             to each prompt is slow in all of them
"""

import hashlib
import itertools
import json
import math
import os
import time

from bench.measuring import ranks

TOKENS, LOGITS = "tokens.json", "logits.npz"

#: The number of rows of a batch that are kept in full; a call's digest covers all rows.
KEPT_ROWS = 8

#: A call with an unseen prompt is slow where it takes more than so many times as long as a timed call.
FRESH = 3

#: Calls with unseen prompts: so many always, and at most so many where all of them are slow, with a pause in which a busy host may calm down.
FRESH_CALLS, MOST_FRESH_CALLS, PAUSE_S = 2, 8, 0.25

#: Calls that took so many seconds together tell enough: a burst of a busy host is shorter.
MOST_FRESH_S = 60


def greedy(job):
    """Does every run of the job take the largest logit at each step, up to its number of tokens? Only then can the reference judge a token."""

    def is_greedy(run):
        arguments = run["arguments"]
        return not arguments.get("do_sample") and arguments.get("num_beams", 1) == 1 and not run.get("up_to")

    return all(is_greedy(run) for run in job.runs)


def late_step(new_tokens):
    """The late step (from 0) whose logits are judged: after four fifths of the tokens."""
    return int(0.8 * new_tokens)


def digest(rows):
    """12 hex digits of a call's tokens, a list of token ids per row."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def unique(rows):
    """The first KEPT_ROWS rows of a call without repetitions, in order."""
    kept = []
    for row in rows[:KEPT_ROWS]:
        if row not in kept:
            kept.append(row)
    return kept


def of_run(new_tokens, calls, timed_ms):
    """A run's part of tokens.json. `calls` has for each timed call the new tokens of each row, `timed_ms` the times of the calls."""
    other = next((call for call in calls if call != calls[0]), None)
    return {
        "new_tokens": new_tokens,
        "timed_ms": timed_ms,
        "digests": [digest(call) for call in calls],
        "tokens": unique(calls[0]),
        "other_tokens": unique(other) if other else None,
    }


def keeper(prompt_tokens, steps):
    """A logits processor that changes nothing. Its `kept` is {step: logits [rows, vocabulary] on the CPU} for `steps`."""
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
    """Make the judge's calls and write both files; `runs` are the parts from `of_run`.

    Each row of a batch is the same prompt, `loaded.prompt_ids` [rows, tokens].
    """
    longest = max(job.runs, key=lambda run: run["new_tokens"])
    document = {
        "greedy": greedy(job),
        "end_tokens": loaded.end_tokens(),
        "prompt": loaded.prompt_ids[0].tolist(),
        "late_step": late_step(longest["new_tokens"]),
        "runs": runs,
        "again": {"reason": "tokens are sampled"},
        "fresh": [],
    }
    if document["greedy"]:
        document["again"] = _again(job, loaded, form, longest)
        document["fresh"] = _fresh_calls(job, loaded, form, longest, clock, longest_of(runs)["timed_ms"])
    if ranks.is_first():
        with open(os.path.join(loaded.folder, TOKENS), "w") as stream:
            json.dump(document, stream, sort_keys=True)


def _again(job, loaded, form, run):
    """{digest, tokens} of the longest run with its logits kept, or {reason} where the backend refuses a logits processor."""
    import numpy
    import transformers

    steps = (0, late_step(run["new_tokens"]))
    keep = keeper(loaded.prompt_ids.shape[1], steps)
    try:
        tokens = form.call(job, loaded, run, loaded.prompt_ids, logits_processor=transformers.LogitsProcessorList([keep])).tolist()
        kept = {"prompt": keep.kept[steps[0]].numpy(), "late": keep.kept[steps[1]].numpy()}
    except Exception as error:  # any error of a backend about the logits processor: the row is then judged without its logits
        return {"reason": "{}: {}".format(type(error).__name__, str(error).splitlines()[0] if str(error) else "")}
    if ranks.is_first():
        numpy.savez(os.path.join(loaded.folder, LOGITS), **kept)
    return {"digest": digest(tokens), "tokens": unique(tokens)}


def longest_of(runs):
    """Of the parts from `of_run` that of the run with most new tokens."""
    return max(runs, key=lambda part: part["new_tokens"])


def pace_ms(timed_ms):
    """What a timed call takes: not the slowest, which may be the only computed call; not the median, because a busy host slows single calls down."""
    ordered = sorted(timed_ms)
    return ordered[math.ceil(0.75 * (len(ordered) - 1))]


def slow(timed_ms, fresh):
    """Did all calls with unseen prompts take more than FRESH times as long as a timed call?"""
    return min(call["ms"] for call in fresh) > FRESH * pace_ms(timed_ms)


def unseen_prompts(prompt_ids):
    """The job's prompt [rows, tokens] rotated, each time by another number of places; no two of the prompts are the same."""
    seen = [prompt_ids[0].tolist()]
    for place in range(1, len(seen[0])):
        prompt = prompt_ids.roll(place, dims=1)
        tokens = prompt[0].tolist()
        if tokens not in seen:
            seen.append(tokens)
            yield prompt


def _fresh_calls(job, loaded, form, run, clock, timed_ms):
    """Calls with unseen prompts; none where every rotation of the prompt is the prompt."""
    prompts = unseen_prompts(loaded.prompt_ids)
    fresh = [_fresh(job, loaded, form, run, prompt, clock) for prompt in itertools.islice(prompts, FRESH_CALLS)]
    for prompt in itertools.islice(prompts, MOST_FRESH_CALLS - FRESH_CALLS):
        enough = not slow(timed_ms, fresh) or sum(call["ms"] for call in fresh) > 1000 * MOST_FRESH_S
        if ranks.gather(enough)[0]:  # the first rank decides for all, which would wait for each other otherwise
            break
        time.sleep(PAUSE_S)
        fresh.append(_fresh(job, loaded, form, run, prompt, clock))
    return fresh


def _fresh(job, loaded, form, run, prompt, clock):
    """{prompt, tokens, ms} of a call with a prompt."""
    kept = []
    ms = clock(lambda: kept.append(form.call(job, loaded, run, prompt)))
    return {"prompt": prompt[0].tolist(), "tokens": unique(kept[0].tolist()), "ms": ms}
