"""make publish REMOTE=… [BRANCH=gh-pages]: the report's site onto a branch of a repository, on top of what is there.

Builds the report and its site, refuses where a file holds a secret, a home folder or this machine's name, counts what changes, and pushes
one commit with ghp-import. History is never rewritten: a branch that has moved meanwhile is an error.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.errors import KitError, UsageError
from scripts.report import document
from scripts.share import secrets_scan, site


def must_answer(remote: str, branch: str) -> None:
    """KitError where a repository cannot be reached, before the report and its site are made."""
    done = subprocess.run(["git", "ls-remote", "--heads", "--", remote, f"refs/heads/{branch}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise _git_failed("ls-remote", remote, done.stderr)


def _git_failed(verb: str, remote: str, stderr: str) -> KitError:
    lines = [line for line in stderr.strip().splitlines() if line.startswith(("fatal: ", "error: ", " ! "))]
    reason = (lines or ["failed"])[0].strip(" !")
    return KitError(f"git {verb} with {remote}: {reason}; type REMOTE=<address of a repository you may push to>")


def push(folder: Path, remote: str, branch: str) -> str:
    """Put a folder onto a branch and push it; returns what changed, in words."""
    with tempfile.TemporaryDirectory() as clone:

        def git(*arguments: str, check: bool = True) -> str:
            done = subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True)
            if check and done.returncode != 0:
                raise _git_failed(arguments[0], remote, done.stderr)
            return done.stdout.strip()

        git("init", "--quiet")
        git("remote", "add", "origin", remote)
        there = git("ls-remote", "--heads", "origin", f"refs/heads/{branch}")
        if there:
            git("fetch", "--quiet", "origin", f"+refs/heads/{branch}:refs/remotes/origin/{branch}")
        command = [sys.executable, "-m", "ghp_import", "--no-jekyll", "--remote=origin", f"--branch={branch}", "--message=The report", str(folder.resolve())]
        done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
        if done.returncode != 0:
            raise KitError(f"the site was not committed: {done.stderr.strip().splitlines()[-1]}")
        if there and git("rev-parse", f"{branch}^{{tree}}") == git("rev-parse", f"origin/{branch}^{{tree}}"):
            return "nothing changed"
        changes = git("diff", "--shortstat", f"origin/{branch}", branch) if there else git("show", "--shortstat", "--format=", branch)
        git("push", "--quiet", "origin", f"refs/heads/{branch}:refs/heads/{branch}")  # without force: refused where the branch has moved
        return changes.strip()


def publish(remote: str, branch: str, runs: Path, out: Path) -> str:
    """Write the report on `runs` to `out`, make its site, and push it; returns what changed, in words. Raises KitError."""
    if not remote:
        raise UsageError("REMOTE is missing; try make publish REMOTE=git@example.org:you/results.git")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", branch) or ".." in branch:
        raise UsageError(f"BRANCH is {branch!r}, allowed is a branch's name; try BRANCH=gh-pages")
    must_answer(remote, branch)
    with contextlib.redirect_stdout(io.StringIO()):
        path = document.write(runs, out)
    print("publish: making the site, about 10 s", file=sys.stderr, flush=True)
    made = site.build(path.parent, runs).parent
    secrets_scan.refuse(secrets_scan.files_of(made), "nothing was published")
    print(f"publish: pushing to {branch} of {remote}", file=sys.stderr, flush=True)
    return push(made, remote, branch)
