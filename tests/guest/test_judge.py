"""The judge on backends that cheat or err: each fails for its fault, and a right one passes."""

import json
import shutil
from dataclasses import replace

import pytest

from bench.job import to_json
from tests.guest.conftest import SHAPES, Guest
from tests.guest.samples import tiny_job

NEW_TOKENS = 48

#: {cheat: what its reason has to say}
REASONS = {
    "constant": "the timed tokens lie",
    "constant unless watched": "other tokens than the timed calls",
    "layer skipped": "the timed tokens lie",
    "prompt token hidden": "the timed tokens lie",
    "new token hidden": "the timed tokens lie",
    "positions too far": "the timed tokens lie",
    "4-bit weights": "the timed tokens lie",
    "one token behind": "the timed tokens lie",
    "one token short, padded": "the timed tokens lie",
    "another prompt's answer": "the timed tokens lie",
    "kept for any prompt": "the tokens for an unseen prompt lie",
    "kept for each prompt": "the timed answers come from a store",
    "changing": "made different tokens",
}


GREEDY = {"do_sample": False, "num_beams": 1}


def verdicts_of(python, folder, architecture, checkpoint, **fields):
    """{cheat: [status, reason, verdict]} of a job on a tiny model."""
    # The published variant makes no calls that tell when each token came, which nobody judges.
    fields = {"variant": "published", "warmup_runs": 0, "timed_runs": 2, "reference": str(folder / "reference.npz"), **fields}
    alone = {"form": "generate", "prompt": {**fields["prompt"], "batch_size": 1}} if "prompt" in fields else {}
    (folder / "reference.json").write_text(to_json(tiny_job(architecture, checkpoint, kind="reference", **{**fields, **alone})))
    guest = Guest(python, folder)
    told = guest.command("-m", "bench", str(folder / "reference.json"), str(folder / "r.json"))
    assert told.returncode == 0, told.stderr
    (folder / "job.json").write_text(to_json(tiny_job(architecture, checkpoint, backend="cheat", **fields)))
    done = guest.command("-m", "tests.guest.cheats", str(folder / "job.json"), str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session", params=["gptj", *(pytest.param(name, marks=pytest.mark.full) for name in sorted(set(SHAPES) - {"gptj"}))])
def verdicts(request, python, checkpoints, tmp_path_factory):
    """{cheat: [status, reason, verdict]} on a tiny model."""
    folder = tmp_path_factory.mktemp("cheats-" + request.param)
    return verdicts_of(python, folder, request.param, checkpoints[request.param], runs=[{"new_tokens": NEW_TOKENS, "arguments": GREEDY}])


def test_a_right_backend_passes(verdicts):
    for name in ("honest", "honest, decoded step by step", "honest, on a host that becomes busy"):
        status, _, verdict = verdicts[name]
        assert (status, verdict["passed"], verdict["reason"]) == ("ok", True, "")
        assert verdict["regret"]["max"] < 1e-3 and verdict["logits_error"]["late"] < 1e-3 and verdict["not_seen"] == []


def test_each_cheat_fails_for_its_fault(verdicts):
    wrong = {}
    for name, words in REASONS.items():
        if name in verdicts:  # BLOOM has no positions
            status, reason, verdict = verdicts[name]
            if status != "ok" or verdict["passed"] or words not in verdict["reason"]:
                wrong[name] = (status, reason, verdict)
    assert wrong == {}


def test_the_forward_pass_alone_sees_none_of_them(verdicts):
    """The cheats are not found by the check of one forward pass, or the judge would be tested on what needs no judge."""
    assert all(status == "ok" for name, (status, *_) in verdicts.items() if name != "one token short")


def test_a_call_that_is_one_token_short_ends_the_job(verdicts):
    status, reason, _ = verdicts["one token short"]
    assert status == "failed" and f"{NEW_TOKENS} new tokens were asked for, {NEW_TOKENS - 1} came" in reason


#: {cheat on a batch of padded sentences: what its reason has to say}
PADDED_REASONS = {
    "constant": "the timed tokens lie",
    "padding not masked": "the timed tokens lie",
    "the first row's answer for all": "the timed tokens lie",
    "the last row constant": "the timed tokens lie",
    "ended at once": "the timed tokens lie",
    "kept for any prompt": "the tokens for an unseen prompt lie",
    "kept for each prompt": "the timed answers come from a store",
}


TEXTS = ["the quick brown fox jumps", "over the lazy dog and", "a"]
PADDED = {
    "form": "padded-sentences",
    "prompt": {"text": TEXTS[0], "texts": TEXTS, "tokens": 5, "batch_size": 10},
    "runs": [{"new_tokens": NEW_TOKENS, "arguments": {**GREEDY, "max_new_tokens": NEW_TOKENS}}],
}
FLOORS = {"regret_p90": 1e-3, "regret_max": 0.02, "logits_error": 1e-3}


def test_padded_sentences_are_judged_row_by_row(python, checkpoints, tmp_path):
    found = verdicts_of(python, tmp_path, "bloom", checkpoints["bloom"], **PADDED)
    status, reason, verdict = found.pop("honest")
    assert (status, reason, verdict["passed"], verdict["reason"], verdict["not_seen"]) == ("ok", "", True, "", [])
    assert verdict["regret"]["max"] < 1e-3 and verdict["logits_error"]["late"] < 1e-3 and verdict["steps"] == 3 * NEW_TOKENS
    assert set(found) == set(PADDED_REASONS)
    wrong = {name: one for name, one in found.items() if one[0] != "ok" or one[2]["passed"] or PADDED_REASONS[name] not in one[2]["reason"]}
    assert wrong == {}


def test_an_answer_may_end_early_by_the_model_s_own_end_token(guest, checkpoints, tmp_path):
    """The end token becomes one that the model really makes after a few tokens of one sentence."""
    job = tiny_job("bloom", checkpoints["bloom"], reference=str(tmp_path / "reference.npz"), warmup_runs=0, timed_runs=2, **PADDED)
    assert guest.run(replace(job, kind="reference", form="generate", prompt={**job.prompt, "batch_size": 1})).status == "ok"
    assert guest.run(job).status == "ok"
    longest = json.loads((guest.folder / "tokens.json").read_text())["runs"][0]["answers"]
    end = next(token for token in longest[0]["tokens"][3:] if all(token not in other["tokens"] for other in longest[1:]))
    ending = tmp_path / "ending"
    shutil.copytree(checkpoints["bloom"], ending)
    for name in ("config.json", "generation_config.json"):
        if (ending / name).exists():
            (ending / name).write_text(json.dumps({**json.loads((ending / name).read_text()), "eos_token_id": end}))
    job = replace(job, model={**job.model, "path": str(ending)})
    measured = guest.run(job)
    assert measured.status == "ok", measured.reason
    cycles = measured.figures["cycles"]
    assert 0 < cycles["real_tokens"] < cycles["counted_tokens"] == 10 * NEW_TOKENS, "what follows an end token is padding"
    judging = replace(job, kind="judge", reference=str(tmp_path / "readings.npz"), options={"dtype": "float32", "floors": FLOORS})
    check = guest.run(judging).check
    assert check["passed"] and check["steps"] < 3 * NEW_TOKENS and check["plain"]["regret_max"] < 1e-3, check
    said = json.loads((guest.folder / "tokens.json").read_text())
    said["stop_tokens"] = [end, 5]
    (guest.folder / "tokens.json").write_text(json.dumps(said))
    assert "the model's own settings name" in guest.run(judging).check["reason"]


def test_tokens_that_were_read_before_are_judged_the_same_without_torch(guest, checkpoints, references):
    fields = {"runs": [{"new_tokens": 8, "arguments": {"do_sample": False, "num_beams": 1}}], "warmup_runs": 0, "timed_runs": 2}
    measured = guest.run(tiny_job("gptj", checkpoints["gptj"], reference=str(references["gptj"]), **fields))
    assert measured.status == "ok", measured.reason
    options = {"dtype": "float32", "floors": FLOORS}
    judging = tiny_job("gptj", checkpoints["gptj"], kind="judge", reference=str(guest.folder / "readings.npz"), options=options, **fields)
    first, again = guest.run(judging), guest.run(judging)
    assert first.check["passed"] and again.check == first.check
    assert "import" in first.phases and set(again.phases) == {"judge", "describe"}


#: Four steps whose logits tell them apart, read for answers of so many tokens.
def test_prompts_that_no_call_had_before_get_answers_as_long_as_those_of_the_longest_run(guest, checkpoints, references):
    runs = [{"new_tokens": tokens, "arguments": GREEDY} for tokens in (1, 6)]
    job = tiny_job("gptj", checkpoints["gptj"], reference=str(references["gptj"]), runs=runs, warmup_runs=0, timed_runs=2)
    measured = guest.run(job)
    assert measured.status == "ok", measured.reason
    said = json.loads((guest.folder / "tokens.json").read_text())
    assert {len(answer["tokens"]) for call in (*said["fresh"], said["again"]) for answer in call["answers"]} == {6}
    options = {"dtype": "bfloat16", "floors": FLOORS}
    judged = guest.run(replace(job, kind="judge", reference=str(guest.folder / "readings.npz"), options=options)).check
    assert judged["passed"] and judged["plain"]["late"] > 0, "plain transformers makes as many, so it has logits of a late step too"


LATE = """import json, types, torch
from bench.checking import judge, regret
logits = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]])
regret.Reader = lambda model: types.SimpleNamespace(read=lambda prompt, tokens: logits[:len(tokens)])
loaded = []
readings = judge.Readings('', lambda dtype: loaded.append(dtype) or types.SimpleNamespace(model=None, device='cpu'))
said = {{'late_step': 2, 'forbidden_tokens': []}}
print(json.dumps([[readings.read(said, [5], [1] * count)[1].tolist() for count in {counts}], loaded]))"""


def test_the_late_step_of_a_shorter_answer_is_its_last_and_one_model_reads_all(guest):
    first, second, third = [0.0, 1.0], [0.0, 2.0], [0.0, 3.0]
    late = [[first, third], [first, third], [first, second], [first, first]]
    assert guest.code(LATE.format(counts=[4, 3, 2, 1])) == [late, ["float32"]]


#: How far the reader's logits of answers to two prompts in turn are from those of one pass over prompt and answer.
IN_TURN = """import json, torch, types
from bench.checking import regret
from bench.models import pretrained
job = types.SimpleNamespace(model={{"path": {path!r}}}, load={{"dtype": "float32"}})
model = pretrained.load_model(job).eval()
reader, far, read = regret.Reader(model), [], []
model.register_forward_hook(lambda module, arguments, output: read.append(arguments[0].shape[1]))
prompts = [torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor([[11, 12, 13]])]
for prompt, tokens in [(0, [3, 4, 5]), (0, [6, 7]), (0, [8]), (1, [3, 4, 5]), (0, [6, 7, 9, 10])]:
    own = reader.read(prompts[prompt], tokens)
    read_tokens, ids = list(read), torch.cat([prompts[prompt], torch.tensor([tokens[:-1]], dtype=torch.int64)], dim=1)
    with torch.no_grad():
        right = model(ids).logits[0, prompts[prompt].shape[1] - 1 :]
    read[:] = read_tokens
    far.append(list(own.shape) == list(right.shape) and float((own - right).norm() / right.norm()))
print(json.dumps([far, read]))"""


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_a_prompt_is_read_once_for_all_answers_to_it_that_follow_each_other(either, checkpoints, architecture):
    far, read = either.code(IN_TURN.format(path=str(checkpoints[architecture])))
    assert all(error is not False and error < 1e-5 for error in far), far
    assert read == [6, 2, 1, 3, 2, 6, 3]  # the tokens of each pass: a prompt, the answers to it without their last token


#: [the elements of tensors that a reader of two prompts holds when each pass of the model begins], those of a prompt's cache, and of its logits.
HELD = """import gc, json, torch, types
from bench.checking import regret
from bench.models import pretrained
model = pretrained.load_model(types.SimpleNamespace(model={{"path": {path!r}}}, load={{"dtype": "float32"}}))
prompts = [torch.arange(first, first + 200).reshape(1, -1) for first in (0, 200)]
def held():
    gc.collect()
    tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    return sum({{one.data_ptr(): len(one.storage()) for one in tensors}}.values())
before, passes = held(), []
with torch.no_grad():
    cache = model(prompts[0], use_cache=True).past_key_values
of_cache = held() - before
del cache
reader = regret.Reader(model)
model.register_forward_pre_hook(lambda module, arguments: passes.append(held() - before))
for prompt in prompts:
    reader.read(prompt, [3, 4, 5])
print(json.dumps([passes, of_cache, prompts[0].numel() * model.config.vocab_size]))"""


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_of_a_prompt_a_reader_holds_the_cache_until_the_next_prompt_and_not_its_logits(either, checkpoints, architecture):
    passes, of_cache, of_logits = either.code(HELD.format(path=str(checkpoints[architecture])))
    for place, held in enumerate(passes):  # a prompt, its answer, the next prompt, its answer
        assert 0 <= held - of_cache * (place % 2) < of_logits / 10, passes
    assert len(passes) == 4
