"""The third article's forms on a tiny Llama: the same answers in every form, padding, workloads that survive kill -9."""

import dataclasses
import itertools
import json
import os
import random
import re
import signal
import time

import pytest

from bench.forms import arrivals
from bench.job import parse_result, to_json
from bench.measuring import answers_file
from scripts import articles
from scripts.results import answers as answers_of_host
from tests.guest.conftest import Guest
from tests.guest.samples import tiny_job
from tests.unit.test_arrivals import TIMES_S

ARTICLE = articles.find("batch-generate")
GREEDY = {"do_sample": False}


def job(checkpoints, form, batch_size=1, new_tokens=6, run=None, **options):
    """A job of this article as its file asks for it, with few new tokens."""
    given = {**ARTICLE.options, "texts": "prompt", "prompt_tokens": {"median": 12, "sigma": 0.5, "least": 4, "most": 30}, **options}
    return tiny_job(
        "llama",
        checkpoints["llama"],
        article="batch-generate",
        form=form,
        options=given,
        warmup_runs=0,
        timed_runs=2,
        prompt={"text": ARTICLE.prompt["text"], "tokens": None, "batch_size": batch_size},
        runs=[run or {"new_tokens": new_tokens, "arguments": GREEDY}],
    )


@pytest.fixture(scope="module")
def answer(python, checkpoints, tmp_path_factory):
    """Plain transformers' answer to the article's prompt."""
    folder = tmp_path_factory.mktemp("answer")
    path = str(folder / "reference.npz")
    asked = job(checkpoints, "generate")
    result = Guest(python, folder).run(dataclasses.replace(asked, kind="reference", reference=path, options={}))
    assert result.status == "ok", result.reason
    return path


@pytest.mark.parametrize(("form", "batch_size"), [("transformers-pipeline", 1), ("batch", 1), ("batch", 3)])
def test_every_form_makes_the_same_tokens_as_generate_itself(either, checkpoints, answer, form, batch_size):
    result = either.run(dataclasses.replace(job(checkpoints, form, batch_size), reference=answer))
    assert result.status == "ok", result.reason
    assert result.check["passed"] and result.check["greedy_common_prefix_tokens"] == result.check["greedy_tokens"] == 6
    assert result.figures["calls"] == [{"new_tokens": 6, "timed_tokens": [6 * batch_size] * 2}]
    assert result.figures["prompt_tokens"] == result.figures["padded_prompt_tokens"] == 28 * batch_size


def test_the_chat_template_is_the_articles_in_a_tokenizer_that_has_none(either, checkpoints):
    result = either.run(job(checkpoints, "batch", templated=True))
    tokens = len("user") + len("assistant") + 2 * len("\n\n") + len(ARTICLE.prompt["text"]) + 6  # a byte is a token, a special token is one
    assert result.status == "ok" and result.figures["prompt_tokens"] == tokens


def test_a_sampled_answer_may_end_sooner_and_its_tokens_are_counted(guest, checkpoints):
    ends = [chr(byte) for byte in range(33, 127)]
    result = guest.run(
        job(checkpoints, "batch", 8, run={"new_tokens": 40, "up_to": True, "arguments": {"do_sample": True}}, texts="workload", terminators=ends)
    )
    assert result.status == "ok", result.reason
    (calls,) = result.figures["calls"]
    assert all(8 <= made < 8 * 40 for made in calls["timed_tokens"])
    assert result.figures["padded_prompt_tokens"] > result.figures["prompt_tokens"] > 0


def test_in_float32_left_padding_changes_nothing_and_right_padding_does(either, checkpoints):
    result = either.run(job(checkpoints, "padding", rows=8, templated=True, new_tokens=24))
    assert result.status == "ok", result.reason
    found = result.figures["padding"]
    padded = [place for place, tokens in enumerate(found["prompt_tokens"]) if tokens < max(found["prompt_tokens"])]
    assert len(padded) >= 6
    assert found["left"]["first_different_token"] == [None] * 8
    assert max(found["left"]["logits_relative_error"]) < 1e-5
    assert min(found["right"]["logits_relative_error"][place] for place in padded) > 0.1
    assert sum(found["right"]["first_different_token"][place] is not None for place in padded) >= len(padded) // 2


def workload(checkpoints, form="workload", **options):
    batch_size = options.pop("batch_size", 4)
    lengths = {"median": 3, "sigma": 0.8, "least": 1, "most": 6}
    return job(
        checkpoints,
        form,
        batch_size,
        options.pop("new_tokens", 6),
        **{"order": "naive", "attention": "paged|sdpa", "items": 22, "answer_tokens": lengths, "terminators": [], **options},
    )


