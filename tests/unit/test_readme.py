"""The README promises commands and links: they exist."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ABOUT_IMAGES = (ROOT / "docker/README.md").read_text(encoding="utf-8")

#: Every `make …` in a code block or between backticks.
COMMANDS = sorted(set(re.findall(r"(?:^|`)((?:HF_TOKEN=… )?make [a-z][^`\n#…]*)", README + ABOUT_IMAGES, re.M)))


def test_there_are_commands_to_check():
    assert {"make demo", "make test", "make report"} <= {command.strip() for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_is_one_that_make_knows(command):
    words = command.replace("HF_TOKEN=… ", "").split()[1:]
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_lead_to_files_that_are_there():
    links = [link for link in re.findall(r"\]\(([^)#:]+)\)", README)]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_links_of_the_images_page_lead_to_files_that_are_there():
    for link in re.findall(r"\]\(([^)#:]+)\)", ABOUT_IMAGES):
        assert (ROOT / "docker" / link).exists(), link


def test_the_demos_table_in_the_readme_names_what_the_demo_runs():
    from scripts import articles

    cases = {case.name for case in articles.find("demo").cases}
    shown = set(re.findall(r"^│ ((?:bloom|gptj|llama)-[a-z0-9-]+)", README, re.M))
    assert shown and shown <= cases
