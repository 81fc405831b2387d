"""Are the tokens of the timed calls right? A job of kind "judge" reads what a measuring job left (bench/timed_tokens.py) and says so.

The measuring guest does not judge itself: this is a job of its own, after it, on the same image and devices. Plain transformers in
float32 reads the timed tokens, teacher-forced, and each token has a regret (bench/checking/regret.py). No equal prefix is needed: one ends at the
first near-tie, which an honest bfloat16 model meets after a few tokens.

    regret   its 90 % and its largest value over all steps of all timed calls; beside it stands the regret of plain transformers in the
             row's own dtype
    logits   |x - reference| / |reference| of the prompt's last position and of a late step, the reference reading the row's own tokens
    calls    all timed calls of a run make the same tokens, as many as asked for, and so does the call whose logits were kept
    fresh    two prompts that no call had before are answered as well, and take no more than FRESH times as long as a timed call

A bound of the first two is the larger of the dtype's floor and of FACTORS times plain transformers' own value; floors stand in
bench/tolerances.toml. Reading costs one forward pass, but loading the float32 model is dear, so what was read is kept in a file by the
digest of the tokens: rows whose tokens were read before are judged without a model, and without torch, whose import takes seconds.

options of the job: dtype (of the plain model that stands beside), floors {regret_p90, regret_max, logits_error}.
"""

import gc
import hashlib
import json
import math
import os

from bench.checking import regret
from bench.measuring import timed_tokens

#: How many times plain transformers' own value a row may have.
FACTORS = {"regret_p90": 3, "regret_max": 3, "logits_error": 2}

#: A timed call that takes a third of a call with an unseen prompt had its answer ready.
FRESH = 3


class NotRead(Exception):
    """Some tokens were not read before, and nothing is there to read them."""


class Readings:
    """What the float32 model said of tokens read so far: arrays by name, in an .npz file at `path`.

    load: gives the model of a dtype; None where only what was read before counts (NotRead otherwise)
    """

    def __init__(self, path, load):
        import numpy

        self.path, self.load, self.model, self.changed = path, load, None, False
        self.arrays = dict(numpy.load(path)) if os.path.exists(path) else {}

    def of(self, said, prompt, tokens):
        """(regrets [new tokens], logits [2, vocabulary] of the first and the late step) as numpy arrays."""
        key = hashlib.sha256(repr([prompt, tokens, said["late_step"], said["end_tokens"]]).encode()).hexdigest()[:16]
        if key + ".regrets" not in self.arrays:
            self.must_load()
            self._read(key, said, prompt, tokens)
        return self.arrays[key + ".regrets"], self.arrays[key + ".logits"]

    def must_load(self):
        """Raise NotRead where no model can be had."""
        if self.load is None:
            raise NotRead

    def float32(self):
        """The model that reads, loaded when it is first needed."""
        self.model = self.model or self.load("float32")
        return self.model

    def _read(self, key, said, prompt, tokens):
        import torch

        loaded = self.float32()
        logits = regret.read(loaded.model, torch.tensor([prompt], device=loaded.device), tokens)
        steps = [0, min(said["late_step"], len(tokens) - 1)]
        self.arrays[key + ".regrets"] = regret.regrets(logits, tokens, said["end_tokens"]).cpu().numpy()
        self.arrays[key + ".logits"] = logits[steps].cpu().numpy()
        self.changed = True

    def save(self):
        """Put a new file in the place of the one that was read, where something is new."""
        import numpy

        if self.changed:
            with open(self.path + ".partial", "wb") as stream:
                numpy.savez(stream, **self.arrays)
            os.replace(self.path + ".partial", self.path)


def run(job, folder):
    """The verdict on the answers in `folder`; readings are taken from the file at `job.reference`, and new ones are added to it."""
    readings = Readings(job.reference, lambda dtype: _model(job, dtype))
    verdict = _verdict(job, folder, readings)
    readings.save()
    return verdict


