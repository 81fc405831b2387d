"""The files that a measuring job writes for the judge (bench/checking/judge.py): a guest never judges itself.

They lie in the job's folder: tokens.json, which stays with the result, and logits.npz. The tokens are those of the timed calls. An answer
is {prompt, tokens}: the place of its prompt in the list of distinct prompts (without padding), and its new tokens. After the last timed
call the job makes three or more further calls, which enter no time of the result:

    again    the longest run once more; the logits of the prompt's last position and of a late step are kept
    fresh    two calls with batches that no call had before: each row's prompt is rotated. The tokens or times of these calls show an engine
             that stores answers. A busy host may be why both are slow, so more such calls follow until one is fast. Before each of them come
             some calls with the timed prompts (`seen_ms`): a busy host slows these down too, while an engine that stores the answer to each
             prompt is slow for unseen prompts alone. (Every second rotation of a row of two tokens is the row itself.)
"""

import hashlib
import itertools
import json
import math
import os
import time

from bench.measuring import ranks

TOKENS, LOGITS = "tokens.json", "logits.npz"

#: The logits of so many rows of a batch are kept.
LOGIT_ROWS = 8

#: A call with an unseen prompt is slow where it takes more than so many times as long as a timed call, and as the fastest of the calls with the
#: timed prompts just before it.
FRESH = 3

#: The calls with unseen prompts that are always made, and the most that are made where all of them are slow.
FRESH_CALLS, MOST_FRESH_CALLS = 2, 8

#: The pause before the first additional call, in which a busy host may calm down. Each further pause is twice as long, 8 s at most.
PAUSE_S = 0.25

#: No additional call follows once the calls took so many seconds together; the first additional call is exempt.
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


class Batch:
    """The prompts of a call's rows: `input_ids` [rows, tokens], padded on the left where `mask` [rows, tokens] is 0; None pads nothing.

    prompts    the distinct prompts without their padding, in order
    numbers    the place of each row's prompt among them
    ends       the tokens with which an answer may end before its length
    """

    def __init__(self, input_ids, mask=None, ends=()):
        self.input_ids, self.mask, self.ends = input_ids, mask, ends
        self.rows = input_ids.tolist()
        self.padding = [0] * len(self.rows) if mask is None else [row.index(1) for row in mask.tolist()]
        unpadded = [row[start:] for row, start in zip(self.rows, self.padding)]
        self.prompts = list(map(list, dict.fromkeys(map(tuple, unpadded))))
        self.numbers = [self.prompts.index(prompt) for prompt in unpadded]

    def answers(self, call):
        """[{prompt, tokens}] of a call's rows of new tokens, each up to its first end token: the rest is padding."""
        return [{"prompt": number, "tokens": self._ended(row)} for number, row in zip(self.numbers, call)]

    def _ended(self, row):
        return next((row[: place + 1] for place, token in enumerate(row) if token in self.ends), row)

    def rotated(self, places):
        """The batch with each row's tokens rotated by so many places; padding stays where it is."""
        rows = []
        for row, start in zip(self.rows, self.padding):
            turn = places % (len(row) - start)
            rows.append(row[:start] + row[len(row) - turn :] + row[start : len(row) - turn])
        return Batch(self.input_ids.new_tensor(rows), self.mask, self.ends)


def unique(answers):
    """The distinct answers, in order."""
    found = {}
    for answer in answers:
        found.setdefault(repr(answer), answer)
    return list(found.values())


class Timed:
    """The timed calls of one of the job's runs: `calls` has for each the new tokens of each row, `timed_ms` their times."""

    def __init__(self, new_tokens, calls, timed_ms):
        self.new_tokens, self.calls, self.timed_ms = new_tokens, calls, timed_ms

    def part(self, batch):
        """This run's part of tokens.json."""
        other = next((call for call in self.calls if call != self.calls[0]), None)
        return {
            "new_tokens": self.new_tokens,
            "timed_ms": self.timed_ms,
            "digests": [digest(call) for call in self.calls],
            "rows": sorted({len(call) for call in self.calls}),
            "answers": unique(batch.answers(self.calls[0])),
            "other_answers": unique(batch.answers(other)) if other else [],
        }


def keeper(prompt_tokens, steps):
    """A logits processor that changes nothing. Its `kept` is {step: logits [LOGIT_ROWS at most, vocabulary] on the CPU} for `steps`."""
    import transformers

    class Keep(transformers.LogitsProcessor):
        def __init__(self):
            self.kept = {}

        def __call__(self, input_ids, scores):
            step = input_ids.shape[1] - prompt_tokens
            if step in steps:
                self.kept[step] = scores[:LOGIT_ROWS].detach().float().cpu()
            return scores

    return Keep()


