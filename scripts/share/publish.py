"""make publish REMOTE=… [BRANCH=gh-pages]: the report's site onto a branch of a repository, on top of what is there.

Builds the report and its site, refuses where a file holds a secret, a home folder or this machine's name, counts what changes, and
pushes one commit with ghp-import. History is never rewritten: a branch that has moved meanwhile is an error. A branch that the
kit has not written holds the files of others; it is refused unless TAKE_BRANCH=1 says that they may go.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts import results
from scripts.containers import programs
from scripts.errors import KitError, UsageError
from scripts.share import runs_place, secrets_scan

#: Lies in every branch that the kit has written.
MARKER = ".llm-repro"
MARKER_TEXT = "make publish of the LLM inference reproducibility kit writes this branch: it replaces every file but CNAME.\n"

#: Settings of the host of the site, which no report holds. .nojekyll is written anew by ghp-import.
KEPT = ("CNAME",)


def without_password(text: str) -> str:
    """A text whose addresses have lost user and password, and what follows their path: each may be a token.

    Git takes `TOKEN@host:path` and `//TOKEN@host` too, so whatever stands before an @ goes.
    """
    return re.sub(r"[?#;][^\s'\"]+", "?…", re.sub(r"(\w+://)?\S*@", r"\1", text))


class Repository:
    """A clone of a remote repository without files; every git command in it, with errors that show no password."""

    def __init__(self, folder: Path, remote: str) -> None:
        self.folder, self.remote = folder, remote

    def git(self, *arguments: str) -> str:
        """The output of a git command; raises KitError with git's error where the command fails."""
        return self._run(*arguments).decode(errors="replace").strip()

    def file(self, place: str) -> bytes | None:
        """A file's content, `place` as in "refs/heads/gh-pages:CNAME"; None where there is none, or a folder."""
        try:
            return self._run("cat-file", "blob", place)
        except KitError:
            return None

    def _run(self, *arguments: str) -> bytes:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True)
        if done.returncode != 0:
            raise _git_failed(arguments[0], self.remote, done.stderr.decode(errors="replace"))
        return done.stdout


def _git_failed(verb: str, remote: str, stderr: str) -> KitError:
    lines = [line for line in stderr.strip().splitlines() if line.startswith(("fatal: ", "error: ", " ! "))]
    reason = (lines or ["failed"])[0].strip(" !")
    if "non-fast-forward" in reason or "fetch first" in reason:
        return KitError(without_password(f"git {verb} with {remote}: {reason}: the branch has moved meanwhile; type the same again"))
    return KitError(without_password(f"git {verb} with {remote}: {reason}; type REMOTE=<address of a repository you may push to>"))


def _local(branch: str) -> str:
    """The full name of the branch in the clone. Git might take its short name for a tag or for a file of git's own."""
    return f"refs/heads/{branch}"


def _address(remote: str) -> str:
    """A typed path as an absolute one: git runs in the temporary clone, where "." would be the clone itself."""
    return str(Path(remote).absolute()) if "://" not in remote and Path(remote).is_dir() else remote


def _of_remote(branch: str) -> str:
    return f"refs/remotes/origin/{branch}"


def must_be_branch(name: str) -> None:
    """UsageError where git takes a name for no branch, or for a commit."""
    done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, cwd="/")
    if done.returncode != 0 or not re.fullmatch(r"(?![0-9a-f]{40}\Z)[A-Za-z0-9][A-Za-z0-9._/-]*", name):
        raise UsageError(f"BRANCH is {name[:60]!r}, allowed is a branch's name; try BRANCH=gh-pages")


def fetch(folder: Path, remote: str, branch: str, take_branch: bool) -> tuple[Repository, bool]:
    """(a clone in `folder`, whether the remote has the branch). KitError where it cannot be reached or the branch is another's."""
    repository = Repository(folder, remote)
    repository.git("init", "--quiet")
    repository.git("remote", "add", "--", "origin", _address(remote))
    there = bool(repository.git("ls-remote", "--heads", "origin", _local(branch)))
    if there:
        repository.git("fetch", "--quiet", "--no-tags", "origin", f"+{_local(branch)}:{_of_remote(branch)}")  # ghp-import gives short names to git
        if not take_branch and repository.file(f"{_of_remote(branch)}:{MARKER}") is None:
            raise KitError(
                f"nothing was published: the kit has not written {branch} of {without_password(remote)}, and would replace its files; "
                "type BRANCH=another, or TAKE_BRANCH=1 if the kit may replace them"
            )
    return repository, there


def push(folder: Path, remote: str, branch: str, take_branch: bool = False) -> str:
    """Put a folder onto a branch and push it; returns what changed, in words. Raises KitError for a branch that the kit has not written."""
    with tempfile.TemporaryDirectory() as clone:
        repository, there = fetch(Path(clone), remote, branch, take_branch)
        (folder / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
        for name in KEPT if there else ():
            content = repository.file(f"{_of_remote(branch)}:{name}")
            if content is not None:
                (folder / name).write_bytes(content)
        command = [sys.executable, "-m", "ghp_import", "--no-jekyll", "--remote=origin", f"--branch={branch}", "--message=The report", str(folder.resolve())]
        done = subprocess.run(command, cwd=clone, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise KitError(f"the site was not committed: {without_password(programs.last_line(done))}")
        git, before, now = repository.git, _of_remote(branch), _local(branch)
        if there and git("rev-parse", f"{before}^{{tree}}") == git("rev-parse", f"{now}^{{tree}}"):
            return "nothing changed"
        changes = git("diff", "--shortstat", before, now) if there else git("show", "--shortstat", "--format=", now)
        git("push", "--quiet", "origin", f"{now}:{now}")  # without force: refused where the branch has moved
        return changes


def publish(remote: str, branch: str, runs: Path, out: Path, take_branch: bool = False) -> str:
    """Write the report on `runs` to `out`, make its site, and push it; returns what changed, in words. Raises KitError."""
    if not remote:
        raise UsageError("REMOTE is missing; try make publish REMOTE=git@example.org:you/results.git")
    if re.search(r"\s|[^ -~]", remote) and re.search("@|://", remote):
        raise UsageError("REMOTE is an address with a space or a special character, which may be a part of a password; type %20 and the like in its place")
    must_be_branch(branch)
    results.must_hold_runs(runs)
    runs_place.within(out, runs)
    with tempfile.TemporaryDirectory() as clone:
        fetch(Path(clone), remote, branch, take_branch)  # before the report and its site are made
    from scripts.report import document  # imported late: the imports take longer than all checks above
    from scripts.share import site

    site.refuse_foreign(out)
    with contextlib.redirect_stdout(io.StringIO()):
        path = document.write(runs, out)
    print("publish: making the site, about 10 s", file=sys.stderr, flush=True)
    made = site.build(path.parent, runs).parent
    secrets_scan.refuse(secrets_scan.files_of(made), "nothing was published")
    print(f"publish: pushing to {branch} of {without_password(remote)}", file=sys.stderr, flush=True)
    return push(made, remote, branch, take_branch)
