"""make bundle: everything behind the report in one archive; scripts/share/verified.py checks such an archive.

    llm-repro-bundle/   reports/ (runs, report, plots, bills of materials), docker/ (pins, locks, Dockerfiles), bench/ (what was run),
                        README, licence, ro-crate-metadata.json (every run as an action), SHA256SUMS (a line a file, as sha256sum -c takes it)

The same files give the same archive to the byte.
"""

import gzip
import hashlib
import io
import os
import shlex
import subprocess
import tarfile
import tempfile
from pathlib import Path

from bench.job import whole_file
from scripts.errors import KitError
from scripts.machine import checksums
from scripts.paths import ROOT
from scripts.results import door
from scripts.share import BUNDLE, rebuilt, ro_crate, secrets_scan

#: A bundle holds the files in these places that git does not ignore, so results even where they are not committed yet.
PATHS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff", ".zenodo.json", "compose.yaml"),
    *("bench", "docker", "docs", "scripts/requirements"),
    *(f"reports/{name}" for name in ("FINDINGS.md", "verdicts-version-1.json", "images.json", "instruments", "sbom")),
    *(f"{folder}/runs" for folder in rebuilt.REPORTS),
)


def holds(name: str) -> bool:
    """May a bundle hold a file in this place? It holds what the report is made of and what is made of that, but no repository: settings of one may name
    programs for git."""
    path = Path(name)
    if ".git" in name.casefold().split("/"):
        return False
    plots = [f"{folder}/plots" for folder in rebuilt.REPORTS]
    return any(path.is_relative_to(place) for place in (*PATHS, ro_crate.NAME, *plots)) or rebuilt.is_page(path)


def files(root: Path = ROOT) -> list[Path]:
    """The files of a bundle relative to the root, sorted. Raises KitError for a link, which may lead to any file of this machine, and for a name
    that no line of checksums can hold.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PATHS]
    done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape")
    if done.returncode != 0:
        reason = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        way_out = f"git config --global --add safe.directory {shlex.quote(str(root))}" if "safe.directory" in done.stderr else "make bundle in a clone of it"
        raise KitError(f"git does not tell which files belong to the kit: {reason}; type {way_out}")
    found = sorted({Path(name) for name in done.stdout.split("\0") if name and os.path.lexists(root / name)})
    links = [path for path in found if not door.is_plain(root / path)]
    if links:
        raise KitError(f"no bundle was written because {str(links[0])!r} is a link; replace the link by a file")
    checksums.refuse_names(path.as_posix() for path in found)
    return [path for path in found if (root / path).is_file()]


def contents(root: Path = ROOT) -> dict[str, bytes]:
    """{place in the bundle: content}. The report is made anew from the bundle's own runs: the report at hand may show trials that the bundle leaves out."""
    held = {name.as_posix(): (root / name).read_bytes() for name in files(root)}
    with tempfile.TemporaryDirectory() as place:
        data, work = Path(place, "data"), Path(place, "work")
        for name, content in held.items():
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_bytes(content)
        work.mkdir()
        try:
            held |= rebuilt.report(data, work)
            held[ro_crate.NAME] = ro_crate.text(rebuilt.held(data)).encode()
        except KitError as error:
            raise KitError(f"no bundle was written because the report cannot be made ({error}); type make report") from error
    return dict(sorted(held.items()))


def _is_of_machines(name: str) -> bool:
    """Is it a result or a page about results? In the other files, and in lists of packages, a machine's name may be a word: "ubuntu", "worker", "login"."""
    return name.startswith("reports/") and not name.startswith("reports/sbom/")


def write(path: Path, root: Path = ROOT) -> int:
    """Write the bundle whole or not at all; returns how many files it holds. Private things are refused as in publishing."""
    chosen = contents(root)
    for of_machines in (True, False):
        searched = ((Path(name), content) for name, content in chosen.items() if _is_of_machines(name) is of_machines)
        secrets_scan.refuse(searched, "no bundle was written", of_machines)
    sums = checksums.text({name: hashlib.sha256(content).hexdigest() for name, content in chosen.items()})
    try:
        with whole_file(path) as stream, gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for name, content in [(checksums.NAME, sums.encode()), *chosen.items()]:
                    entry = tarfile.TarInfo(f"{BUNDLE}/{name}")
                    entry.size, entry.mode = len(content), 0o644
                    archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise KitError(f"cannot write {path}: {error.strerror}; type make bundle OUT=/another/folder") from error
    return len(chosen)