def write(job, loaded, form, stops, clock):
    """Make the judge's calls and write both files. `stops`: an end token ends an answer of this form; `clock(action)` gives its ms."""
    longest = longest_of(job.runs)
    ends = loaded.end_tokens()
    batch = Batch(loaded.prompt_ids, loaded.prompt_mask, ends if stops else ())
    document = {
        "greedy": greedy(job),
        "forbidden_tokens": [] if stops else ends,
        "stop_tokens": ends if stops else [],
        "prompts": batch.prompts,
        "rows": len(batch.rows),
        "late_step": late_step(longest["new_tokens"]),
        "runs": [timed.part(batch) for timed in loaded.answers],
        "again": {"reason": "tokens are sampled"},
        "fresh": [],
    }
    if document["greedy"]:
        document["again"] = _again(job, loaded, form, longest, batch)
        document["fresh"] = _fresh_calls(job, loaded, form, longest, batch, clock, longest_of(document["runs"])["timed_ms"])
    if ranks.is_first():
        with open(os.path.join(loaded.folder, TOKENS), "w") as stream:
            json.dump(document, stream, sort_keys=True)


def _again(job, loaded, form, run, batch):
    """{digest, rows, answers} of the longest run, with the answers of the rows whose logits are kept; {reason} where the backend refuses a
    logits processor, and all four where it ignores the processor.

    The late step's logits are missing where every answer ended before it.
    """
    import numpy
    import transformers

    steps = {"prompt": 0, "late": late_step(run["new_tokens"])}
    keep = keeper(batch.input_ids.shape[1], steps.values())
    try:
        tokens = form.call(job, loaded, run, batch.input_ids, logits_processor=transformers.LogitsProcessorList([keep])).tolist()
        kept = {name: keep.kept[step].numpy() for name, step in steps.items() if step in keep.kept}
    except Exception as error:  # any error of a backend about the logits processor: the row is then judged without its logits
        return ranks.told(error, alike=ranks.REFUSALS)
    found = {"digest": digest(tokens), "rows": [len(tokens)], "answers": batch.answers(tokens)[:LOGIT_ROWS]}
    if not kept:
        return dict(found, reason="the backend never called the logits processor")
    if ranks.is_first():
        numpy.savez(os.path.join(loaded.folder, LOGITS), **kept)
    return found


def longest_of(runs):
    """The run with the most new tokens, of a job's runs or of their parts of tokens.json."""
    return max(runs, key=lambda run: run["new_tokens"])


def pace_ms(timed_ms):
    """The time of a timed call: the upper quartile. Of five or more calls that is not the slowest, which may be the only computed call. It lies
    above the median, because a busy host slows single calls down. Of two to four calls it is the slowest."""
    ordered = sorted(timed_ms)
    return ordered[math.ceil(0.75 * (len(ordered) - 1))]


def seen_calls(warmup_runs, timed_runs):
    """How many calls with the timed prompts come before each additional call with an unseen prompt.

    An engine that stores an answer at its n-th call in a row has stored it before the call whose time `pace_ms` gives: after the cold call, the
    warm-up and the slowest quarter of the timed calls. With a larger n the timed calls themselves show it. An unseen prompt may make the engine
    count again, so it gets as many calls once more, and one to answer from its store.
    """
    return 1 + warmup_runs + (timed_runs - 1) // 4 + 1


def slow(timed_ms, fresh):
    """Did each call with an unseen prompt take more than FRESH times as long as a timed call, and as the fastest with the timed prompts just before it?"""
    return all(call["ms"] > FRESH * max(pace_ms(timed_ms), min(call.get("seen_ms", [0]))) for call in fresh)


def unseen(batch):
    """The batch rotated, each time by another number of places; no two of them are the same."""
    seen = [batch.rows]
    for places in range(1, batch.input_ids.shape[1]):
        rotated = batch.rotated(places)
        if rotated.rows not in seen:
            seen.append(rotated.rows)
            yield rotated


def _fresh_calls(job, loaded, form, run, batch, clock, timed_ms):
    """Calls with unseen prompts; none where every rotation gives the same prompts."""

    def call(asked):
        """{prompts, rows, answers, ms} of a call with a batch."""
        kept = []
        ms = clock(lambda: kept.append(form.call(job, loaded, run, asked.input_ids)))
        tokens = kept[0].tolist()
        return {"prompts": asked.prompts, "rows": [len(tokens)], "answers": unique(asked.answers(tokens)), "ms": ms}

    batches = unseen(batch)
    fresh = [call(rotated) for rotated in itertools.islice(batches, FRESH_CALLS)]
    for more, rotated in enumerate(itertools.islice(batches, MOST_FRESH_CALLS - FRESH_CALLS)):
        enough = not slow(timed_ms, fresh) or (more and sum(one["ms"] + sum(one.get("seen_ms", [])) for one in fresh) > 1000 * MOST_FRESH_S)
        if ranks.gather(enough)[0]:  # the first rank decides for all: ranks that decide differently would wait for each other
            break
        time.sleep(PAUSE_S * 2**more)
        seen_ms = [call(batch)["ms"] for _ in range(seen_calls(job.warmup_runs, len(timed_ms)))]
        fresh.append(dict(call(rotated), seen_ms=seen_ms))
    return fresh