def lines_of(folder):
    """The lines of the file that a job left, without its head."""
    return [json.loads(line) for line in (folder / answers_file.NAME).read_text().splitlines()][1:]


def answers_of(folder):
    """{number: (new tokens, text)} of the file that a job left; every item is there once."""
    items = [item for line in lines_of(folder) for item in line["items"]]
    assert len({number for number, *_ in items}) == len(items)
    return {number: tuple(rest) for number, *rest in items}


def test_static_and_continuous_batches_give_each_text_the_same_answer(guest, checkpoints, tmp_path):
    found = {}
    for name, asked in {
        "naive": workload(checkpoints),
        "sorted": workload(checkpoints, order="sorted"),
        "one": workload(checkpoints, batch_size=1),
        "continuous": workload(checkpoints, "continuous"),
        "continuous, all at once": workload(checkpoints, "continuous", batch_size=32),
    }.items():
        result = guest.run(asked)
        assert result.status == "ok", result.reason
        found[name] = answers_of(tmp_path), result.figures["workload"]
        (tmp_path / answers_file.NAME).unlink()
    answers = found["one"][0]
    assert sorted(answers) == list(range(22)) and len({made for made, _ in answers.values()}) > 2
    assert all(other == answers for other, _ in found.values())
    facts = {name: one for name, (_, one) in found.items()}
    assert {one["new_tokens"] for one in facts.values()} == {sum(made for made, _ in answers.values())}
    assert {one["prompt_tokens"] for one in facts.values()} == {facts["one"]["padded_prompt_tokens"]}
    assert facts["naive"]["padded_prompt_tokens"] > facts["sorted"]["padded_prompt_tokens"] > facts["one"]["padded_prompt_tokens"]
    assert facts["naive"]["decode_rows"] > facts["one"]["decode_rows"] == facts["continuous"]["decode_rows"]


def test_texts_that_arrive_over_time_get_the_same_answers_and_each_has_its_latency(guest, checkpoints, tmp_path):
    all_at_once = guest.run(workload(checkpoints))
    answers = answers_of(tmp_path)
    (tmp_path / answers_file.NAME).unlink()
    asked = workload(checkpoints, arrivals_per_s=500)  # several in the time of a call
    result = guest.run(asked)
    assert (all_at_once.status, result.status) == ("ok", "ok"), result.reason
    assert answers_of(tmp_path) == answers and "latency" not in all_at_once.figures
    figure, lines, arrive_s = result.figures["latency"], lines_of(tmp_path), arrivals.times_s(asked)
    latency_ms = {item[0]: ms for line in lines for item, ms in zip(line["items"], line["latency_ms"], strict=True)}
    assert sorted(latency_ms) == list(range(22)) and min(latency_ms.values()) > 0 and figure["longest_ms"] == max(latency_ms.values())
    ended_s = list(itertools.accumulate(line["ms"] / 1000 for line in lines))
    for line, began_s, now_s in zip(lines, [0.0, *ended_s], ended_s, strict=False):
        batch = [item[0] for item in line["items"]]
        assert len(batch) <= 4 and [arrive_s[number] + latency_ms[number] / 1000 for number in batch] == pytest.approx([now_s] * len(batch))
        assert all(arrive_s[number] < now_s for number in batch)
        left = arrive_s[batch[-1] + 1 :]
        assert len(batch) == 4 or not left or left[0] > began_s, "who was there when the batch before had ended waits for no other batch"
    assert max(len(line["items"]) for line in lines) > 1
    assert figure["offered_s"] == arrive_s[-1] < figure["finished_s"] == pytest.approx(result.figures["workload"]["seconds"])
    assert answers_of_host.contradiction(asked, result) == ""


def test_a_load_is_the_same_for_the_same_seed_in_every_python(either, checkpoints, tmp_path):
    (tmp_path / "job.json").write_text(to_json(workload(checkpoints, arrivals_per_s=4)))
    code = "import json; from bench import job; from bench.forms import arrivals; print(json.dumps(arrivals.times_s(job.parse_job(open({!r}).read()))[:3]))"
    assert either.code(code.format(str(tmp_path / "job.json"))) == pytest.approx(TIMES_S, abs=1e-6)


