"""Large files in pieces."""

import subprocess
import threading

import pytest

from scripts.images import pieces


def write(folder, content, piece_bytes, chunk=7):
    with pieces.writing(folder, "a.tar", piece_bytes) as writer:
        for start in range(0, len(content), chunk):
            writer.write(content[start : start + chunk])
        return writer.finish()


@pytest.mark.parametrize(("size", "piece_bytes", "names"), [(10, None, ["a.tar"]), (10, 10, ["a.tar"]), (10, 4, ["a.tar.000", "a.tar.001", "a.tar.002"])])
def test_a_file_is_cut_where_a_piece_is_full(tmp_path, size, piece_bytes, names):
    content = bytes(range(size))
    paths = write(tmp_path, content, piece_bytes)
    assert [path.name for path in paths] == names == sorted(path.name for path in tmp_path.iterdir())
    assert all(path.stat().st_size <= (piece_bytes or size) for path in paths)
    assert b"".join(pieces.joined(pieces.of(tmp_path, "a.tar"))) == content


def test_a_shell_joins_the_pieces(tmp_path):
    content = bytes(range(256)) * 50
    write(tmp_path, content, 1000)
    assert subprocess.run("cat a.tar.*", shell=True, cwd=tmp_path, capture_output=True).stdout == content


def test_more_than_a_thousand_pieces_keep_their_order(tmp_path):
    content = bytes(range(251)) * 5
    write(tmp_path, content, 1)
    assert b"".join(pieces.joined(pieces.of(tmp_path, "a.tar"))) == content
    names = sorted(path.name for path in tmp_path.iterdir())
    assert pieces.listed(names, "a.tar")[999:1002] == ["a.tar.999", "a.tar.1000", "a.tar.1001"] != names[999:1002]


def test_an_archive_that_was_larger_leaves_no_piece(tmp_path):
    write(tmp_path, bytes(10), 2)
    write(tmp_path, bytes(3), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.000", "a.tar.001"]
    write(tmp_path, bytes(3), None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


def test_what_was_cut_off_leaves_the_earlier_archive_as_it_was(tmp_path):
    write(tmp_path, b"earlier", 4)
    with pytest.raises(OSError, match="no space"), pieces.writing(tmp_path, "a.tar", 4) as writer:
        writer.write(b"later on")
        raise OSError("no space")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.000", "a.tar.001"]
    assert b"".join(pieces.joined(pieces.of(tmp_path, "a.tar"))) == b"earlier"


def test_a_second_command_waits_for_the_end_of_one_that_writes_the_same_archive(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    with pieces.writing(here, "a.tar", 4) as writer:
        writer.write(b"earlier")
        assert write(elsewhere, b"new", 4) == [elsewhere / "a.tar"], "another folder has another archive"
        other = threading.Thread(target=write, args=(here, b"new", 4))
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert [path.read_bytes() for path in writer.finish()] == [b"earl", b"ier"]
    other.join(20)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {"a.tar": b"new"}


def test_the_name_of_a_piece_is_that_of_its_file():
    assert pieces.name_of("hopper.oci.tar.zst.012") == "hopper.oci.tar.zst" == pieces.name_of("hopper.oci.tar.zst")
