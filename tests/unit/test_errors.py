"""What an error quotes may come from others: it is shown without characters that move the cursor or colour the line."""

import errno
import os

import pytest

from scripts.errors import KitError, run_command


def test_an_error_shows_lines_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise KitError("a\x1b[2J\rb\u202ec\x9b\n  d")

    with pytest.raises(SystemExit) as ended:
        run_command(fail)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: a?[2J?b?c?\n  d\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT, errno.ENOSPC])
def test_a_disk_that_takes_nothing_more_is_one_line_with_the_file(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise OSError(number, os.strerror(number), "/runs/a/job.json")

    with pytest.raises(SystemExit) as ended:
        run_command(command)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and said.startswith("error: ") and "/runs/a/job.json" in said and "type the same again" in said and said.count("\n") == 1
