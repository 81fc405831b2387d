"""The pages written by hand that quote results: no number stands outside of a marker, no verdict differs from the report's, and a reader gets through."""

import json
import re
from pathlib import Path

import pytest

from scripts import articles
from scripts.report import document
from tests import committed

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = (ROOT / "reports/FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

MOST_BYTES = 14_000

#: What may stand in a page without a marker, because it names something and measures nothing.
NAMES = (
    r"\b(?:claims?|recipe|version) \d+(?:\.\d+)?",
    r"\b(?:DeepSpeed|Python|torch|transformers) \d+(?:\.\d+)*",
    r"\bRTX 3090\b",
    r"`20\d\d-\d\d`",  # a stack
    r"\b\d+-core\b",
    r"\b95 %",
    r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|December) 20\d\d\b",
)


def loose_numbers(text):
    """Numbers outside of markers, generated blocks, code blocks, targets of links, code with a letter, names with a letter before the digit, and NAMES."""
    for what in (
        r"^```.*?^```",
        r"<!-- headlines:begin -->.*?<!-- headlines:end -->",
        r"<!-- (?!end)[^>]*-->[^<]*<!-- end -->",
        r"<!--.*?-->",
        r"(?<=\])\([^)]*\)",
        *NAMES,
    ):
        text = re.sub(what, " ", text, flags=re.M | re.S)
    text = re.sub(r"`([^`\n]*)`", lambda code: " " if re.search("[A-Za-z]", code[1]) else code[1], text)
    return re.findall(r"(?<![A-Za-z_\d.,])\d[\d.,]*(?<=\d)", re.sub(r"\b[A-Za-z][\w.-]*\d[\w.-]*", " ", text))


@pytest.mark.parametrize(
    ("sentence", "loose"),
    [
        ("It takes 18.3 ms.", ["18.3"]),
        ("It takes `18.3` ms, 2,048 of them in `float16`.", ["18.3", "2,048"]),
        ("| 3.09 (1.91 to 4.99) |", ["3.09", "1.91", "4.99"]),
        ("A 12-layer model in 3x the time.", ["12", "3"]),
        ("It takes <!-- mean_ms id -->18.3<!-- end --> ms of 20.", ["20"]),
        ("Claims of the H200 in float16, `STACK=hopper-2023-05`, [here](a-2.json): claim 1.1 by version 2, DeepSpeed 0.7.7, in a 16-core host.", []),
    ],
)
def test_a_number_outside_of_a_marker_is_seen(sentence, loose):
    assert loose_numbers(sentence) == loose


def test_every_number_of_the_findings_stands_in_a_marker():
    assert loose_numbers(FINDINGS) == []


def test_the_readme_quotes_no_number_by_hand_but_sizes_that_follow_from_committed_files():
    article = articles.load_all()["inference-tools"]
    image = json.loads((ROOT / "reports/images.json").read_text(encoding="utf-8"))["deepspeed/2023-02"]
    sizes_gb = [2 * article.model["parameters"] / 1e9, sum(image["layers"].values()) / 1e9]
    assert loose_numbers(README) == [f"{sizes_gb[0]:.0f}", f"{sizes_gb[1]:.1f}"]


def test_the_findings_say_the_verdicts_of_the_committed_results():
    judged = document.judged(committed.contained(), articles.load_all()).verdicts
    verdicts = {claim.headline.claim["id"]: claim.headline.verdict.word for of_article in judged.values() for claim in of_article.claims}
    said = re.findall(r"claim (\d\.\d) \*([a-z ]+)\*", FINDINGS)
    assert len(said) >= 8
    assert [(claim, verdicts[claim]) for claim, _ in said] == said


def test_an_engineer_reads_the_findings_in_five_minutes():
    assert len(re.sub(r"<!--.*?-->", "", FINDINGS, flags=re.S).encode()) <= MOST_BYTES


@pytest.mark.parametrize("name", [f"device-map-accelerate-{dtype}-{gpus}" for dtype in ("fp16", "int8") for gpus in (4, 8)])
def test_accelerate_put_the_parts_where_the_instrument_computes_them(name):
    path = ROOT / f"reports/instruments/{name}.json"
    table = json.loads(path.read_text())
    run = json.loads((ROOT / "reports/runs" / table["job"] / "result.json").read_text())
    computed = table["maps"][run["job"]["load"]["device_map"]]["parameters_per_gpu"]
    assert run["guest"]["used"]["parameters_per_device"] == {f"cuda:{gpu}": count for gpu, count in computed.items()}


def test_the_prompts_of_timed_calls_are_as_short_as_the_limits_say():
    """A reader who serves long prompts must not take these rows for an answer."""
    (most,) = re.findall(r"Prompts of timed calls have at most (\d+) tokens", (ROOT / "docs/limits.md").read_text(encoding="utf-8"))
    timed = [run for run in committed.contained() if run.guest and run.guest.measurements and "workload" not in run.guest.figures]
    timed = [run for run in timed if run.job.article != "long-prompts"]  # which the limits name
    padded = [run.guest.figures.get("padded_prompt_tokens", 0) / run.job.prompt["batch_size"] for run in timed]
    assert max(*padded, *(run.guest.prompt_tokens or 0 for run in timed)) == int(most)
