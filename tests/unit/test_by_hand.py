"""Pages of a bundle that somebody wrote: a reader's browser runs nothing of them."""

from pathlib import Path

import pytest

from scripts.paths import ROOT
from scripts.share import by_hand


def told(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "FINDINGS.md").write_text(text)
    return list(by_hand.problems(tmp_path))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("<script src=x>", "line 2 has markup, '<script"),
        ("a <img src=x onerror=alert(1)> b", "markup, '<img"),
        ("<!DOCTYPE html>", "markup"),
        ("<javascript:alert(1)>", "markup"),
        ("[one](https://example.org) [two](javascript:alert(1))", "a link to 'javascript:alert(1'"),
        ("[one](java&#115;cript:alert)", "a link to 'java&#115;cript:alert'"),
        ("[one](javascript&colon;alert)", "a link"),
        ("[one]: data:text/html,x", "a link to 'data:text/html,x'"),
        ("> [one]: vbscript:x", "a link to 'vbscript:x'"),
    ],
)
def test_what_a_browser_would_run_is_told_with_its_line(tmp_path, line, why):
    (problem,) = told(tmp_path, f"# Findings\n{line}\n")
    assert problem.startswith("reports/FINDINGS.md: line 2 has ") and why in problem


@pytest.mark.parametrize("text", ["[one](\n  javascript:alert)", "[one]:\n  javascript:alert"])
def test_a_target_on_the_next_line_is_told_there(tmp_path, text):
    (problem,) = told(tmp_path, text)
    assert "line 2 has a link to 'javascript:alert'" in problem


def test_text_numbers_and_links_are_fine(tmp_path):
    assert told(tmp_path, "1 < 2, a<5\n<!-- ratio a b -->1.2<!-- end -->\n[a](REPORT.md#x) [b](https://example.org/?a=1&b=2)\n[c]: docs/a.md\n") == []


def test_the_kits_own_pages_have_none():
    assert list(by_hand.problems(ROOT)) == []
