"""Are the tokens of the timed calls right? A job of kind "judge" answers from the files of a measuring job (bench/measuring/timed_tokens.py).

The measuring guest does not judge itself: the judge is a job of its own, later, on the same image and devices. Plain transformers in
float32 reads the timed tokens, teacher-forced, and gives each token a regret (bench/checking/regret.py). Equal tokens are not required:
an honest bfloat16 model differs from the reference at the first near-tie, after a few tokens.

    regret   the 90 % quantile and the largest value over all steps of all timed calls, compared with the regret of plain transformers in
             the row's dtype
    logits   |x - reference| / |reference| of the prompt's last position and of a late step; the reference reads the row's own tokens
    calls    all timed calls of a run, and the call whose logits were kept, make the same tokens, as many as the job requires
    fresh    prompts that no call had before get equally good answers; one of these calls takes at most FRESH times as long as a timed call, or as
             the fastest of the calls with the timed prompts just before it
    ends     the tokens that end answers, or are forbidden because they would, are the end tokens of the model's own settings

The reference reads each row of a batch after its own prompt, without padding. The bound of a regret or a logits error is the larger of the
dtype's floor (bench/tolerances.toml) and FACTORS times plain transformers' own value.
A reading costs a forward pass or two, but loading the float32 model is expensive. So a file keeps the readings by the digest of the tokens:
all regrets, but logits only where a row's own are compared with them (a megabyte a position).
Rows whose tokens were read before are judged without a model, and without importing torch, which takes seconds.

options of the job: dtype (of the plain model for comparison), floors {regret_p90, regret_max, logits_error}.
"""

import gc
import hashlib
import json
import os

from bench.checking import regret
from bench.measuring import timed_tokens

#: A row's value may be so many times that of plain transformers.
FACTORS = {"regret_p90": 3, "regret_max": 3, "logits_error": 2}

#: At most so many different answers of the timed calls, and of each fresh call, are read, chosen by the digests of their tokens. The verdict gives
#: the number of the others; the number of tokens is checked in all.
READ_ANSWERS = 128


class NotRead(Exception):
    """Some tokens have no kept reading, and no model may be loaded to read them."""


class Readings:
    """The float32 model's readings of tokens: arrays by name, in an .npz file at `path`.

    load(dtype) gives the model of a dtype; None allows only kept readings (NotRead where one is missing)
    """

    def __init__(self, path, load):
        import numpy

        self.path, self.load, self.model, self.reader, self.new = path, load, None, None, {}
        self.kept = numpy.load(path) if os.path.exists(path) else {}  # an array is read from the disk when it is first asked for

    def get(self, name, make):
        """The array of this name, kept or made now; raises NotRead where it would have to be made by a model that may not be loaded."""
        if name not in self.new and name not in self.kept:
            if self.load is None:
                raise NotRead
            self.new[name] = make()
        return self.new[name] if name in self.new else self.kept[name]

    def float32(self):
        """The float32 model, loaded when it is first needed."""
        if not self.model:
            self.model = self.load("float32")
            self.reader = regret.Reader(self.model.model)
        return self.model

    def regrets(self, answers, prompt, tokens):
        """The regret of each new token, a numpy array."""
        return self.get(_key(answers, prompt, tokens) + ".regrets", lambda: self.read(answers, prompt, tokens)[0])

    def logits(self, answers, prompt, tokens):
        """The logits [2, vocabulary] of the first and the late step, a numpy array; a shorter answer has its last step in place of the late one."""
        return self.get(_key(answers, prompt, tokens) + ".logits", lambda: self.read(answers, prompt, tokens)[1])

    def ends(self):
        """The tokens that end an answer by the model's own settings, in order."""
        import numpy

        return self.get("ends", lambda: numpy.array(self.float32().end_tokens(), dtype=numpy.int64)).tolist()

    def read(self, answers, prompt, tokens):
        """(regrets, logits) as above, by forward passes that are not kept."""
        import torch

        loaded = self.float32()
        logits = self.reader.read(torch.tensor([prompt], device=loaded.device), tokens)
        steps = [0, min(answers["late_step"], len(tokens) - 1)]
        return regret.regrets(logits, tokens, answers["forbidden_tokens"]).cpu().numpy(), logits[steps].cpu().numpy()

    def save(self):
        """Replace the file of readings where there are new ones."""
        import numpy

        if self.new:
            with open(self.path + ".partial", "wb") as stream:
                numpy.savez(stream, **{**self.kept, **self.new})
            os.replace(self.path + ".partial", self.path)