def test_no_answer_of_a_workload_is_longer_than_the_run_allows(guest, checkpoints, tmp_path):
    for form in ("workload", "continuous"):
        result = guest.run(workload(checkpoints, form, new_tokens=2))
        assert result.status == "ok", result.reason
        assert {made for made, _ in answers_of(tmp_path).values()} == {1, 2}
        (tmp_path / answers_file.NAME).unlink()


OTHERWISE = """
import json
from bench.__main__ import run
from bench.forms import continuous
from bench.job import parse_job
real = continuous._answers

def answers(manager, count):
    for output in real(manager, count):
        output.generated_tokens = {change}
        yield output

continuous._answers = answers
result = run(parse_job({text!r}), {folder!r})
print(json.dumps([result.status, result.reason]))
"""


@pytest.mark.parametrize(
    ("change", "said"), [("output.generated_tokens * 9", "new tokens, 1 to "), ("output.generated_tokens[:-1]", "0 new tokens, 1 to |and no end token, ")]
)
def test_a_library_that_answers_a_text_otherwise_than_asked_fails_the_run(guest, checkpoints, tmp_path, change, said):
    code = OTHERWISE.format(change=change, text=to_json(workload(checkpoints, "continuous")), folder=str(tmp_path))
    status, reason = guest.code(code)
    assert status == "failed" and re.search(r"RuntimeError: item \d+ came with .*(" + said + r")\d", reason), reason


def test_a_workload_is_the_same_for_the_same_seed_in_every_python(either, checkpoints, tmp_path):
    (tmp_path / "job.json").write_text(to_json(workload(checkpoints)))
    code = (
        "import json; from bench import job; from bench.models import texts; asked = job.parse_job(open({!r}).read()); "
        "print(json.dumps([[item.text, item.new_tokens] for item in texts.workload(asked, texts.tokenizer_of(asked), 3)]))"
    ).format(str(tmp_path / "job.json"))
    assert either.code(code) == WORKLOAD


#: So that the same seed is the same workload in every release of the kit.
WORKLOAD = [["river crosses", 3], ["runs bright", 6], ["child window", 5]]


def test_continuous_batching_of_an_older_transformers_is_unsupported_with_its_reason(python_tensor_parallel, checkpoints, tmp_path):
    result = Guest(python_tensor_parallel, tmp_path).run(workload(checkpoints, "continuous"))
    assert result.status == "unsupported" and "4.43.4" in result.reason


def lines_in(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize(
    ("form", "items", "batch_size", "kills"),
    [
        ("workload", 600, 16, 2),
        ("continuous", 2_000, 16, 2),
        pytest.param("workload", 10_000, 128, 3, marks=pytest.mark.full),
        pytest.param("continuous", 4_000, 128, 2, marks=pytest.mark.full),
    ],
)
def test_kill_9_at_any_moment_loses_no_item_and_repeats_none(guest, checkpoints, tmp_path, form, items, batch_size, kills):
    tokens = {"median": 2, "sigma": 0.5, "least": 1, "most": 3}
    asked = workload(
        checkpoints, form, items=items, batch_size=batch_size, answer_tokens=tokens, prompt_tokens={"median": 5, "sigma": 0.3, "least": 4, "most": 8}
    )
    (tmp_path / "job.json").write_text(to_json(asked))
    command = ("-m", "bench", str(tmp_path / "job.json"), str(tmp_path / "result.json"))
    draw, reached = random.Random(), []
    for _ in range(kills):
        process = guest.start(*command)
        deadline = time.monotonic() + 120
        wanted = lines_in(tmp_path / answers_file.NAME) + draw.randint(1, 4)
        while lines_in(tmp_path / answers_file.NAME) < wanted and process.running() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.2))
        assert process.running(), "it ended before it could be killed: the test needs more items"
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait().returncode == -signal.SIGKILL
        reached.append(lines_in(tmp_path / answers_file.NAME))
    assert all(one <= other for one, other in itertools.pairwise(reached)) and reached[-1] > 1
    with (tmp_path / answers_file.NAME).open("ab") as stream:
        stream.write(b'{"ms": 1.0, "items": [[0, 1, "torn')  # the worst moment of all
    done = guest.command(*command)
    result = parse_result((tmp_path / "result.json").read_text())
    assert result.status == "ok", done.stderr
    assert sorted(answers_of(tmp_path)) == list(range(items))
    assert result.figures["workload"]["items"] == items and result.figures["workload"]["resumed"] is True
    assert len(result.measurements[0]["timed_ms"]) == lines_in(tmp_path / answers_file.NAME) - 1
