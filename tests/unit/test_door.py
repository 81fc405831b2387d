"""What a guest leaves in its folder comes in through one door: links, pipes, endless files and nonsense stay outside."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from bench.measuring.answers_file import NAME as OUTPUTS
from bench.measuring.timed_tokens import TOKENS
from scripts import results
from scripts.results import door
from scripts.run import judging, measurement, resume
from scripts.units import MIB
from tests.samples import a_job, a_result

SECRET = "the secret of the host"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The work folder of a run, which a guest may fill with anything; beside it lies what the guest must not reach."""
    (tmp_path / "shadow").write_text(SECRET)
    folder = tmp_path / "run" / "work"
    folder.mkdir(parents=True)
    return folder


def link(path: Path) -> None:
    path.symlink_to(path.parents[2] / "shadow")


def hard_link(path: Path) -> None:
    path.hardlink_to(path.parents[2] / "shadow")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(3 << 30)


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


ATTACKS = {"a symbolic link": link, "hard links": hard_link, "a pipe": pipe, "a folder": folder, "bytes": sparse, "symbolic": dangling}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("why", "attack"), ATTACKS.items(), ids=[attack.__name__ for attack in ATTACKS.values()])
@pytest.mark.parametrize("name", ["result.json", TOKENS, OUTPUTS, "trace.json.gz"])
def test_what_is_no_plain_file_is_refused_at_once_and_nothing_of_it_is_kept(work: Path, name: str, why: str, attack) -> None:
    attack(work / name)
    with pytest.raises(door.Refused, match=why):
        door.read(work / name)
    with pytest.raises(door.Refused, match=why):
        door.keep(work / name, work.parent / name)
    assert os.listdir(work.parent) == ["work"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=[attack.__name__ for attack in ATTACKS.values()])
def test_traces_answers_and_tokens_that_are_no_plain_files_do_not_stop_the_run(work: Path, capsys, attack) -> None:
    for name in ("trace.json.gz", OUTPUTS, TOKENS):
        attack(work / name)
    measurement._keep_traces(work, work.parent)
    resume.keep(work)
    result = a_result(check={"passed": True, "reason": ""})
    judging.judge(None, a_job(), result, work, print)
    assert os.listdir(work.parent) == ["work"]
    assert not result.check["passed"] and "tokens.json" in result.check["reason"]
    assert OUTPUTS in capsys.readouterr().err


@pytest.mark.timeout(20)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=[attack.__name__ for attack in ATTACKS.values()])
def test_a_stored_result_that_is_no_plain_file_is_skipped_and_named(tmp_path: Path, work: Path, attack) -> None:
    attack(work / "result.json")
    work.rename(work.with_name("a.b-01"))
    records, skipped = results.load_all(tmp_path / "run")
    assert records == [] and [one.path.name for one in skipped] == ["a.b-01"]
    assert SECRET not in skipped[0].reason


def test_a_file_that_is_kept_has_the_bytes_and_the_mode_of_a_result(work: Path) -> None:
    (work / "trace.json.gz").write_bytes(b"kernels")
    (work / "trace.json.gz").chmod(0o600)
    assert door.move(work / "trace.json.gz", work.parent / "trace.json.gz")
    assert (work.parent / "trace.json.gz").read_bytes() == b"kernels" and (work.parent / "trace.json.gz").stat().st_mode & 0o777 == 0o644
    assert os.listdir(work) == []
    assert not door.keep(work / "trace.json.gz", work.parent / "trace.json.gz"), "a guest may leave none"


def test_a_link_never_moves_what_was_kept_before(work: Path) -> None:
    (work.parent / "trace.json.gz").symlink_to(work.parents[1] / "shadow")
    (work / "trace.json.gz").write_bytes(b"kernels")
    door.keep(work / "trace.json.gz", work.parent / "trace.json.gz")
    assert (work.parents[1] / "shadow").read_text() == SECRET


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 1_000_000, "lists and objects within each other"),
        (b'{"a":' * 13 + b"1" + b"}" * 13, "lists and objects within each other"),
        (b'{"a": 1e400}', "out of range"),
        (b'{"a": 1e18}', "< 1e"),
        (b'{"a": 100000000000000000000000}', "Expected `int` <="),
        (b'{"a": NaN}', "invalid"),
        (b'{"a": -Infinity}', "invalid"),
        (b'{"a": "\\ud800"}', "damaged"),
        (b'{"a": "\\udc00 "}', "surrogate"),
        (b'{"a": "\xed\xa0\x80"}', "decode"),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', "length <= 65536"),
        (b'{"' + b"x" * (1 << 20) + b'": 1}', "length <= 65536"),
        (b'{"a": [{"b": 1, "b": 2}]}', "the key 'b' comes twice"),
        (b"", "truncated"),
        (b"\x00\xff", "damaged"),
    ],
)
def test_json_beyond_the_limits_is_refused_in_one_short_line(text: bytes, why: str) -> None:
    with pytest.raises(door.Refused, match=why) as caught:
        door.parse(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"guest": {"a": 1, "load_s": 1e18}}', "guest.load_s: 1e+18"),
        ('{"guest": {"timed": [1, {"ms": -12345678901234567890}]}}', "guest.timed[1].ms: -1234567890123456789"),
        ('{"a": 1e400}', "a: inf"),
        ('{"a": ["' + "x" * 65537 + '"]}', "a[0]: 65,537 characters"),
        ('{"|\\n\\u202e": 1e18}', "|??: 1e+18"),
    ],
)
def test_what_is_refused_is_told_with_its_field_and_its_value(text: str, found: str) -> None:
    with pytest.raises(door.Refused) as caught:
        door.parse(text.encode())
    told = str(caught.value)
    assert told.startswith("damaged result.json: ") and f", found {found}" in told and len(told) < 300


def test_a_value_beyond_the_limits_behind_many_numbers_is_found_without_a_list_of_their_places() -> None:
    data = b'{"b":[' + b"0," * 300_000 + b"1e19]}"
    tracemalloc.start()
    try:
        with pytest.raises(door.Refused, match=r"found b\[300000\]: 1e\+19"):
            door.parse(data)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_a_checkpoint_with_links_or_pipes_in_it_is_refused(work: Path) -> None:
    (work / "shard").write_bytes(b"weights")
    door.check_folder(work.parent)
    for attack in (link, hard_link, pipe):
        attack(work / "shard-2")
        with pytest.raises(door.Refused, match="work/shard-2 is a"):
            door.check_folder(work.parent)
        (work / "shard-2").unlink()


def test_a_file_may_be_as_large_as_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert door.read(tmp_path / "file", 5) == b"12345"
    with pytest.raises(door.Refused, match="file has 5 bytes; 4 are allowed"):
        door.read(tmp_path / "file", 4)


def test_a_file_that_gives_more_than_its_size_is_refused_at_its_limit() -> None:
    """The kernel says that this file is empty, and gives a page of it at each reading."""
    with pytest.raises(door.Refused, match=r"maps has .* bytes; 5,000 are allowed"):
        door.read(Path("/proc/self/maps"), 5000)


def test_a_key_that_comes_twice_among_very_many_is_told_at_once() -> None:
    text = "{" + ",".join(f'"{number}": 1' for number in range(50_000)) + ', "49999": 2}'
    began = time.monotonic()
    with pytest.raises(door.Refused, match="the key '49999' comes twice"):
        door.parse(text.encode())
    assert time.monotonic() - began < 5, "the time grows with the keys, not with their square"