def _key(answers, prompt, tokens):
    return hashlib.sha256(repr([prompt, tokens, answers["late_step"], answers["forbidden_tokens"]]).encode()).hexdigest()[:16]


def run(job, folder):
    """The verdict on the answers in `folder`, with the readings of the file `job.reference`, which gets the new ones."""
    readings = Readings(job.reference, lambda dtype: _model(job, dtype))
    verdict = _verdict(job, folder, readings)
    readings.save()
    return verdict


def from_kept_readings(job, folder):
    """`run` with kept readings alone, without torch; None where a reading is missing."""
    try:
        return _verdict(job, folder, Readings(job.reference, None))
    except NotRead:
        return None


def _verdict(job, folder, readings):
    answers = _answers(folder)
    plain = _plain(job, answers, readings) if answers["greedy"] else None
    return verdict_in(folder, readings, plain, job.options["floors"])


def verdict_in(folder, readings, plain, floors):
    """`judge` on the two files of a folder."""
    import numpy

    kept = os.path.join(folder, timed_tokens.LOGITS)
    logits = dict(numpy.load(kept)) if os.path.exists(kept) else {}
    return judge(_answers(folder), logits, readings, plain, floors)


def _answers(folder):
    """The content of tokens.json."""
    with open(os.path.join(folder, timed_tokens.TOKENS)) as stream:
        return json.load(stream)


def judge(answers, logits, readings, plain, floors):
    """The verdict: {passed, reason, regret, logits_error, allowed, plain, steps, calls, not_seen}; for sampled tokens without regret to plain.

    answers and logits: the files of the measuring job; plain: {regret_p90, regret_max, prompt, late} of plain transformers.
    """
    faults, not_seen, verdict = _rows(answers) + _counts(answers), ["tokens are sampled, so no reference can judge them"], {}
    timed, left_out = _chosen(_timed(answers))
    if answers["greedy"]:
        verdict = {"allowed": _allowed(plain, floors), "plain": plain, "regret": _regret(answers, answers["prompts"], timed, readings)}
        not_seen = _logits_not_seen(answers, logits)
        not_seen += [] if answers["fresh"] else ["answers from a store, because every rotation of the prompt is the same prompt"]
        faults += _repeats(answers) + _ends(answers, readings) + _too_large("the timed tokens", verdict["regret"], verdict["allowed"])
        for call in answers["fresh"]:
            made, others = _chosen(call["answers"])
            left_out += others
            faults += _too_large("the tokens for an unseen prompt", _regret(answers, call["prompts"], made, readings), verdict["allowed"])
        not_seen += ["{} different answers that were not read".format(left_out)] if left_out else []
        if logits:
            verdict["logits_error"] = _logits_error(answers, logits, readings)
            faults += _too_far(verdict["logits_error"], verdict["allowed"]["logits_error"])
    steps = sum(len(answer["tokens"]) for answer in timed)
    calls = sum(len(part["digests"]) for part in answers["runs"])
    return dict(verdict, passed=not faults, reason="; ".join(faults), steps=steps, calls=calls, not_seen=not_seen)


def _logits_not_seen(answers, logits):
    """What the logits do not show: all where the backend kept none, else the positions of which rows are missing."""
    if not logits:
        return ["logits of a late step: {}".format(answers["again"]["reason"])]
    told, rows = [], answers["again"]["answers"]
    for name, words, step in (("prompt", "the prompt's last position", 0), ("late", "a late step", answers["late_step"])):
        there = len(logits.get(name, ()))
        if all(len(row["tokens"]) <= step for row in rows):
            told.append("logits of {}: every answer ended before it".format(words))
        elif there < len(rows):
            told.append("logits of {}: {} of {} rows have them".format(words, there, len(rows)))
    return told


