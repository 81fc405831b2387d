"""SHA256SUMS of folders that nobody vouches for."""

from pathlib import Path

import pytest

from scripts.machine import checksums


@pytest.mark.timeout(20)
def test_a_long_list_of_files_that_are_not_there_is_compared_at_once(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("changed")
    listed = {f"missing-{number:06d}": "0" * 64 for number in range(30_000)} | {"b": "0" * 64}
    missing, changed = checksums.compare(tmp_path, listed)
    assert (len(missing), missing[0], changed) == (30_000, "missing-000000", ["b"])


@pytest.mark.parametrize("name", ["a" * 256, f"tools/{'é' * 128}", "/".join(["a" * 200] * 11)])
def test_a_name_that_no_file_can_have_is_named_by_its_line(name: str) -> None:
    with pytest.raises(ValueError, match="line 1 names .*…, which is longer than a file's name"):
        checksums.parse(f"{'0' * 64}  {name}\n")
    assert checksums.parse(f"{'0' * 64}  {'a' * 255}\n")