def of_kept(job, folder):
    """`run` from what was read before, without torch; None where a model has to read."""
    try:
        return _verdict(job, folder, Readings(job.reference, None))
    except NotRead:
        return None


def _verdict(job, folder, readings):
    said = _said(folder)
    plain = _plain(job, said, readings) if said["greedy"] else None
    return verdict_in(folder, readings, plain, job.options["floors"])


def verdict_in(folder, readings, plain, floors):
    """`judge` on the two files of a folder."""
    import numpy

    kept = os.path.join(folder, timed_tokens.LOGITS)
    logits = dict(numpy.load(kept)) if os.path.exists(kept) else {}
    return judge(_said(folder), logits, readings, plain, floors)


def _said(folder):
    with open(os.path.join(folder, timed_tokens.TOKENS)) as stream:
        return json.load(stream)


def judge(said, logits, readings, plain, floors):
    """The verdict: {passed, reason, regret, logits_error, allowed, plain, steps, calls, not_seen}; of sampled tokens without the middle four.

    said and logits: what the measuring job left; plain: {regret_p90, regret_max, prompt, late} of plain transformers.
    """
    faults, not_seen, found = _counts(said), ["tokens are sampled, so no reference can judge them"], {}
    if said["greedy"]:
        found = {"allowed": _allowed(plain, floors), "plain": plain, "regret": _regret(said, readings)}
        not_seen = [] if logits else ["logits of a late step: {}".format(said["again"]["reason"])]
        faults += _repeats(said) + _too_large("the timed tokens", found["regret"], found["allowed"])
        for one in said["fresh"]:
            values = [readings.of(said, one["prompt"], row)[0] for row in one["tokens"]]
            faults += _too_large("the tokens for an unseen prompt", _summary(values), found["allowed"])
        if logits:
            found["logits_error"] = _logits_error(said, logits, readings)
            faults += _too_far(found["logits_error"], found["allowed"]["logits_error"])
    steps = sum(len(row) for part in said["runs"] for row in part["tokens"])
    calls = sum(len(part["digests"]) for part in said["runs"])
    return dict(found, passed=not faults, reason="; ".join(faults), steps=steps, calls=calls, not_seen=not_seen)


def _allowed(plain, floors):
    """The bounds of a row: a dtype's floors, or the multiple of plain transformers' own values where that is larger."""
    own = {"regret_p90": plain["regret_p90"], "regret_max": plain["regret_max"], "logits_error": max(plain["prompt"], plain["late"])}
    return {name: max(floors[name], FACTORS[name] * own[name]) for name in own}


def _counts(said):
    """Answers with another number of tokens than asked for; sampled ones may end sooner."""
    every = [(part["new_tokens"], row) for part in said["runs"] for row in part["tokens"] + (part["other_tokens"] or [])]
    longest = max(part["new_tokens"] for part in said["runs"])
    every += [(longest, row) for one in said["fresh"] + [said["again"]] for row in one.get("tokens", [])]
    wrong = sorted({(asked, len(row)) for asked, row in every if len(row) > asked or said["greedy"] and len(row) < asked})
    return ["{} new tokens were asked for, {} came".format(asked, came) for asked, came in wrong]


def _repeats(said):
    """Timed calls that differ among themselves or from the call whose logits were kept, or that had their answer ready."""
    faults, longest = [], max(said["runs"], key=lambda part: part["new_tokens"])
    faults += ["the timed calls of {new_tokens} new tokens made different tokens".format(**part) for part in said["runs"] if len(set(part["digests"])) > 1]
    if said["again"].get("digest", longest["digests"][0]) != longest["digests"][0]:
        faults.append("the call whose logits are judged made other tokens than the timed calls")
    # Not the slowest, which may be the only one that was computed; not the median, for a busy host slows single calls down.
    ordered = sorted(longest["timed_ms"])
    timed_ms, fresh_ms = ordered[math.ceil(0.75 * (len(ordered) - 1))], min(one["ms"] for one in said["fresh"])
    if fresh_ms > FRESH * timed_ms:
        faults.append("timed calls took {:.3g} ms, a call with an unseen prompt {:.3g} ms: their answers were kept".format(timed_ms, fresh_ms))
    return faults