def _allowed(plain, floors):
    """The bounds of a row: the larger of the dtype's floor and the multiple of plain transformers' own value."""
    own = {"regret_p90": plain["regret_p90"], "regret_max": plain["regret_max"], "logits_error": max(plain["prompt"], plain["late"])}
    return {name: max(floors[name], FACTORS[name] * own[name]) for name in own}


def _timed(answers):
    """The distinct answers of all timed calls; one call stands for all calls with the same tokens."""
    return [answer for part in answers["runs"] for answer in part["answers"] + part["other_answers"]]


def _chosen(made):
    """(the answers that are read, the number of the others)."""
    ordered = sorted(made, key=lambda answer: timed_tokens.digest(answer["tokens"])) if len(made) > READ_ANSWERS else made
    return ordered[:READ_ANSWERS], len(ordered[READ_ANSWERS:])


def _rows(answers):
    """Calls with another number of rows than their batch."""
    wrong = {count for call in answers["runs"] + answers["fresh"] + [answers["again"]] for count in call.get("rows", []) if count != answers["rows"]}
    return ["{} rows were asked for, {} came".format(answers["rows"], count) for count in sorted(wrong)]


def _ends(answers, readings):
    """A backend that takes other tokens for the end ends answers too early, or forbids the wrong tokens."""
    named, own = sorted(_end_tokens(answers)), readings.ends()
    return [] if named == own else ["the tokens {} ended answers, the model's own settings name {}".format(named, own)]


def _counts(answers):
    """Answers with another number of tokens than required; sampled ones may end sooner, and others where an end token ends them."""
    rows = [(part["new_tokens"], answer["tokens"]) for part in answers["runs"] for answer in part["answers"] + part["other_answers"]]
    longest = timed_tokens.longest_of(answers["runs"])["new_tokens"]
    rows += [(longest, answer["tokens"]) for call in answers["fresh"] + [answers["again"]] for answer in call.get("answers", [])]
    short = {(required, len(row)) for required, row in rows if len(row) < required and answers["greedy"] and not set(row[-1:]) & set(answers["stop_tokens"])}
    wrong = sorted(short | {(required, len(row)) for required, row in rows if len(row) > required})
    return ["{} new tokens were asked for, {} came".format(required, made) for required, made in wrong]


def _repeats(answers):
    """Timed calls that differ among themselves or from the call whose logits were kept, or whose answer was stored."""
    faults, longest = [], timed_tokens.longest_of(answers["runs"])
    faults += ["the timed calls of {new_tokens} new tokens made different tokens".format(**part) for part in answers["runs"] if len(set(part["digests"])) > 1]
    if answers["again"].get("digest", longest["digests"][0]) != longest["digests"][0]:
        faults.append("the call whose logits are judged made other tokens than the timed calls")
    if answers["fresh"] and timed_tokens.slow(longest["timed_ms"], answers["fresh"]):
        timed_ms, fresh_ms = timed_tokens.pace_ms(longest["timed_ms"]), min(call["ms"] for call in answers["fresh"])
        seen_ms = [min(call["seen_ms"]) for call in answers["fresh"] if call.get("seen_ms")]
        between = ", later ones {:.3g} ms".format(max(seen_ms)) if seen_ms else ""
        faults.append(
            "timed calls took {:.3g} ms{}, a call with an unseen prompt took {:.3g} ms: the timed answers come from a store".format(timed_ms, between, fresh_ms)
        )
    return faults


def _regret(answers, prompts, made, readings):
    """{p50, p90, max} over all steps of the answers `made` to `prompts`."""
    values = [readings.regrets(answers, prompts[answer["prompt"]], answer["tokens"]) for answer in made]
    return regret.summary([value for row in values for value in row])


def _too_large(whose, regrets, allowed):
    return [
        "{} lie {:.2g} standard deviations below the best ({}), {:.2g} is allowed".format(whose, regrets[part], words, allowed["regret_" + part])
        for part, words in (("p90", "90 %"), ("max", "the worst"))
        if not regrets[part] <= allowed["regret_" + part]
    ]


def _too_far(errors, allowed):
    return [
        "the logits of the {} are {:.2g} off, {:.2g} is allowed".format(words, errors[name], allowed)
        for name, words in (("prompt", "prompt's last position"), ("late", "late step"))
        if name in errors and not errors[name] <= allowed
    ]


