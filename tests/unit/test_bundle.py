"""make bundle and make verify-bundle: what an evaluator downloads is what was measured."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts import bundle, checksums
from scripts.errors import KitError, UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "a.tar.gz"
    bundle.write(path)
    return path


@pytest.fixture
def unpacked(packed, tmp_path):
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / bundle.NAME


def repack(folder, path):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, bundle.NAME)
    return path


def test_the_same_files_give_the_same_archive(packed, tmp_path):
    bundle.write(tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_bytes() == packed.read_bytes()


def test_it_holds_results_report_pins_and_locks_and_its_sums_are_sha256sum_s(unpacked):
    for name in ("reports/REPORT.md", "docker/pins.toml", "docker/deepspeed/2023-02/requirements.txt", "bench/articles/inference-tools.toml", "CITATION.cff"):
        assert (unpacked / name).is_file(), name
    assert len(list(unpacked.glob("reports/runs/*/result.json"))) > 50
    done = subprocess.run(["sha256sum", "--check", "--quiet", checksums.NAME], cwd=unpacked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_committed_results_make_a_good_bundle(packed):
    bundle.verify(packed)


def test_the_committed_report_is_the_one_that_comes_out_of_the_committed_results(unpacked):
    committed = subprocess.run(["git", "show", "HEAD:reports/REPORT.md"], cwd=ROOT, capture_output=True, check=True).stdout
    assert (unpacked / "reports" / "REPORT.md").read_bytes() == committed, "type make report, and commit what it writes"


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


def test_the_command_tells_the_archive_s_checksum(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name not in ("OUT", "BUNDLE")}
    done = subprocess.run([sys.executable, "-m", "scripts.bundle"], cwd=ROOT, env=kept | {"OUT": str(tmp_path)}, capture_output=True, text=True)
    path = tmp_path / f"{bundle.NAME}.tar.gz"
    assert done.returncode == 0 and hashlib.sha256(path.read_bytes()).hexdigest() in done.stdout, done.stderr
