"""make bundle and make verify-bundle: what an evaluator downloads is what was measured."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.errors import KitError, UsageError
from scripts.machine import checksums
from scripts.share import bundle

pytestmark = pytest.mark.slow  # each bundle writes a report, each check another

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """The kit with three of its committed runs, in a repository of its own."""
    folder = tmp_path_factory.mktemp("kit")
    for name in bundle.files():
        if name.parts[:2] != ("reports", "runs"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for run in sorted((ROOT / "reports" / "runs").glob("inference-tools.layer-parallel.*"))[:3]:
        shutil.copytree(run, folder / "reports" / "runs" / run.name)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def packed(kit, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "a.tar.gz"
    bundle.write(path, kit)
    return path


def unpack(path, folder):
    """Into a folder, as `tar -x` does; what it holds was packed here."""
    subprocess.run(["tar", "-xzf", str(path), "-C", str(folder)], check=True)
    return folder / bundle.NAME


@pytest.fixture
def unpacked(packed, tmp_path):
    return unpack(packed, tmp_path)


def repack(folder, path):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, bundle.NAME)
    return path


def test_the_same_files_give_the_same_archive_which_is_a_good_one(kit, packed, tmp_path):
    bundle.write(tmp_path / "b.tar.gz", kit)
    assert (tmp_path / "b.tar.gz").read_bytes() == packed.read_bytes()
    bundle.verify(packed)


def a_run(folder):
    return sorted(folder.glob("reports/runs/*/result.json"))[0]


def test_a_changed_an_added_and_a_missing_file_are_named(unpacked, tmp_path):
    changed = a_run(unpacked)
    changed.write_text(changed.read_text().replace('"timed_ms"', '"timed_ms" '))
    (unpacked / "reports/runs/extra.json").write_text("{}")
    (unpacked / "docker/pins.toml").unlink()
    with pytest.raises(KitError) as told:
        bundle.verify(repack(unpacked, tmp_path / "bad.tar.gz"))
    assert str(told.value).splitlines()[1:] == [
        "  docker/pins.toml: missing",
        "  reports/runs/extra.json: not in SHA256SUMS",
        f"  {changed.relative_to(unpacked)}: another content than SHA256SUMS says",
    ]


def test_a_run_taken_away_with_its_checksums_shows_in_the_report(unpacked, tmp_path):
    run = a_run(unpacked).parent
    shutil.rmtree(run)
    sums = unpacked / checksums.NAME
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if run.name not in line))
    with pytest.raises(KitError, match="REPORT.md: another one comes out of the runs"):
        bundle.verify(repack(unpacked, tmp_path / "bad.tar.gz"))


def test_what_is_no_bundle_is_told(tmp_path):
    with pytest.raises(UsageError, match="BUNDLE is .* no file"):
        bundle.verify(tmp_path / "none.tar.gz")
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    with pytest.raises(KitError, match="cannot be unpacked"):
        bundle.verify(tmp_path / "broken.tar.gz")


def command(*arguments, **typed):
    kept = {name: value for name, value in os.environ.items() if name not in ("OUT", "BUNDLE")}
    return subprocess.run([sys.executable, "-m", "scripts", *arguments], cwd=ROOT, env=kept | typed, capture_output=True, text=True)


def test_the_kit_s_own_bundle_holds_its_results_and_the_committed_report(tmp_path):
    done = command("bundle", OUT=str(tmp_path))
    path = tmp_path / f"{bundle.NAME}.tar.gz"
    assert done.returncode == 0 and hashlib.sha256(path.read_bytes()).hexdigest() in done.stdout, done.stderr
    unpacked = unpack(path, tmp_path)
    for name in ("reports/REPORT.md", "docker/pins.toml", "docker/deepspeed/2023-02/requirements.txt", "bench/articles/inference-tools.toml", "CITATION.cff"):
        assert (unpacked / name).is_file(), name
    assert len(list(unpacked.glob("reports/runs/*/result.json"))) > 50
    checked = subprocess.run(["sha256sum", "--check", "--quiet", checksums.NAME], cwd=unpacked, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    committed = subprocess.run(["git", "show", "HEAD:reports/REPORT.md"], cwd=ROOT, capture_output=True, check=True).stdout
    assert (unpacked / "reports" / "REPORT.md").read_bytes() == committed, "type make report, and commit what it writes"


@pytest.mark.full
def test_the_kit_s_own_bundle_is_a_good_one(tmp_path):
    assert command("bundle", OUT=str(tmp_path)).returncode == 0
    done = command("verify-bundle", BUNDLE=str(tmp_path / f"{bundle.NAME}.tar.gz"))
    assert done.returncode == 0, done.stderr
