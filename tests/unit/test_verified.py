"""make verify-bundle: what was changed in a bundle is named, although its checksums were made anew; and what nobody can see is said."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import surroundings
from scripts.errors import KitError, UsageError
from scripts.machine import checksums
from scripts.share import BUNDLE, bundle, verified
from tests.unit import bundles

pytestmark = pytest.mark.slow  # each check writes a report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "a.tar.gz"
    bundle.write(path, bundles.make_kit(tmp_path_factory.mktemp("kit")))
    return path


@pytest.fixture
def unpacked(packed: Path, tmp_path: Path) -> Path:
    return bundles.unpack(packed, tmp_path)


def refused(folder: Path) -> str:
    """What is said of a bundle that is packed from a folder."""
    with pytest.raises(KitError) as told:
        verified.verify(bundles.repack(folder, folder.parent / "bad.tar.gz"))
    return str(told.value)


def a_run(folder: Path) -> Path:
    return sorted(folder.glob("reports/runs/*"))[0]


def test_a_good_bundle_passes_and_the_words_say_what_was_not_checked(packed: Path) -> None:
    said = "\n".join(verified.verify(packed))
    assert (
        "checked: 4 results, each with its job" in said
        and " pages of the reports, " in said
        and "plots, the README's headlines and the numbers quoted in pages come out of these results" in said
    )
    pins_told = r"(\d+) name differences from their pins and (\d+) are of other pins than the bundle's"
    assert re.search(f"^checked: of these 4 runs, {pins_told}; of the 3 in reports/runs that a verdict may rest on, {pins_told}$", said, re.M)
    assert re.search(r"^not checked: \d{2,} numbers quoted in pages, of runs or files that the bundle does not hold$", said, re.M), "it holds few of the runs"
    assert "not checked: who made the bundle" in said and "not checked: whether the runs took place" in said


def test_the_verdict_is_one_line_for_a_program(packed: Path, unpacked: Path, tmp_path: Path) -> None:
    def asked(path: Path) -> tuple[int, dict]:
        done = subprocess.run(
            [sys.executable, "-m", "scripts", "verify-bundle", "--bundle", path, "--format", "json"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.stdout.count("\n") == 1, done.stderr
        return done.returncode, json.loads(done.stdout)

    code, told = asked(packed)
    assert (code, told["passed"], told["problems"], told["runs"]["ok"]) == (0, True, [], 4) and told["sha256"] == checksums.digest_of(packed)
    assert any("made the bundle" in line for line in told["not_checked"])
    (unpacked / "compose.yaml").unlink()
    code, told = asked(bundles.repack(unpacked, tmp_path / "bad.tar.gz"))
    assert (code, told["passed"], told["problems"], told["checked"]) == (1, False, ["compose.yaml: missing"], [])


def test_a_changed_an_added_and_a_missing_file_are_named(unpacked: Path) -> None:
    changed = a_run(unpacked) / "result.json"
    changed.write_text(changed.read_text().replace('"timed_ms"', '"timed_ms" '))
    (unpacked / "docs/extra.md").write_text("extra")
    (unpacked / "compose.yaml").unlink()
    assert refused(unpacked).splitlines()[1:] == [
        "  compose.yaml: missing",
        "  docs/extra.md: not in SHA256SUMS",
        f"  {changed.relative_to(unpacked)}: another content than SHA256SUMS says",
    ]


def halve_times(folder: Path) -> str:
    """Results that are twice as fast, beside a report that is not of them, and an article that the kit does not know."""
    with (folder / "bench/articles/inference-tools.toml").open("a") as stream:
        stream.write("# a comment\n")
    for path in folder.glob("reports/runs/*/result.json"):
        text = path.read_text()
        for times in re.findall(r'"timed_ms": *\[([^\]]*)\]', text):
            text = text.replace(times, ", ".join(str(float(time) / 2) for time in times.split(",")))
        path.write_text(text)
    return "reports/article-inference-tools.md: differs from what the runs give"


def another_report(folder: Path) -> str:
    with (folder / "bench/articles/inference-tools.toml").open("a") as stream:
        stream.write("# a comment\n")
    (folder / "reports/REPORT.md").write_text("# All claims are reproduced\n")
    return "reports/REPORT.md: differs from what the runs give"


def another_page(folder: Path, report: str = "reports") -> str:
    path = sorted((folder / report).glob("*-environment.md"))[0]
    path.write_text(path.read_text().replace("- Driver: ", "- Driver: 1"))
    return f"{path.relative_to(folder)}: differs from what the runs give"


def another_page_of_runs_without_containers(folder: Path) -> str:
    return another_page(folder, "reports/without-containers")


def an_extra_page(folder: Path) -> str:
    (folder / "reports/article-of-nothing.md").write_text("# All claims hold\n")
    return "reports/article-of-nothing.md: does not follow from the runs"


def another_plot(folder: Path) -> str:
    first, second = sorted(folder.glob("reports/plots/*.svg"))[:2]
    shutil.copyfile(first, second)
    return f"{second.relative_to(folder)}: differs from what the runs give"


def an_extra_plot(folder: Path) -> str:
    (folder / "reports/plots/of-nothing.svg").write_text("<svg/>")
    return "reports/plots/of-nothing.svg: does not follow from the runs"


def other_headlines(folder: Path) -> str:
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("| not tested |", "| **holds** |"))
    return "README.md: differs from what the runs give"


def a_run_less(folder: Path) -> str:
    shutil.rmtree(a_run(folder))
    return "reports/REPORT.md: differs from what the runs give"


def garbage_in_a_job(folder: Path) -> str:
    (a_run(folder) / "job.json").write_text("garbage")
    return f"reports/runs/{a_run(folder).name}/job.json: another job than that of result.json"


def another_job(folder: Path) -> str:
    path = a_run(folder) / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"device_count": 8}))
    return f"reports/runs/{a_run(folder).name}/job.json: another job than that of result.json"


def a_job_with_a_key_twice(folder: Path) -> str:
    path = a_run(folder) / "job.json"
    path.write_text(path.read_text().replace("{", '{\n "device_count": 8,', 1))
    return f"reports/runs/{a_run(folder).name}/job.json: another job than that of result.json"


def a_result_with_a_key_twice(folder: Path) -> str:
    path = sorted(folder.glob("reports/runs/*/result.json"))[1]
    path.write_text(path.read_text().replace('"status": ', '"status": "failed", "status": ', 1))
    return f"reports/runs/{path.parent.name}: damaged result.json: the key 'status' comes twice"


def a_job_with_true_for_one(folder: Path) -> str:
    path = a_run(folder) / "job.json"
    path.write_text(path.read_text().replace('"device_count": 1', '"device_count": true'))
    return f"reports/runs/{a_run(folder).name}/job.json: another job than that of result.json"


def a_warm_up_less(folder: Path) -> str:
    path = a_run(folder) / "result.json"
    told = json.loads(path.read_text())
    asked = counts_of(told)
    told["guest"]["measurements"][0]["warmup_ms"].pop()
    made = counts_of(told)
    path.write_text(json.dumps(told))
    return f"reports/runs/{a_run(folder).name}: (new tokens, warm-up calls, timed calls) are {made}, asked for were {asked}"


def counts_of(told: dict) -> list[tuple[int, int, int]]:
    """(new tokens, warm-up calls, timed calls) of each series of a result."""
    return [(calls["new_tokens"], len(calls["warmup_ms"]), len(calls["timed_ms"])) for calls in told["guest"]["measurements"]]


def a_failed_action(folder: Path) -> str:
    path = folder / "ro-crate-metadata.json"
    path.write_text(path.read_text().replace("CompletedActionStatus", "FailedActionStatus"))
    return "ro-crate-metadata.json: differs from what the runs give"


def a_site(folder: Path) -> str:
    (folder / "reports/site").mkdir()
    (folder / "reports/site/index.html").write_text("<script>alert(1)</script>")
    return "reports/site/index.html: a file that no bundle holds"


def a_repository(folder: Path, place: str = ".git") -> str:
    (folder / place).mkdir()
    (folder / place / "config").write_text("[core]\nfsmonitor = evil\n")
    return f"{place}/config: a file that no bundle holds"


def a_repository_among_the_docs(folder: Path) -> str:
    return a_repository(folder, "docs/.git")


def no_job(folder: Path) -> str:
    (a_run(folder) / "job.json").unlink()
    return f"reports/runs/{a_run(folder).name}/job.json: missing"


def no_pins(folder: Path) -> str:
    (folder / "docker/pins.toml").unlink()
    return "docker/pins.toml: a bundle needs this file"


def a_mistake_in_an_article(folder: Path) -> str:
    (folder / "bench/articles/inference-tools.toml").write_text("slug = ")
    place = "bench/articles/inference-tools.toml: not TOML: Invalid value (at end of document)"
    return f"reports/REPORT.md: not checked because it cannot be made from the bundle's data: {place}"


def a_lock_less(folder: Path) -> str:
    (folder / "docker/deepspeed/2023-02/requirements.txt").unlink()
    return "docker/deepspeed/2023-02/requirements.txt: a bundle needs this lock"


def no_runs(folder: Path) -> str:
    shutil.rmtree(folder / "reports/runs")
    return "reports/runs/*/result.json: a bundle needs at least one file of this name"


Change = Callable[[Path], str]

OF_THE_REPORT: list[Change] = [
    another_page,
    another_page_of_runs_without_containers,
    an_extra_page,
    another_plot,
    an_extra_plot,
    other_headlines,
    another_job,
    a_failed_action,
    a_site,
    a_repository,
    a_repository_among_the_docs,
]
OF_RUNS: list[Change] = [another_report, a_warm_up_less, a_job_with_a_key_twice, a_result_with_a_key_twice]
OF_NEEDED: list[Change] = [a_lock_less, no_runs]
TOGETHER = (OF_THE_REPORT, OF_RUNS, OF_NEEDED)
ALONE: list[Change] = [halve_times, a_run_less, no_job]
OTHERS: list[Change] = [no_pins, a_mistake_in_an_article, garbage_in_a_job, a_job_with_true_for_one]


@pytest.mark.parametrize(
    "changes",
    [*TOGETHER, *([change] for change in ALONE), *(pytest.param([change], marks=pytest.mark.full) for change in [*itertools.chain(*TOGETHER), *OTHERS])],
    ids=lambda changes: changes[0].__name__ + (" and others" if len(changes) > 1 else ""),
)
def test_each_change_with_checksums_made_anew_is_named(unpacked: Path, changes: list[Change]) -> None:
    named = [change(unpacked) for change in changes]
    bundles.sum_anew(unpacked)
    said = refused(unpacked).splitlines()
    assert {f"  {line}" for line in named} <= set(said)


def test_an_archive_of_nothing_but_an_empty_list_of_checksums_is_no_bundle(tmp_path: Path) -> None:
    folder = tmp_path / BUNDLE
    folder.mkdir()
    (folder / checksums.NAME).write_text("")
    said = refused(folder)
    assert all(f"{name}: a bundle needs this file" in said for name in verified.NEEDED)


@pytest.mark.parametrize("name", [checksums.NAME, "docker/pins.toml", "reports/runs/a-01/job.json"])
def test_a_file_that_would_take_gigabytes_to_read_is_named_and_not_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / BUNDLE
    (folder / name).parent.mkdir(parents=True)
    with (folder / name).open("wb") as stream:
        stream.truncate(verified.LARGEST_READ_BYTES + 1)
    assert refused(folder).splitlines()[1:] == [f"  {name}: has 67,108,865 bytes; 67,108,864 are allowed"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{'0' * 64}  ../outside", "names '../outside', allowed are places within the folder"),
        (f"{'0' * 64}  /etc/passwd", "names '/etc/passwd', allowed are"),
        (f"{'0' * 64}  docs/./use.md", "allowed are places within the folder"),
        (f"{'0' * 64}  LICENSE", "names 'LICENSE' a second time"),
        ("no checksum", "is no checksum with a file's name"),
    ],
)
def test_a_line_of_checksums_that_is_no_such_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    folder = tmp_path / BUNDLE  # of one file: nothing else of it is looked at
    folder.mkdir()
    (folder / "LICENSE").write_text("as it is")
    bundles.sum_anew(folder)
    with (folder / checksums.NAME).open("a") as stream:
        stream.write(line + "\n")
    said = refused(folder)
    assert "SHA256SUMS: damaged: line " in said and words in said


def test_a_folder_beside_that_of_the_bundle_is_named(unpacked: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(unpacked, BUNDLE)
        archive.add(unpacked / "docs", "extra")
    with pytest.raises(KitError, match="bad.tar.gz failed these checks:\n  extra: beside the folder llm-repro-bundle"):
        verified.verify(path)


QUOTING = ["docs/limits.md", "docs/method.md", "docs/readings.md", "reports/FINDINGS.md"]


@pytest.mark.parametrize("pages", [QUOTING, *(pytest.param([page], marks=pytest.mark.full) for page in QUOTING)], ids=" ".join)
def test_a_quoted_number_that_no_result_gives_is_named(unpacked: Path, pages: list[str]) -> None:
    for page in pages:
        with (unpacked / page).open("a") as stream:
            stream.write("<!-- value bench/articles/inference-tools.toml prompt/tokens decimals=0 -->7777<!-- end -->\n")
    bundles.sum_anew(unpacked)
    said = refused(unpacked)
    assert [page for page in pages if f"{page}: " not in said] == []


def hostile(folder: Path, places: tuple[str, ...], ran: Path) -> None:
    """Code at these places of a bundle, which leaves a file in `ran` if it runs."""
    ran.mkdir()
    for number, place in enumerate(places):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text(f"open({str(ran / str(number))!r}, 'w')")
    bundles.sum_anew(folder)


@pytest.fixture(scope="module")
def with_code(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[verified.Verdict, Path]:
    """The verdict on a bundle with another article and with code where a bundle has files, checked by somebody who typed a price; where the code leaves
    its files.
    """
    folder = tmp_path_factory.mktemp("with-code")
    unpacked, ran = bundles.unpack(packed, folder), folder / "ran"
    with (unpacked / "bench/articles/inference-tools.toml").open("a") as stream:
        stream.write("# a comment\n")
    with (unpacked / "docker/deepspeed/2023-02/requirements.txt").open("a") as stream:
        stream.write("# another lock\n")
    hostile(unpacked, ("bench/job.py", "bench/sitecustomize.py", "scripts/requirements/stats.py", "docker/__init__.py", "docker/json.so"), ran)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COST_PER_GPU_HOUR", "2.5")
        patched.setattr(surroundings, "current", lambda: surroundings.Surroundings(os.environ))
        return verified.verdict(bundles.repack(unpacked, folder / "with-code.tar.gz")), ran


def test_no_code_of_a_bundle_runs(with_code: tuple[verified.Verdict, Path]) -> None:
    assert not list(with_code[1].iterdir())


def test_another_article_than_the_kit_s_is_rebuilt_with_and_named(with_code: tuple[verified.Verdict, Path]) -> None:
    told = next(line for line in with_code[0].checked if line.startswith("not checked: the bundle's articles and pins differ from this kit's in "))
    assert "bench/articles/inference-tools.toml" in told


def test_a_lock_that_differs_from_the_kit_s_is_named(with_code: tuple[verified.Verdict, Path]) -> None:
    told = next(line for line in with_code[0].checked if line.startswith("not checked: the bundle's articles and pins differ"))
    assert "docker/deepspeed/2023-02/requirements.txt" in told


def test_a_price_of_this_shell_is_no_part_of_a_bundle_s_report(with_code: tuple[verified.Verdict, Path]) -> None:
    assert with_code[0].problems == []


def test_code_where_no_bundle_has_files_is_refused_and_does_not_run(unpacked: Path, tmp_path: Path) -> None:
    places = ("scripts/stats.py", "click.py", "json.so", "reports/json.py")
    hostile(unpacked, places, tmp_path / "ran")
    said = refused(unpacked)
    assert all(f"{place}: a file that no bundle holds" in said for place in places)
    assert not list((tmp_path / "ran").iterdir())


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("README.md", "is no .tar.gz, allowed is an archive"),
        ("folder", "is a folder, allowed is"),
        ("README.md/x", "is no file"),
        ("none", "is no file"),
        ("pipe", "is no file"),
    ],
)
def test_what_is_no_archive_is_a_wrong_value(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "README.md").write_text("# The kit")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=f"BUNDLE is '.*{name}', which {fault}.*; type make bundle, .*BUNDLE="):
        verified.verdict(tmp_path / name)


def test_what_is_no_bundle_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="BUNDLE is .* no file"):
        verified.verify(tmp_path / "none.tar.gz")
    (tmp_path / "broken.tar.gz").write_bytes(verified.GZIP + b"no archive")
    with pytest.raises(KitError, match="cannot be unpacked"):
        verified.verify(tmp_path / "broken.tar.gz")


def test_a_signature_as_the_docs_show_it_tells_a_bundle_from_a_changed_one(tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("NOT TESTED: no ssh-keygen on this machine; install openssh-client")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    shown = re.search(r"^## Signing a bundle\n.*?^```sh\n(.*?)^```", (ROOT / "docs/use.md").read_text(), re.M | re.S)
    commands = [
        line.partition("  #")[0].replace("~/.ssh/id_ed25519", "key") for line in shown[1].splitlines() if "ssh-keygen" in line or "allowed_signers" in line
    ]
    path = tmp_path / f"{BUNDLE}.tar.gz"
    path.write_bytes(b"a bundle")
    for command in commands:
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    path.write_bytes(b"another one")
    assert subprocess.run(commands[-1], shell=True, cwd=tmp_path, capture_output=True).returncode != 0
