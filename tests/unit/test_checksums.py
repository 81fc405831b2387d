"""SHA256SUMS of folders that nobody vouches for."""

from pathlib import Path

import pytest

from scripts.machine import checksums


@pytest.mark.timeout(20)
def test_a_long_list_of_files_that_are_not_there_is_compared_at_once(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("changed")
    listed = {f"missing-{number:06d}": "0" * 64 for number in range(100_000)} | {"b": "0" * 64}
    missing, changed = checksums.compare(tmp_path, listed)
    assert (len(missing), missing[0], changed) == (100_000, "missing-000000", ["b"])
