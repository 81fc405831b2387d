"""make publish: onto a branch, on top of what is there, and nothing private."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.errors import KitError
from scripts.share import publish, secrets_scan, site_pages
from tests import synthetic
from tests.synthetic import job, record

ROOT = Path(__file__).resolve().parents[2]
AUTHOR = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Test"), ("EMAIL", "test@example.org"))}


def git(folder, *arguments):
    return subprocess.run(["git", *arguments], cwd=folder, env=os.environ | AUTHOR, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def remote(tmp_path):
    path = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(path))
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "made"
    path.mkdir()
    (path / "index.html").write_text("one")
    return path


def test_each_publication_is_a_commit_on_top_of_the_last(remote, folder):
    assert "3 files changed, 2 insertions" in publish.push(folder, str(remote), "gh-pages")
    assert publish.push(folder, str(remote), "gh-pages") == "nothing changed"
    (folder / "index.html").write_text("two")
    publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "rev-list", "--count", "gh-pages") == "2"
    assert git(remote, "show", "gh-pages:index.html") == "two"


def others_push(tmp_path, remote, name, text):
    """Somebody else's commit on the branch."""
    git(tmp_path, "clone", "--quiet", str(remote), "other")
    other = tmp_path / "other"
    git(other, "checkout", "--quiet", "-B", "gh-pages", *(["origin/gh-pages"] if git(remote, "branch", "--list") else []))
    (other / name).parent.mkdir(exist_ok=True)
    (other / name).write_text(text)
    git(other, "add", "."), git(other, "commit", "--quiet", "-m", "theirs"), git(other, "push", "--quiet", "origin", "HEAD:gh-pages")


def test_a_branch_that_the_kit_has_not_written_is_refused_and_stays_as_it_is(remote, folder, tmp_path):
    others_push(tmp_path, remote, "theirs.txt", "theirs")
    with pytest.raises(KitError, match="nothing was published: the kit has not written gh-pages of .*TAKE_BRANCH=1"):
        publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "ls-tree", "--name-only", "gh-pages") == "theirs.txt"


def test_the_domain_of_a_site_stays(remote, folder, tmp_path):
    publish.push(folder, str(remote), "gh-pages")
    others_push(tmp_path, remote, "CNAME", "results.example.org\n")
    (folder / "index.html").write_text("two")
    publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "show", "gh-pages:CNAME") == "results.example.org"
    assert {".nojekyll", "index.html", publish.MARKER} <= set(git(remote, "ls-tree", "--name-only", "gh-pages").splitlines())


@pytest.mark.slow  # a process for each
@pytest.mark.parametrize(
    "remote_with_password",
    [
        "https://alice:hunter2@127.0.0.1:1/x.git",
        "https://hunter2@127.0.0.1:1/x.git",
        "https://a:hunter2/@127.0.0.1:1/x.git",
        "https://127.0.0.1:1/x.git?token=hunter2",
        "https://127.0.0.1:1/x.git?hunter2",
        "https://127.0.0.1:1/x.git;token=hunter2",
        "https://127.0.0.1:1/x.git#hunter2",
        "git://alice:hunter2@127.0.0.1:1/x.git",
        "//alice:hunter2@127.0.0.1:1/x.git",
        "alice:hunter2@127.0.0.1:1/x.git",
        "hunter2@127.0.0.1:1/x.git",
    ],
)
def test_a_password_in_the_address_is_in_no_output(remote_with_password):
    done = run(REMOTE=remote_with_password, GIT_TERMINAL_PROMPT="0", GIT_SSH_COMMAND="false")
    assert done.returncode == 1 and "127.0.0.1:1/x.git" in done.stderr and "git ls-remote" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr and "alice" not in done.stdout + done.stderr


def test_what_follows_an_address_stays():
    assert publish.without_password("fatal: https://host/x.git?token=hunter2 not found") == "fatal: https://host/x.git?… not found"


