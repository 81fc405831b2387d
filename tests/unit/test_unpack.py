"""Unpacking an archive from elsewhere: on every Python that the kit runs on, and never outside its folder."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.errors import KitError
from scripts.machine import unpack

ROOT = Path(__file__).resolve().parents[2]


def member(name, content=b"", **fields):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, content


def archive(*members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as packed:
        for entry, content in members:
            packed.addfile(entry, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(stream.getvalue()))


@pytest.fixture
def packed_small(tmp_path):
    """Archives of a few kilobytes that unpack to 4 MiB: in a member, in a header, in several."""
    zeros = "0" * (4 << 20)
    several = [member(f"a/{number}", pax_headers={"comment": zeros[:7000]}) for number in range(12)]
    for name, entries in (("member", [member("a", zeros.encode())]), ("header", [member("a", pax_headers={"comment": zeros})]), ("headers", several)):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as packed:
            for entry, content in entries:
                packed.addfile(entry, io.BytesIO(content))
        assert (tmp_path / f"{name}.tar.gz").stat().st_size < 100_000
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("member", "exceeds the limit of 65,536 bytes"),
        ("header", "has a header of 4,194,321 bytes, allowed are 8,192"),
        ("headers", "unpacks to more than the limit of 65,536 bytes"),
    ],
)
def test_a_small_archive_that_unpacks_to_much_is_refused_before_it_is_written(packed_small, name, words):
    (packed_small / "out").mkdir()
    with pytest.raises(KitError, match=words), unpack.opened(packed_small / f"{name}.tar.gz", 1 << 16) as packed:
        unpack.unpack(packed, packed_small / "out", 1 << 16)
    assert not [path for path in (packed_small / "out").rglob("*") if path.is_file() and path.stat().st_size]


def test_headers_of_headers_without_end_are_one_line(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 512
    with gzip.open(tmp_path / "a.tar.gz", "wb") as packed:
        packed.write((header.tobuf(tarfile.GNU_FORMAT) + b"x" * 511 + b"\0") * 2000)
    with pytest.raises(KitError, match="a.tar.gz cannot be unpacked: .*recursion"), unpack.opened(tmp_path / "a.tar.gz", 1 << 30):
        pass


def test_an_archive_of_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MOST_MEMBERS", 3)
    with pytest.raises(KitError, match="member '3' exceeds the limit of 3 members"):
        unpack.unpack(archive(*(member(str(number)) for number in range(5))), tmp_path)


def test_files_and_folders_come_out_as_they_went_in(tmp_path):
    unpack.unpack(archive(member("a", type=tarfile.DIRTYPE), member("a/b.txt", b"one"), member("./c/d.txt", b"two")), tmp_path)
    assert ((tmp_path / "a/b.txt").read_bytes(), (tmp_path / "c/d.txt").read_bytes()) == (b"one", b"two")


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (member("/tmp/outside", b"x"), "leads outside"),
        (member("a/../../outside", b"x"), "leads outside"),
        (member("..", type=tarfile.DIRTYPE), "leads outside"),
        (member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or a device"),
        (member("link", type=tarfile.LNKTYPE, linkname="good.txt"), "a link or a device"),
        (member("pipe", type=tarfile.FIFOTYPE), "a link or a device"),
        (member("disk", type=tarfile.BLKTYPE), "a link or a device"),
        (member("good.txt", b"again"), "twice"),
        (member("\x1b[2Jchecked: all"), "a terminal cannot show"),
        (member("a\nb", b"x"), "a terminal cannot show"),
        (member("\udcff", b"x"), "a terminal cannot show"),
        (member("a/" * 40 + "b", b"x"), "more than 32 folders deep"),
    ],
)
def test_a_hostile_member_is_named_and_writes_nothing(tmp_path, hostile, why):
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(KitError, match=why) as told:
        unpack.unpack(archive(member("good.txt", b"good"), hostile), inside)
    assert repr(hostile[0].name)[:60] in str(told.value)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == ["inside/good.txt"]
    assert (inside / "good.txt").read_bytes() == b"good"


def test_members_that_are_larger_than_the_limit_together_are_refused_before_they_fill_the_disk(tmp_path):
    with pytest.raises(KitError, match="'b' exceeds the limit of 10 bytes"):
        unpack.unpack(archive(member("a", b"123456"), member("b", b"123456")), tmp_path, limit_bytes=10)
    assert not (tmp_path / "b").exists()
    with pytest.raises(KitError, match="'b' exceeds the limit of 11 bytes"):
        unpack.unpack(archive(member("b", b"123456789012")), tmp_path, limit_bytes=11)
    unpack.unpack(archive(member("b", b"123456789012")), tmp_path, limit_bytes=12)


def test_a_member_s_permissions_do_not_come_along(tmp_path):
    unpack.unpack(archive(member("program", b"x", mode=0o4777)), tmp_path)
    assert (tmp_path / "program").stat().st_mode & 0o7111 == 0


@pytest.mark.slow
def test_compare_and_verify_bundle_run_on_a_python_without_tarfile_s_filters(tmp_path):
    """As Debian 12's 3.11.2 has it: `extractall` knows no argument `filter`, and the module has no `data_filter`."""
    content = b"a result"
    sums = f"{hashlib.sha256(content).hexdigest()}  LICENSE\n".encode()
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as packed:
        for entry, text in (member("llm-repro-bundle/LICENSE", content), member("llm-repro-bundle/SHA256SUMS", sums)):
            packed.addfile(entry, io.BytesIO(text))
    program = (
        "import sys, tarfile\n"
        "new = tarfile.TarFile.extractall\n"
        "vars(tarfile).pop('data_filter', None)\n"
        "tarfile.TarFile.extractall = lambda self, path='.', members=None, *, numeric_owner=False: new(self, path)\n"
        "from scripts import results\n"
        "from scripts.report import compared_runs\n"
        "from scripts.errors import KitError\n"
        "from scripts.share import verified\n"
        "from pathlib import Path\n"
        "assert len(compared_runs.of('A', 'HEAD', results.RUNS)) > 50\n"
        "try:\n"
        "    verified.verify(Path(sys.argv[1]))\n"
        "except KitError as error:\n"
        "    assert 'README.md: a bundle needs' in str(error) and 'LICENSE' not in str(error), error\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bundle.tar.gz")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
