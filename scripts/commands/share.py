"""publish, bundle, verify-bundle: share the report outside this machine."""

from pathlib import Path

import click

from scripts import results, surroundings
from scripts.commands import values
from scripts.commands.values import RUNS, option
from scripts.errors import UsageError
from scripts.machine import checksums
from scripts.share import BUNDLE
from scripts.share import publish as publishing


@click.command
@option("REMOTE", values.text(), "the address of a repository that you may push to", "")
@option("BRANCH", values.text(), "the branch of the site", "gh-pages")
@option("TAKE_BRANCH", values.switch(), "1 replaces the files of a branch that another program wrote", False)
@RUNS
@option("OUT", values.folder(), "the folder of the report, which has to hold the runs; by default the one that holds runs/")
def publish(remote: str, branch: str, take_branch: bool, runs: Path | None, out: Path | None) -> None:
    """Publish the site of the report on a branch of a repository."""
    surroundings.use_price("")
    shown = runs or results.RUNS
    changes = publishing.publish(remote, branch, shown, out or results.report_of(shown), take_branch)
    print(f"{branch} of {publishing.without_password(remote)}: {changes}")


@click.command
@option("OUT", values.folder(), "the folder of the archive; by default the current one")
def bundle(out: Path | None) -> None:
    """Pack results, report, pins and locks into one archive with checksums."""
    from scripts.share import bundle as bundles  # imports the whole report; an error about a value of publish need not wait for it

    if out and not out.is_dir():
        raise UsageError(f"OUT is {str(out)!r}, which is no folder, allowed is a folder that exists; try OUT={out.parent if out.parent.is_dir() else '.'}")
    path = (out or Path.cwd()) / f"{BUNDLE}.tar.gz"
    count = bundles.write(path)
    size_mb = path.stat().st_size / 1e6
    print(f"{path}: {count} files, {size_mb:.1f} MB, sha256 {checksums.digest_of(path)}")


@click.command(name="verify-bundle")
@option("BUNDLE", values.folder(), "the archive to check", Path(f"{BUNDLE}.tar.gz"))
@option("FORMAT", values.choice("md", "json"), "json prints the verdict as one line for a program", "md")
def verify_bundle(bundle: Path, format: str) -> int:
    """Check such an archive: its files, its results, and that its report follows from them."""
    from scripts.share import verified

    if format == "json":
        verdict = verified.verdict(bundle)
        print(verdict.as_json(bundle))
        return int(bool(verdict.problems))
    lines = verified.verify(bundle)
    print("\n  ".join([f"{bundle}: all checks passed", *lines]))
    return 0
