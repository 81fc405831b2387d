"""The kit's version stands in one place, and everything that carries it agrees."""

import re
import types
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from scripts import __version__
from scripts.commands.line import command_line
from scripts.results import rules_version, shapes
from scripts.run import host_facts
from tests import synthetic

ROOT = Path(__file__).resolve().parents[2]


def test_the_command_line_prints_it():
    assert CliRunner().invoke(command_line, ["--version"]).output.strip() == __version__


def test_the_citation_carries_it():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__


def test_the_changelog_begins_with_it():
    releases = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert releases[0] == __version__


@pytest.mark.parametrize(("facts", "recipe", "version"), [({}, 1, 1), ({}, 2, 2), ({"rules_version": 3}, 2, 3), ({"rules_version": 2}, 1, 2)])
def test_a_result_without_the_number_of_the_rules_counts_by_the_recipe_of_its_weights(facts, recipe, version):
    run = synthetic.record(synthetic.job("int8", recipe=recipe), 50.0)
    run.host.update(facts)
    assert rules_version.first_judged_by(run) == version


def test_a_result_carries_it_and_is_still_read():
    engine = types.SimpleNamespace(differences=lambda result: [])
    outcome = types.SimpleNamespace(started_at=0.0, finished_at=1.0, oom_killed=False)
    sampler = types.SimpleNamespace(summary=lambda phases: [])
    facts = host_facts.at_end(engine, outcome, None, sampler, ran_s=1.5, judge_s=0.5)
    assert facts["kit_version"] == __version__ and facts["rules_version"] == rules_version.VERSION
    shapes.check({"engine": "host", **facts}, shapes.Host)