@pytest.mark.slow  # a process for each
@pytest.mark.parametrize("remote", ["https://alice:hun ter2@127.0.0.1:1/x", "https://127.0.0.1:1/x?t=a hunter2", "https://a:hunter2\n@127.0.0.1:1/x"])
def test_an_address_with_a_space_is_refused_and_not_repeated(remote):
    done = run(REMOTE=remote)
    assert done.returncode == 2 and "REMOTE is an address with a space" in done.stderr and "ter2" not in done.stdout + done.stderr


@pytest.mark.slow  # a process for each
@pytest.mark.parametrize("branch", ["x.lock", "a..b", "-x", "@", "a b", "x/", "HEAD~1", "@{-1}", "a" * 40])
def test_a_name_of_no_branch_is_told(branch):
    done = run(REMOTE="/nowhere", BRANCH=branch)
    assert done.returncode == 2 and f"BRANCH is {branch!r}, allowed is a branch's name; try BRANCH=gh-pages" in done.stderr


@pytest.mark.parametrize("tag", ["gh-pages", "origin/gh-pages"])
@pytest.mark.parametrize("age", [1, 2])
def test_a_tag_with_the_name_of_the_branch_stands_for_nothing(remote, folder, tag, age):
    for text in ("one", "two"):
        (folder / "index.html").write_text(text)
        publish.push(folder, str(remote), "gh-pages")
    git(remote, "tag", tag, f"refs/heads/gh-pages~{age - 1}")
    (folder / "index.html").write_text("three")
    assert "1 file changed" in publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "show", "refs/heads/gh-pages:index.html") == "three"


def test_a_branch_with_the_name_of_a_file_of_git_is_published_to(remote, folder):
    publish.push(folder, str(remote), "FETCH_HEAD")
    (folder / "index.html").write_text("two")
    publish.push(folder, str(remote), "FETCH_HEAD")
    assert git(remote, "show", "refs/heads/FETCH_HEAD:index.html") == "two"


@pytest.mark.parametrize(("here", "typed"), [(".", "remote.git"), ("remote.git", "."), ("made", "../remote.git")])
def test_a_relative_path_is_one_from_the_folder_of_the_command(remote, folder, tmp_path, monkeypatch, here, typed):
    monkeypatch.chdir(tmp_path / here)
    assert "3 files changed" in publish.push(folder, typed, "gh-pages")
    assert git(remote, "show", "gh-pages:index.html") == "one"


def test_a_folder_with_the_name_of_the_kit_s_mark_is_no_mark(remote, folder, tmp_path):
    others_push(tmp_path, remote, f"{publish.MARKER}/theirs.txt", "theirs")
    with pytest.raises(KitError, match="nothing was published: the kit has not written gh-pages"):
        publish.push(folder, str(remote), "gh-pages")


def test_a_folder_in_place_of_a_domain_is_no_domain(remote, folder, tmp_path):
    others_push(tmp_path, remote, "CNAME/theirs.txt", "theirs")
    publish.push(folder, str(remote), "gh-pages", take_branch=True)
    assert "CNAME" not in git(remote, "ls-tree", "--name-only", "gh-pages").split()


def test_a_branch_that_moves_while_the_site_is_pushed_is_told_and_stays_as_it_is(remote, folder, tmp_path, monkeypatch):
    publish.push(folder, str(remote), "gh-pages")
    fetch = publish.fetch
    monkeypatch.setattr(publish, "fetch", lambda *given: [fetch(*given), others_push(tmp_path, remote, "theirs.txt", "theirs")][0])
    (folder / "index.html").write_text("two")
    with pytest.raises(KitError, match=r"gh-pages -> gh-pages .*: the branch has moved meanwhile; type the same again"):
        publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "log", "--format=%s", "gh-pages").splitlines() == ["theirs", "The report"]


def test_what_others_pushed_stays_in_the_history(remote, folder, tmp_path):
    others_push(tmp_path, remote, "theirs.txt", "theirs")
    publish.push(folder, str(remote), "gh-pages", take_branch=True)
    assert git(remote, "log", "--format=%s", "gh-pages").splitlines() == ["The report", "theirs"]


