"""What the Markdown pages promise: links that lead somewhere, commands and variables that exist, a README that stays short and names every room."""

import csv
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from scripts import articles, pins
from scripts.commands.line import VERBS, command_line
from scripts.containers import restrictions
from scripts.images import marked_sections
from scripts.pins import shapes
from scripts.report.pages import MARKER
from scripts.run import preflight
from scripts.units import GIB
from tests.chaos.__main__ import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 1200

#: Read from the environment by the library that fetches models; not an option.
OF_THE_HUB = {"HF_TOKEN", "HF_ENDPOINT"}

#: The variables of targets that are no verbs.
OF_NO_VERB = {"chaos": set(VARIABLES)}

#: Folders that a command makes and git does not keep, and the example of docs/adding.md.
NOT_COMMITTED = (
    "reports/demo",
    "reports/trials",
    "reports/site",
    "reports/slurm",
    "reports/runs",
    "reports/without-containers",
    "bench/backends/my_backend.py",
    "archives/",
)


def _pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split()]


PAGES = _pages()
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
WRITTEN_BY_HAND = [page for page in PAGES if not TEXTS[page].startswith(MARKER)]
README = TEXTS[ROOT / "README.md"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def _spelled(heading: str) -> str:
    """A heading as GitHub spells it in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchors(text: str) -> set[str]:
    """The places of a page that a link may name: its headings and its own marks."""
    return set(map(_spelled, re.findall(r"^#+ (.*)$", _without_code(text), re.M))) | set(re.findall(r'<a id="([^"]+)">', text))


def _commands() -> list[str]:
    """Every `make …` in a code block or between backticks of a page that is written by hand."""
    found = set()
    for page in WRITTEN_BY_HAND:
        for command in re.findall(r"(?:^|`)(?:HF_TOKEN=… )?(make [a-z][^`\n#]*)", TEXTS[page], re.M):
            found.add(command.strip())
    return sorted(command for command in found if "…" not in command)


COMMANDS = _commands()


def _targets() -> set[str]:
    rules = re.findall(r"^([a-z][a-z%\- ]*):(?!=)", MAKEFILE, re.M)
    return {target for rule in rules for target in rule.split()}


def _verb_of(target: str) -> tuple[str, list[str]]:
    """(verb, arguments) of a target: `bench-deepspeed` is `bench deepspeed`."""
    stem, _, rest = target.partition("-")
    if target in VERBS or f"{stem}-%" not in _targets():
        return target, []
    return stem, [rest]


def _variables_of(command: click.Command) -> set[str]:
    return {str(parameter.envvar) for parameter in command.params if getattr(parameter, "envvar", None)}


def _every_variable() -> set[str]:
    context = click.Context(command_line)
    commands = [command_line.get_command(context, verb) for verb in VERBS]
    return set().union(*(_variables_of(command) for command in commands if command))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file_and_a_place_that_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(TEXTS[page])):
        if "://" in link:
            continue
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_name(page)}: {link}"
        if place and target in TEXTS:
            assert place in _anchors(TEXTS[target]), f"{_name(page)}: {link}"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_name)
def test_a_list_of_contents_names_every_section_in_its_order(page):
    contents = re.findall(r"^- \[[^\]]+\]\(#([^)]+)\)$", TEXTS[page], re.M)
    assert not contents or contents == [_spelled(heading) for heading in re.findall(r"^## (.*)$", _without_code(TEXTS[page]), re.M)]


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_name)
def test_every_file_named_between_backticks_exists(page):
    for path in re.findall(r"`((?:bench|scripts|tests|docker|docs|reports|\.ci|\.github)/[\w./-]+)[^`]*`", TEXTS[page]):
        assert path.startswith(NOT_COMMITTED) or (ROOT / path).exists() or (page.parent / path).exists(), f"{_name(page)}: {path}"


def test_the_pages_show_the_commands_that_the_kit_is_made_for():
    assert {"make demo", "make test", "make report", "make bench-deepspeed GPUS=2"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_targets_of_the_makefile_and_values_that_its_verb_accepts(command):
    words = command.split()[1:]
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    targets = [word for word in words if "=" not in word]
    for target in targets:
        verb, arguments = _verb_of(target)
        assert target in _targets() or f"{verb}-%" in _targets(), target
        found = command_line.get_command(click.Context(command_line), verb)
        if found is None:
            assert set(settings) <= OF_NO_VERB.get(target, set()), f"{target} is no verb and does not read {settings}"
            continue
        assert set(settings) <= _variables_of(found), f"{verb} does not read {set(settings) - _variables_of(found)}"
        typed = [word for name, value in settings.items() for word in ("--" + name.lower().replace("_", "-"), value)]
        found.make_context(verb, [*arguments, *typed])


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_name)
def test_every_variable_that_a_page_names_is_an_option_of_the_command_line(page):
    code = re.findall(r"^```sh\n(.*?)^```", TEXTS[page], re.M | re.S) + re.findall(r"`([^`\n]+)`", _without_code(TEXTS[page]))
    named = {name for piece in code for name in re.findall(r"(?<![\w-])([A-Z][A-Z_]*)=", piece)}
    assert named - OF_THE_HUB <= _every_variable().union({"PYTHON"}, *OF_NO_VERB.values())


def test_the_tables_of_variables_have_every_variable_of_a_measurement_and_every_other_with_its_values():
    measuring = _variables_of(command_line.get_command(click.Context(command_line), "profile"))
    tables = re.findall(r"^\| variable \| value \| default \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", TEXTS[ROOT / "docs/use.md"], re.M)
    first, others = (re.findall(r"`([A-Z_]+)`(?:, `([A-Z_]+)`)? \| \S", table) for table in tables)
    assert {name for names in first for name in names if name} == measuring
    assert {name for names in others for name in names if name} == _every_variable() - measuring


def test_the_help_names_options_of_bench_alone():
    options = _variables_of(command_line.get_command(click.Context(command_line), "bench"))
    named = set(re.findall(r"\b([A-Z][A-Z_]+)=", MAKEFILE.partition("variables of bench-% and article-%:")[2].partition("\n\n")[0]))
    assert {"GPUS", "STACK", "RUNS"} <= named <= options


def test_the_table_of_other_verbs_has_each_of_their_variables_and_no_other():
    context = click.Context(command_line)
    variables = {verb: _variables_of(command_line.get_command(context, verb)) for verb in VERBS}
    (table,) = re.findall(r"^\| verb \| variables \|\n\|---\|---\|\n((?:\|.*\n)+)", TEXTS[ROOT / "docs/use.md"], re.M)
    lines = [line.strip("| \n").split(" | ") for line in table.splitlines()]
    told = {verb.removesuffix("-…"): set(re.findall(r"`([A-Z_]+)`", names)) for verbs, names in lines for verb in re.findall(r"`([^`]+)`", verbs)}
    assert told.pop("manifest") < variables["manifest"], "the rest is told by reference to bench"
    measuring = {"article", "bench", "calibrate", "instrument", "manifest", "profile"}
    assert told == {verb: names for verb, names in variables.items() if names and verb not in measuring}


def test_the_table_of_instruments_has_every_instrument():
    table = set(re.findall(r"^\| `python -m bench\.instruments\.(\w+) ", TEXTS[ROOT / "docs/method.md"], re.M))
    assert table == {path.stem for path in (ROOT / "bench/instruments").glob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")}


def test_every_verb_that_users_type_is_in_a_page():
    shown = {_verb_of(word)[0] for command in COMMANDS for word in command.split()[1:] if "=" not in word}
    assert set(VERBS) <= shown


def test_the_workflow_and_the_hooks_run_what_is_there():
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8"))
    lines = [line for job in workflow["jobs"].values() for step in job["steps"] for line in step.get("run", "").splitlines()]
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    assert targets and targets <= _targets()
    programs = {word for line in lines for word in line.split() if word.startswith((".ci/", "scripts/"))}
    assert programs and all((ROOT / program).is_file() for program in programs)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    of_check = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)[1]
    assert all(f"-m {hook['entry'].split()[2]} " in of_check for hook in hooks), "a hook runs a tool of make check"


def test_the_readme_is_short():
    """Comments count no words: a reader does not see where a number comes from."""
    assert len(re.sub(r"<!--.*?-->", "", README).split()) <= MOST_WORDS


def test_the_table_of_gpus_names_the_stacks_whose_torch_holds_code_for_each_and_those_whose_deepspeed_does_not():
    stacks = {name: stack for name, stack in pins.load().stacks.items() if stack["engine"] == "docker"}
    rows = re.findall(r"^\| [^|]+ \| (\d+\.\d) \| ([^|]+) \| ([^|]+) \|$", TEXTS[ROOT / "docs/use.md"], re.MULTILINE)
    assert len(rows) == 9
    for capability, told, without_kernels in rows:
        able = {name for name, stack in stacks.items() if preflight.runs_on(capability, tuple(stack["arch_list"]))}
        assert set(re.findall(r"`([^`]+)`", told)) == able, capability
        foreign = {name for name in able if not preflight.runs_on(capability, pins.load().image("deepspeed", name).kernels_arch_list)}
        assert set(re.findall(r"`([^`]+)`", without_kernels)) == foreign, capability


def test_the_ratio_that_a_reader_recomputes_from_the_raw_samples_comes_out_as_the_page_says():
    page = TEXTS[ROOT / "docs/artifact.md"]
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == code.rsplit("# ", 1)[1].strip()
    names: dict[str, Any] = {}
    exec(code.replace("reports/runs", str(ROOT / "reports/runs")), names)
    slower, faster = (statistics.fmean(names["mean_calls_ms"](case)) for case in ("layer-parallel", "deepspeed"))
    assert f"which divide to {slower / faster:.2f}." in page


def test_the_page_for_evaluators_has_a_command_for_each_tested_claim():
    tested = set(re.findall(r"^- [^▼] \[(\d\.\d)\]", (ROOT / "reports/REPORT.md").read_text(encoding="utf-8"), re.MULTILINE))
    page = TEXTS[ROOT / "docs/artifact.md"].split("## Reproduced")[1]
    commands = re.findall(r"CLAIMS=([\d.,]*\d)|# claims ([\d. and]*\d)", page)
    assert tested and tested <= set(re.findall(r"\d\.\d", str(commands)))


def test_the_readme_names_every_room_and_no_other():
    tree = next(block for block in re.findall(r"^```\w*\n(.*?)^```", README, re.M | re.S) if block.startswith("bench/"))
    named, zone = set(), ""
    for line in tree.splitlines():
        room = line.split()[0]
        zone = room if not line.startswith(" ") else zone
        named.add(room if room == zone else zone + room)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [Path(name) for name in listed.splitlines() if not name.startswith(".")]
    top = {f"{path.parts[0]}/" for path in files if len(path.parts) > 1}
    rooms = {f"{path.parts[0]}/{path.parts[1]}/" for path in files if len(path.parts) > 2 and path.parts[0] in ("scripts", "bench")}
    assert named == top | rooms


def test_the_diagrams_boxes_are_rooms():
    boxes = re.findall(r"(\w+)(?= ──►|$)", next(line for line in README.splitlines() if "──►" in line))
    assert boxes == ["pins", "images", "run", "results", "verdicts", "report"]
    assert all((ROOT / "scripts" / box).is_dir() for box in boxes)


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_name)
def test_generated_parts_have_both_markers(page):
    for name in re.findall(r"<!-- (\w+):begin -->", TEXTS[page]):
        begin, end = marked_sections.pair(name)
        assert TEXTS[page].count(begin) == TEXTS[page].count(end) == 1


def test_the_demos_table_names_cases_of_the_demo():
    cases = {case.name for case in articles.find("demo").cases}
    shown = set(re.findall(r"^│ ((?:bloom|gptj|llama)-[a-z0-9-]+)", README, re.M))
    assert shown and shown <= cases


def test_the_example_of_a_backend_has_the_stacks_that_its_commands_name():
    page = TEXTS[ROOT / "docs" / "adding.md"]
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    tables = tomllib.loads((ROOT / "docker" / "pins.toml").read_text(encoding="utf-8") + example)
    shapes.check(tables)
    commands = re.findall(r"make bench-my-backend.*", page)
    assert commands and all(re.findall(r"STACK=(\S+)", command)[0] in tables["backend"]["my-backend"]["stacks"] for command in commands)


def test_an_engine_s_author_reads_how_much_load_may_write():
    assert f"a folder of `tempfile`: in a container at most {restrictions.TMP_BYTES // GIB} GiB" in TEXTS[ROOT / "docs" / "adding.md"]


def test_the_limits_name_each_case_that_has_no_row_in_a_container():
    def measured(place: str) -> set[tuple[str, str]]:
        with (ROOT / place / "results.csv").open(encoding="utf-8", newline="") as stream:
            return {(line["article"], line["case"]) for line in csv.DictReader(stream)}

    def named(cases: set[tuple[str, str]]) -> set[str]:
        """As the page names them: cases of articles with rows, and articles that have none."""
        return {case if article in with_rows else article for article, case in cases}

    (sentence,) = re.findall(r"\*\*Cases without a row in a container\.\*\* (.*)", TEXTS[ROOT / "docs" / "limits.md"])
    alone, separator, none = sentence.rpartition("rows without containers alone;")
    outside, nowhere = (set(re.findall(r"`([a-z0-9-]+)`", part)) for part in (alone if separator else "", none))
    with_rows = {article for article, _ in measured("reports")}
    cases = {(name, case.name) for name, article in articles.load_all().items() if name not in ("demo", "calibration") for case in article.cases}
    assert outside == named((cases - measured("reports")) & measured("reports/without-containers"))
    assert nowhere == named(cases - measured("reports") - measured("reports/without-containers"))
