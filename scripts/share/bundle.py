"""make bundle and make verify-bundle: everything behind the report in one archive, and whether an archive holds what it says.

    llm-repro-bundle/   reports/ (runs, report, plots, bills of materials), docker/ (pins, locks, Dockerfiles), bench/ (what was run),
                        README, licence, SHA256SUMS (a line a file, as sha256sum -c takes it)

The same files give the same archive to the byte. Verifying needs nothing of the archive to be trusted: each file is compared with
its checksum, nothing may be missing or too much, each result must be readable, and the report must come out the same again from the runs.
"""

import contextlib
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.job import InvalidDocument
from scripts import results
from scripts.errors import KitError, UsageError
from scripts.machine import checksums, unpack
from scripts.paths import ROOT
from scripts.report import document
from scripts.share import secrets_scan

NAME = "llm-repro-bundle"

#: What git tracks of these, and the results even where they are not committed yet.
PATHS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff", "compose.yaml"),
    *("bench", "docker", "docs", "scripts/requirements", "reports"),
)


def files(root: Path = ROOT) -> list[Path]:
    """The files of a bundle relative to the root, sorted."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PATHS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise KitError(f"git does not tell which files belong to the kit: {done.stderr.strip()}; run this in a clone of it")
    return sorted({Path(name) for name in done.stdout.split("\0") if name and (root / name).is_file()})


def contents(root: Path = ROOT) -> dict[Path, bytes]:
    """{place in the bundle: content}. The report is written anew from the bundle's own runs: the one at hand may tell of trials that stay here."""
    held = {name: (root / name).read_bytes() for name in files(root) if name.parts[:2] != ("reports", "plots")}
    with tempfile.TemporaryDirectory() as work:
        for name, content in held.items():
            if name.parts[:2] in (("reports", "runs"), ("reports", "FINDINGS.md")):
                (Path(work) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(work) / name).write_bytes(content)
        made = Path(work) / "reports"
        with contextlib.redirect_stdout(io.StringIO()):
            document.write(made / "runs", made)
        for path in (made / "REPORT.md", *(made / "plots").glob("*.svg")):
            held[path.relative_to(work)] = path.read_bytes()
    return dict(sorted(held.items()))


def write(path: Path, root: Path = ROOT) -> int:
    """Write the bundle whole or not at all; returns how many files it holds. Private things are refused as in publishing."""
    chosen = contents(root)
    secrets_scan.refuse(((name, content) for name, content in chosen.items() if name.parts[0] == "reports"), "no bundle was written")
    sums = checksums.text({name.as_posix(): hashlib.sha256(content).hexdigest() for name, content in chosen.items()})
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as stream, gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for name, content in [(Path(checksums.NAME), sums.encode()), *chosen.items()]:
                    entry = tarfile.TarInfo(f"{NAME}/{name.as_posix()}")
                    entry.size, entry.mode = len(content), 0o644
                    archive.addfile(entry, io.BytesIO(content))
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise KitError(f"cannot write {path}: {error.strerror}; type OUT=/another/folder make bundle") from error
    return len(chosen)


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with an unpacked bundle, a line each."""
    try:
        listed = checksums.parse((folder / checksums.NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        yield f"{checksums.NAME}: missing or damaged"
        return
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {checksums.NAME}
    missing, changed = checksums.compare(folder, listed)
    yield from (f"{name}: missing" for name in missing)
    yield from (f"{name}: not in {checksums.NAME}" for name in sorted(there - listed.keys()))
    yield from (f"{name}: another content than {checksums.NAME} says" for name in changed)
    runs = folder / "reports" / "runs"
    for run in sorted(runs.iterdir()) if runs.is_dir() else []:
        try:
            if (run / "result.json").exists():
                results.load(run)
        except (InvalidDocument, OSError) as error:
            yield f"reports/runs/{run.name}: {error}"
    yield from _report_differs(folder)


def _report_differs(folder: Path) -> Iterator[str]:
    """Write the report again from the bundle's runs. It needs this kit to be the bundle's own, so bench/ is compared first."""
    here = {path.relative_to(ROOT): path for path in sorted((ROOT / "bench" / "articles").glob("*.toml"))}
    if any(not (folder / name).is_file() or (folder / name).read_bytes() != path.read_bytes() for name, path in here.items()):
        print("note: this kit has other articles than the bundle, so the report was not written again; check out the bundle's commit for that", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as work:
        again = Path(work, "reports")
        again.mkdir()
        for name in ("runs", "FINDINGS.md"):
            (again / name).symlink_to(folder / "reports" / name)
        command = [sys.executable, "-m", "scripts", "report", "--runs", str(again / "runs"), "--out", str(again), "--format", "md"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            yield f"reports/REPORT.md: cannot be written again from the runs: {done.stderr.strip()}"
        elif (again / "REPORT.md").read_bytes() != (folder / "reports" / "REPORT.md").read_bytes():
            yield "reports/REPORT.md: another one comes out of the runs"


def verify(path: Path) -> None:
    """Raise KitError with every problem of a bundle."""
    with tempfile.TemporaryDirectory() as work:
        try:
            with tarfile.open(path) as archive:
                unpack.unpack(archive, Path(work))
        except FileNotFoundError:
            raise UsageError(f"BUNDLE is {str(path)!r}, which is no file; type for example make verify-bundle BUNDLE={NAME}.tar.gz") from None
        except (tarfile.TarError, OSError, EOFError) as error:
            raise KitError(f"{path} cannot be unpacked: {error}") from error
        found = list(problems(Path(work, NAME)))
    if found:
        raise KitError(f"{path} is not what it says:\n  " + "\n  ".join(found))