def test_a_branch_that_refuses_is_told_and_stays_as_it_is(remote, folder):
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    hook.chmod(0o755)
    with pytest.raises(KitError, match="git push with .*remote.git"):
        publish.push(folder, str(remote), "gh-pages")
    assert git(remote, "branch", "--list") == ""


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("x\nhf_" + "a" * 30, "page.html, line 2: a token of a model hub"),
        ("/home/alice/models/x", "a home folder"),
        ("https://alice:pass@example.org/", "a password in an address"),
        ("on node bigbox-7.", "this machine's name"),
        ("the node BIGBOX-7.corp.example.org", "this machine's name"),
        ("/srv/people/alice/kit", "your home folder"),
        ("HOME=/home/j\u00f6rg", "a home folder"),
        ("https://" + "t" * 24 + "@example.org/", "a password in an address"),
        ("github_pat_11" + "A" * 20, "an access key"),
        ("glpat-" + "a" * 20, "an access key"),
        ("xoxb-" + "1" * 12, "an access key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
    ],
)
def test_what_is_private_is_found_and_not_repeated(tmp_path, content, what):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "page.html").write_text(content)
    (found,) = secrets_scan.problems(secrets_scan.files_of(tmp_path), secrets_scan.patterns("bigbox-7.example.org", Path("/srv/people/alice")))
    assert found.endswith(what) and content.strip() not in found


def test_what_is_not_private_may_go_out(tmp_path):
    words = "https://example.org/home/ https://example.org/home/page bigbox-71 git@example.org hf_hub models/random/x /root/x"
    addresses = """<a href="/home/index.html"> <script src="/Users/x.js"> git+https://long-enough-hostname.org@v1 https://fonts.org?family=Open+Sans:wght@400"""
    (tmp_path / "page.html").write_text(words + addresses)
    assert list(secrets_scan.problems(secrets_scan.files_of(tmp_path), secrets_scan.patterns("bigbox-7", Path("/root")))) == []


@pytest.mark.parametrize(("host", "found"), [("gpus.example.org", False), ("gpu-7.example.org", True), ("node7", True), ("bigbox", True), ("localhost", False)])
def test_a_machine_s_name_without_its_domain_counts_only_where_it_is_no_word(host, found):
    content = f"gpus and docker and login; {host.partition('.')[0]} ran".encode()
    assert bool(list(secrets_scan.problems([(Path("a"), content)], secrets_scan.patterns(host, Path("/root"))))) is found


@pytest.mark.parametrize(
    ("host", "found"),
    [("report", False), ("Method", False), ("hopper", False), ("h200", False), ("sympy", False), ("runner", False), ("bigbox", True), ("reporter-7", True)],
)
def test_a_machine_that_is_called_like_a_word_of_every_site_can_publish(host, found):
    content = f"The report of the method on hopper, an H200; {host} ran".encode()
    assert bool(list(secrets_scan.problems([(Path("a"), content)], secrets_scan.patterns(host, Path("/root"))))) is found


def test_a_machine_that_an_article_or_a_pin_names_is_found_all_the_same(tmp_path, monkeypatch):
    article, pin = 'measured = "On the GPUs of bigbox-7"', 'base = { version = "gpus.example.org/python:3.12" }'
    texts = {"bench/articles/mine.toml": article, "docker/pins.toml": pin, **{f"docs/{note}": "" for note in site_pages.NOTES}}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(secrets_scan, "ROOT", tmp_path)
    for host in ("bigbox-7", "gpus.example.org"):
        assert list(secrets_scan.problems([(Path("a"), f"{host} ran".encode())], secrets_scan.patterns(host, Path("/root")))), host


