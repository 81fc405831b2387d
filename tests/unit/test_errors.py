"""What an error quotes may come from others: it is shown without characters that move the cursor or colour the line."""

import pytest

from scripts.errors import KitError, run_command


def test_an_error_shows_lines_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise KitError("a\x1b[2J\rb\u202ec\x9b\n  d")

    with pytest.raises(SystemExit) as ended:
        run_command(fail)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: a?[2J?b?c?\n  d\n"
