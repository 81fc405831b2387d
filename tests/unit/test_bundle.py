"""make bundle: what an evaluator downloads is what was measured."""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.errors import KitError
from scripts.machine import checksums
from scripts.share import BUNDLE, bundle
from tests.unit import bundles

pytestmark = pytest.mark.slow  # each bundle writes a report, each check another

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    return bundles.make_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture(scope="module")
def packed(kit, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "a.tar.gz"
    bundle.write(path, kit)
    return path


def test_the_same_files_give_the_same_archive_which_is_a_good_one(kit, packed, tmp_path):
    bundle.write(tmp_path / "b.tar.gz", kit)
    assert (tmp_path / "b.tar.gz").read_bytes() == packed.read_bytes()
    assert packed.read_bytes()[3] == 0, "no name of a file in its header"
    with tarfile.open(packed) as archive:
        assert {(one.mode, one.uid, one.gid, one.uname, one.gname, one.mtime) for one in archive} == {(0o644, 0, 0, "", "", 0)}


def command(*arguments, **typed):
    kept = {name: value for name, value in os.environ.items() if name not in ("OUT", "BUNDLE")}
    return subprocess.run([sys.executable, "-m", "scripts", *arguments], cwd=ROOT, env=kept | typed, capture_output=True, text=True)


def test_the_kit_s_own_bundle_holds_its_results_and_the_committed_report(tmp_path):
    done = command("bundle", OUT=str(tmp_path))
    path = tmp_path / f"{BUNDLE}.tar.gz"
    assert done.returncode == 0 and hashlib.sha256(path.read_bytes()).hexdigest() in done.stdout, done.stderr
    unpacked = bundles.unpack(path, tmp_path)
    for name in (
        "reports/REPORT.md",
        "reports/method.md",
        "reports/article-inference-tools.md",
        "docker/pins.toml",
        "docker/deepspeed/2023-02/requirements.txt",
        "bench/articles/inference-tools.toml",
        "CITATION.cff",
    ):
        assert (unpacked / name).is_file(), name
    assert len(list(unpacked.glob("reports/runs/*/result.json"))) > 50
    row_pages = list(unpacked.glob("reports/row-*.md"))
    listed = re.findall(r"\]\((row-[^)]*)\)", (unpacked / "reports/rows.md").read_text())
    assert {page.name for page in row_pages} == set(listed) and len(listed) > 40
    for page in row_pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"
    checked = subprocess.run(["sha256sum", "--check", "--quiet", checksums.NAME], cwd=unpacked, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    for name in ("reports/REPORT.md", "reports/runs.md"):
        committed = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, check=True).stdout
        assert (unpacked / name).read_bytes() == committed, "type make report, and commit what it writes"


@pytest.mark.full
def test_the_kit_s_own_bundle_is_a_good_one(tmp_path):
    assert command("bundle", OUT=str(tmp_path)).returncode == 0
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    typed = ["make", "--no-print-directory", "verify-bundle", f"BUNDLE={tmp_path / f'{BUNDLE}.tar.gz'}"]
    done = subprocess.run(typed, cwd=ROOT, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "all checks passed" in done.stdout and "not checked: who made the bundle" in done.stdout


def test_what_is_no_bundle_ends_in_one_line(tmp_path):
    done = command("verify-bundle", BUNDLE=str(tmp_path / "none.tar.gz"))
    assert done.returncode == 2 and "no file; type make bundle" in done.stderr


OF_ANOTHER = "fatal: detected dubious ownership in repository at '/kit'\nTo add an exception for this directory, call:\n\n\tgit config --global --add safe.directory /kit\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OF_ANOTHER, "fatal: detected dubious ownership in repository at '/kit'; type git config --global --add safe.directory '/a kit'"),
        ("fatal: not a git repository\nStopping\n", "fatal: not a git repository; type make bundle in a clone of it"),
    ],
)
def test_why_git_does_not_tell_the_files_is_one_line_with_the_way_out(monkeypatch, said, told):
    monkeypatch.setattr(bundle.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 128, "", said))
    with pytest.raises(KitError) as error:
        bundle.files(Path("/a kit"))
    assert str(error.value) == f"git does not tell which files belong to the kit: {told}"


def test_a_bundle_holds_new_results_but_nothing_that_git_ignores_or_that_lies_elsewhere(tmp_path):
    run = tmp_path / "reports/runs/a-01"
    there = (run / "result.json", run / "log.txt", run / "trace.json.gz", run / "work/secret", tmp_path / "models/weights", tmp_path / "LICENSE")
    for path in (*there, tmp_path / "bench/.venv/x.py", tmp_path / "slurm.toml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "LICENSE"], check=True)
    assert [path.as_posix() for path in bundle.files(tmp_path)] == ["LICENSE", "reports/runs/a-01/result.json"]
    (tmp_path / "LICENSE").unlink()
    assert Path("LICENSE") not in bundle.files(tmp_path), "git still lists what was removed since"


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_link_to_a_file_of_this_machine_is_in_no_bundle(kit, tmp_path, make):
    (tmp_path / "secret").write_text("TOP SECRET")
    place = sorted((kit / "reports" / "runs").iterdir())[0] / "notes.txt"
    make(tmp_path / "secret", place)
    with pytest.raises(KitError, match="no bundle was written because '.*notes.txt' is a link"):
        bundle.write(tmp_path / "a.tar.gz", kit)
    place.unlink()


@pytest.mark.parametrize("place", ["reports/FINDINGS.md", "bench/articles/mine.toml", "docker/patches/mine.patch", "docs/mine.md", "README.md"])
def test_a_secret_in_any_file_is_in_no_bundle(tmp_path, monkeypatch, place):
    monkeypatch.setattr(bundle, "contents", lambda root: {"LICENSE": b"fine", place: b"hf_" + b"a" * 30})
    with pytest.raises(KitError, match=f"no bundle was written because .*:\n  {place}, line 1: a token of a model hub$"):
        bundle.write(tmp_path / "a.tar.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("place", "refused"), [("README.md", False), ("docs/clusters.md", False), ("reports/sbom/a.json", False), ("reports/REPORT.md", True)])
def test_a_machine_s_name_that_is_a_word_of_the_kit_keeps_no_bundle_from_being_written(tmp_path, monkeypatch, place, refused):
    monkeypatch.setattr(bundle, "contents", lambda root: {place: b"On Debian/Ubuntu a login shell"})
    monkeypatch.setattr(bundle.secrets_scan.platform, "node", lambda: "ubuntu")
    with pytest.raises(KitError, match=f"\n  {place}, line 1: this machine's name$") if refused else contextlib.nullcontext():
        bundle.write(tmp_path / "a.tar.gz")
    assert (tmp_path / "a.tar.gz").exists() is not refused


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J"])
def test_a_name_that_no_line_of_checksums_can_hold_is_in_no_bundle(kit, tmp_path, name):
    place = kit / "docs" / name
    place.write_text("x")
    with pytest.raises(KitError, match="cannot stand in SHA256SUMS"):
        bundle.write(tmp_path / "a.tar.gz", kit)
    place.unlink()


def test_a_name_that_would_make_two_lines_of_a_list_of_checksums_has_none():
    with pytest.raises(KitError, match=r"the name 'a\\nb' cannot stand in SHA256SUMS; rename the file, or remove it"):
        checksums.text({"a": "0" * 64, "a\nb": "0" * 64})