def _end_tokens(answers):
    """The end tokens: they end answers, or are forbidden."""
    return answers["stop_tokens"] + answers["forbidden_tokens"]  # one of the two is empty


def _error(own, right, ends):
    """|own - right| / |right| over the entries that generation did not forbid; 1e9 where not finite. A minimum length sets end tokens to -inf."""
    import numpy

    allowed = ~(numpy.isneginf(own) & numpy.isin(numpy.arange(len(own)), ends))
    error = numpy.linalg.norm((own - right)[allowed]) / numpy.linalg.norm(right[allowed])
    return float(error) if numpy.isfinite(error) else 1e9


def _logits_error(answers, logits, readings):
    """{prompt, late}: the largest error over the rows whose logits were kept, each against the reading of the row's own tokens.

    An answer that ended before the late step has no logits of it; `late` is missing where all did.
    """
    errors = {}
    for place, (name, step) in enumerate((("prompt", 0), ("late", answers["late_step"]))):
        for own, answer in zip(logits.get(name, ()), answers["again"]["answers"]):
            if len(answer["tokens"]) > step:
                right = readings.logits(answers, answers["prompts"][answer["prompt"]], answer["tokens"])
                errors[name] = max(errors.get(name, 0.0), _error(own, right[place], _end_tokens(answers)))
    return errors


def _model(job, dtype):
    """Plain transformers on the job's devices, as the reference job loads it."""
    import dataclasses

    from bench import backends

    return backends.find("layer-parallel").load(dataclasses.replace(job, load={"dtype": dtype}))


def _plain(job, answers, readings):
    """{regret_p90, regret_max, prompt, late} of plain transformers in the job's dtype on the same prompts; measured once, then kept."""
    import numpy

    new_tokens = timed_tokens.longest_of(answers["runs"])["new_tokens"]
    # Also of the late step and the forbidden tokens, which the row's guest tells: wrong ones must widen the bounds of no other row.
    told = [answers[name] for name in ("prompts", "stop_tokens", "forbidden_tokens", "late_step")]
    key = hashlib.sha256(repr([told, new_tokens, job.options["dtype"]]).encode()).hexdigest()[:16] + ".plain"

    def measured():
        regrets, errors = [], {"prompt": 0.0, "late": 0.0}
        for prompt, (tokens, logits) in zip(answers["prompts"], _decoded(job, answers, new_tokens, readings)):
            own, right = readings.read(answers, prompt, tokens)
            regrets += own.tolist()
            for place, name in enumerate(logits):
                errors[name] = max(errors[name], _error(logits[name], right[place], _end_tokens(answers)))
        summary = regret.summary(regrets)
        return numpy.array([summary["p90"], summary["max"], errors["prompt"], errors["late"]])

    return dict(zip(("regret_p90", "regret_max", "prompt", "late"), readings.get(key, measured).tolist()))


def _decoded(job, answers, new_tokens, readings):
    """For each prompt (tokens [new tokens], {prompt, late: logits}) of a greedy call of plain transformers in the job's dtype, alone and without padding."""
    plain = readings.float32() if job.options["dtype"] == "float32" else _model(job, job.options["dtype"])
    decoded = [_decode(plain, prompt, answers, new_tokens) for prompt in answers["prompts"]]
    del plain
    gc.collect()
    if job.device == "cuda":
        import torch

        torch.cuda.empty_cache()
    return decoded


def _decode(plain, prompt, answers, new_tokens):
    import torch
    import transformers

    ids = torch.tensor([prompt], device=plain.device)
    steps = {"prompt": 0, "late": answers["late_step"]}
    keep = timed_tokens.keeper(ids.shape[1], steps.values())
    least = 0 if answers["stop_tokens"] else ids.shape[1] + new_tokens
    with torch.no_grad():
        output = plain.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=1,
            max_new_tokens=new_tokens,
            min_length=least,
            logits_processor=transformers.LogitsProcessorList([keep]),
        )
    return output[0, ids.shape[1] :].tolist(), {name: keep.kept[step][0].numpy() for name, step in steps.items() if step in keep.kept}
