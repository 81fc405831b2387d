"""A log of a job that never stops talking: its beginning, its end, and how much is between."""

from pathlib import Path

from scripts.machine.bounded_log import BoundedLog
from scripts.machine.lines import Lines


def written(path: Path, count: int) -> BoundedLog:
    log = BoundedLog(path, head_bytes=1000, tail_bytes=2000)
    for number in range(count):
        log.line(f"line {number:05d}")
    return log


def test_a_short_log_is_kept_as_it_is(tmp_path: Path) -> None:
    written(tmp_path / "log.txt", 200).close()
    assert (tmp_path / "log.txt").read_text() == "".join(f"line {number:05d}\n" for number in range(200))


def test_a_long_log_keeps_both_ends_and_says_how_much_is_gone(tmp_path: Path) -> None:
    written(tmp_path / "log.txt", 10_000).close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    (gap,) = (number for number, line in enumerate(lines) if line.startswith("…"))
    head, tail = lines[:gap], lines[gap + 1 :]
    assert head == [f"line {number:05d}" for number in range(len(head))] and len(head) > 80
    assert tail == [f"line {number:05d}" for number in range(10_000 - len(tail), 10_000)] and len(tail) > 150
    left_out_bytes = (10_000 - len(head) - len(tail)) * len("line 00000\n")
    assert f"{left_out_bytes:,} bytes are left out here" in lines[gap]


def test_a_writer_that_is_killed_leaves_a_bounded_log_with_its_last_line(tmp_path: Path) -> None:
    written(tmp_path / "log.txt", 10_000)  # and never closed
    text = (tmp_path / "log.txt").read_text()
    assert len(text) < 6000 and text.endswith("line 09999\n")


def test_a_closed_log_keeps_no_more_of_its_end_than_the_limit(tmp_path: Path) -> None:
    log = written(tmp_path / "log.txt", 400)  # of which no line was left out yet
    assert (tmp_path / "log.txt").stat().st_size == 4400
    log.close()
    text = (tmp_path / "log.txt").read_text()
    assert 2900 < len(text) < 3200 and "bytes are left out here" in text and text.endswith("line 00399\n")


def test_lines_come_whole_from_chunks_of_any_size() -> None:
    lines = Lines()
    seen = [line for chunk in (b"on", b"e\r\ntw", b"o\n\nth", b"ree") for line in lines.feed(chunk)]
    assert seen + list(lines.rest()) == ["one", "two", "", "three"]


def test_a_line_after_one_that_was_cut_is_whole() -> None:
    lines = Lines()
    long, short = lines.feed(b"x" * 100_000 + b"\nshort\n")
    assert long == "x" * 65536 + "… (34,464 more bytes of this line are left out)" and short == "short"