def _summary(values):
    return regret.summary([value for row in values for value in row])


def _regret(said, readings):
    """{p50, p90, max} over all steps of all timed calls; calls with the same tokens weigh alike, so one of them stands for all."""
    rows = [row for part in said["runs"] for row in part["tokens"] + (part["other_tokens"] or [])]
    return _summary([readings.of(said, said["prompt"], row)[0] for row in rows])


def _too_large(whose, found, allowed):
    return [
        "{} lie {:.2g} standard deviations below the best ({}), {:.2g} is allowed".format(whose, found[part], words, allowed["regret_" + part])
        for part, words in (("p90", "90 %"), ("max", "the worst"))
        if not found[part] <= allowed["regret_" + part]
    ]


def _too_far(errors, allowed):
    return [
        "the logits of the {} are {:.2g} off, {:.2g} is allowed".format(words, errors[name], allowed)
        for name, words in (("prompt", "prompt's last position"), ("late", "late step"))
        if not errors[name] <= allowed
    ]


def _error(own, right):
    """|own - right| / |right| over the entries that generation did not forbid (a least length sets an end token to -inf); inf for NaN."""
    import numpy

    open_ = ~numpy.isneginf(own)
    error = numpy.linalg.norm((own - right)[open_]) / numpy.linalg.norm(right[open_])
    return float(error) if numpy.isfinite(error) else 1e9


def _logits_error(said, logits, readings):
    """{prompt, late}: the largest error over the rows whose logits were kept, each against the reading of the row's own tokens."""
    rows = said["again"]["tokens"]
    right = [readings.of(said, said["prompt"], row)[1] for row in rows]
    return {name: max(min(_error(own, one[place]) for one in right) for own in logits[name]) for place, name in enumerate(("prompt", "late"))}


def _model(job, dtype):
    """Plain transformers on the job's devices, as the reference job loads it."""
    import dataclasses

    from bench import backends

    return backends.find("layer-parallel").load(dataclasses.replace(job, load={"dtype": dtype}))


def _plain(job, said, readings):
    """{regret_p90, regret_max, prompt, late} of plain transformers in the job's dtype on this prompt; measured once, then kept."""
    import numpy

    new_tokens = max(part["new_tokens"] for part in said["runs"])
    key = hashlib.sha256(repr([said["prompt"], new_tokens, job.options["dtype"]]).encode()).hexdigest()[:16] + ".plain"
    if key not in readings.arrays:
        readings.must_load()
        tokens, logits = _decoded(job, said, new_tokens, readings)
        regrets, right = readings.of(said, said["prompt"], tokens)
        found = regret.summary(regrets)
        errors = [_error(own, one) for own, one in zip(logits, right)]
        readings.arrays[key] = numpy.array([found["p90"], found["max"]] + errors)
        readings.changed = True
    return dict(zip(("regret_p90", "regret_max", "prompt", "late"), readings.arrays[key].tolist()))


def _decoded(job, said, new_tokens, readings):
    """(tokens [new tokens], logits of the first and the late step) of a greedy call of plain transformers in the job's dtype."""
    import torch
    import transformers

    plain = readings.float32() if job.options["dtype"] == "float32" else _model(job, job.options["dtype"])
    ids = torch.tensor([said["prompt"]], device=plain.device)
    steps = (0, said["late_step"])
    keep = timed_tokens.keeper(ids.shape[1], steps)
    with torch.no_grad():
        output = plain.model.generate(
            ids,
            do_sample=False,
            num_beams=1,
            max_new_tokens=new_tokens,
            min_length=ids.shape[1] + new_tokens,
            logits_processor=transformers.LogitsProcessorList([keep]),
        )
    tokens, logits = output[0, ids.shape[1] :].tolist(), [keep.kept[step][0].numpy() for step in steps]
    del plain, output
    gc.collect()
    if job.device == "cuda":
        torch.cuda.empty_cache()
    return tokens, logits