def test_a_refusal_says_what_was_not_done_and_names_the_place(tmp_path):
    with pytest.raises(KitError, match=r"no bundle was written because these files hold .*:\n  runs/a.json, line 1: a home folder"):
        secrets_scan.refuse([(Path("runs/a.json"), b"/home/alice/x"), (Path("b.json"), b"fine")], "no bundle was written")


def run(**typed):
    kept = {name: value for name, value in os.environ.items() if name not in ("RUNS", "OUT", "REMOTE", "BRANCH", "FORMAT")}
    return subprocess.run([sys.executable, "-m", "scripts", "publish"], cwd=ROOT, env=kept | AUTHOR | typed, capture_output=True, text=True)


def test_a_gzipped_file_is_searched_as_what_it_holds_and_is_refused_where_it_cannot_be(monkeypatch):
    packed = gzip.compress(b'{"traceName":\n"/home/alice/tmp/trace.json"}')
    forbidden = secrets_scan.patterns("bigbox-7", Path("/root"))
    assert list(secrets_scan.problems([(Path("trace.json.gz"), packed)], forbidden)) == ["trace.json.gz, line 2: a home folder"]
    assert list(secrets_scan.problems([(Path("trace.json.gz"), gzip.compress(b"fine"))], forbidden)) == []
    damaged = [packed[:-20], packed[:15] + b"\xff" + packed[16:], packed + b"more"]
    refused = ["a.gz: gzipped, and cannot be searched, because it is damaged or unpacks to more than a GiB; remove it"]
    assert [list(secrets_scan.problems([(Path("a.gz"), content)], forbidden)) for content in damaged] == [refused] * 3
    monkeypatch.setattr(secrets_scan, "LARGEST_UNPACKED_BYTES", 3)
    assert list(secrets_scan.problems([(Path("a.gz"), gzip.compress(b"fine"))], forbidden)) == refused


@pytest.mark.slow
def test_the_whole_way_from_results_to_a_branch(remote, tmp_path):
    synthetic.write(tmp_path / "out" / "runs", [record(job("int8"), 50.0)])
    done = run(RUNS=str(tmp_path / "out" / "runs"), REMOTE=str(remote), BRANCH="pages")
    assert done.returncode == 0, done.stderr
    assert "int8" in git(remote, "show", "pages:index.html") and "insertions" in done.stdout
    again = run(RUNS=str(tmp_path / "out" / "runs"), REMOTE=str(remote), BRANCH="pages")
    assert again.stdout.strip().endswith("nothing changed"), "the same results give the same site"


@pytest.mark.slow
def test_runs_under_another_name_write_nothing_beside_them(remote, tmp_path):
    synthetic.write(tmp_path / "mine", [record(job("int8"), 50.0)])
    before = sorted(tmp_path.iterdir())
    done = run(RUNS=str(tmp_path / "mine"), REMOTE=str(remote))
    assert done.returncode == 1 and f"type OUT={tmp_path} with this command" in done.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert run(RUNS=str(tmp_path / "mine"), REMOTE=str(remote), OUT=str(tmp_path)).returncode == 0


@pytest.mark.slow
def test_a_secret_in_a_result_stops_it(remote, tmp_path):
    synthetic.write(tmp_path / "out" / "runs", [record(job("int8"), status="failed", reason="401 for hf_" + "b" * 30)])
    done = run(RUNS=str(tmp_path / "out" / "runs"), REMOTE=str(remote))
    assert done.returncode == 1 and "a token of a model hub" in done.stderr and git(remote, "branch", "--list") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({}, "REMOTE is missing"),
        ({"REMOTE": "x", "RUNS": "/nope"}, "RUNS is '/nope', which is not a folder"),
        ({"REMOTE": "x", "RUNS": str(ROOT / "docs")}, "docs', which holds no run; try RUNS="),
        ({"REMOTE": "x", "BRANCH": "a..b"}, "BRANCH is 'a..b', allowed is"),
    ],
)
def test_a_wrong_value_explains_itself(typed, told):
    done = run(**typed)
    assert done.returncode == 2 and told in done.stderr
