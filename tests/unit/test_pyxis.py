"""pyxis before a job starts: the words of srun, what is said where something is missing, and the layers of an image as one tree of files."""

import ast
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from scripts import pins
from scripts.containers import pyxis, restrictions
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.images import squashfs
from scripts.machine.gpus import Gpu
from scripts.paths import ROOT
from scripts.run import engines
from scripts.run.options import Options
from tests.fakes.cdi import uuid

IMAGE = pins.load().image("layer-parallel", "current")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of srun, within a job of SLURM, a program that writes down its arguments and its environment."""
    path = tmp_path / "bin/srun"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && {{ echo "  --container-image=…"; exit 0; }}\n'
        f'printf "%s\\0" "$@" > {tmp_path}/arguments\n/usr/bin/env > {tmp_path}/environment\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(pyxis.atexit, "register", lambda *what: None)
    monkeypatch.setattr(pyxis, "_unpacked", {})
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    return path


def arguments(tmp_path: Path, models: Path | None = None, **more: object) -> list[str]:
    """What srun is asked for by a job."""
    (tmp_path / "work").mkdir()
    own = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf"}
    pyxis.unpack(Path("/sqsh/x.sqsh"), own)
    pyxis.run(Path("/sqsh/x.sqsh"), own, ["true"], folders=restrictions.Folders(tmp_path / "work", tmp_path, models), timeout_s=20, **more)
    return (tmp_path / "arguments").read_text().split("\0")[:-1]


def test_an_image_for_gpus_is_unpacked_with_a_look_for_their_driver(program: Path, tmp_path: Path) -> None:
    gpu = Gpu(0, uuid(0), "NVIDIA H200", 1, "9.0")
    for gpus, look in (([], ["true"]), ([gpu], ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"])):
        pyxis.unpack(Path("/sqsh/x.sqsh"), {}, gpus)
        assert (tmp_path / "arguments").read_text().split("\0")[-len(look) - 1 : -1] == look


def test_srun_is_asked_for_one_process_on_the_runners_node_in_the_image(program: Path, tmp_path: Path) -> None:
    asked = arguments(tmp_path)
    assert {"--jobid=17", "--nodelist=node3", "--nodes=1", "--ntasks=1", "--overlap"} < set(asked)
    assert {"--container-image=/sqsh/x.sqsh", "--container-readonly", "--no-container-mount-home", "--no-container-entrypoint"} < set(asked)
    documented = "--container-readonly --no-container-mount-home --no-container-entrypoint --no-container-remap-root --container-workdir=/kit"
    assert documented in " ".join(asked) and f"`{documented}`" in (ROOT / "docs/clusters.md").read_text()
    # The whole memory and all cores of the job; a running container of the same name is not entered, with its mounts in place of ours.
    assert {"--mem=0", "--cpu-bind=none", "--mpi=none", "--input=none", "--chdir=/", "--unbuffered"} < set(asked)
    assert re.fullmatch(r"llm-repro-17-\d+-\d+:no_exec", next(word for word in asked if word.startswith("--container-name=")).partition("=")[2])
    (mounts,) = (word.removeprefix("--container-mounts=").split(",") for word in asked if word.startswith("--container-mounts="))
    assert f"{tmp_path}/work:/run/job" in mounts and f"{tmp_path}:/kit/bench:ro" in mounts


def test_a_job_in_pyxis_gets_the_variables_of_image_and_kit_its_gpus_and_its_cores(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "ENROOT_MOUNT_HOME", "SLURM_CONTAINER_MOUNTS", "PYXIS_CONTAINER_MOUNTS"):
        monkeypatch.setenv(name, "/secret")
    asked = arguments(tmp_path, gpus=[Gpu(index, uuid(index), "Fake GPU", 80 << 30, "9.0") for index in (1, 3)], cores="4-7")
    after = asked[asked.index("env") :]
    assert after[:2] == ["env", "-i"] and after[-1] == "true"
    place = after.index("taskset")
    gpus = f"{uuid(1)},{uuid(3)}"
    expected = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf", "CUDA_VISIBLE_DEVICES": gpus} | restrictions.ENVIRONMENT
    assert dict(word.split("=", 1) for word in after[2:place]) == expected
    assert after[place : place + 4] == ["taskset", "--cpu-list", "4-7", "python3"]
    of_srun = (tmp_path / "environment").read_text()
    assert f"NVIDIA_VISIBLE_DEVICES={gpus}\n" in of_srun and "/secret" not in of_srun
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility\n" in of_srun, "without them enroot's hook brings no libcuda"


@pytest.mark.parametrize("name", ["a,b", "a:b", "a b", "a$(id)", "a'b"])
def test_a_folder_that_pyxis_cannot_name_is_refused(program: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(PreflightError, match="is no path for pyxis: allowed are letters, digits and"):
        arguments(tmp_path, models=tmp_path / name)


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURMD_NODENAME"])
def test_pyxis_outside_of_a_job_of_slurm_is_one_line(program: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(PreflightError, match="^ENGINE=pyxis runs on a node of a job of SLURM; type SCHEDULER=slurm"):
        engines.choose(IMAGE, [], Options(engine="pyxis"))


def test_a_cluster_without_pyxis_and_a_machine_without_srun_are_one_line(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write_text("#!/bin/sh\necho 'no controller' >&2; exit 1\n")
    with pytest.raises(PreflightError, match="srun --help fails: no controller"):
        engines.choose(IMAGE, [], Options(engine="pyxis"))
    program.write_text("#!/bin/sh\necho '  --nodes=N'\n")
    with pytest.raises(PreflightError, match="srun has no --container-image: this cluster has no pyxis; type ENGINE=apptainer"):
        engines.choose(IMAGE, [], Options(engine="pyxis"))
    program.unlink()
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(NothingRuns, match="srun cannot be started .*load SLURM's module"):
        engines.choose(IMAGE, [], Options(engine="pyxis"))


def test_an_image_that_enroot_does_not_unpack_is_one_line(program: Path) -> None:
    program.write_text("#!/bin/sh\necho 'pyxis: no space left' >&2\nexit 1\n")
    with pytest.raises(PreflightError, match="pyxis does not run x.sqsh: pyxis: no space left"):
        pyxis.unpack(Path("/sqsh/x.sqsh"), {})


def test_each_process_unpacks_an_image_of_its_own_and_removes_it(program: Path, tmp_path: Path) -> None:
    enroot = program.with_name("enroot")
    enroot.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/removed\n')
    enroot.chmod(0o755)
    code = "from pathlib import Path\nfrom scripts import surroundings\nimport os\nsurroundings.use(os.environ)\nfrom scripts.containers import pyxis\n"
    code += "pyxis.unpack(Path('/sqsh/x.sqsh'), {}); pyxis.unpack(Path('/sqsh/x.sqsh'), {}); print(*pyxis._unpacked.values())"
    names = [subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    assert len(set(names)) == 2 and all(re.fullmatch(r"llm-repro-17-\d+-0", name) for name in names)
    assert (tmp_path / "removed").read_text().splitlines() == [f"remove --force pyxis_{name}" for name in names]


def test_a_container_that_was_not_unpacked_to_its_end_is_never_run(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(PreflightError):
        pyxis.unpack(Path("/sqsh/x.sqsh"), {})
    program.write_text(good)
    monkeypatch.setattr(pyxis, "_names", iter([7]))
    pyxis.unpack(Path("/sqsh/x.sqsh"), {})
    assert pyxis._unpacked[Path("/sqsh/x.sqsh")].endswith("-7")


# Layers


def layer(*members: tuple[str, object]) -> tarfile.TarFile:
    """A layer of (name, content): bytes are a file, None is a folder, "-> path" a symbolic link, "=> path" a hard link, an int a device."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            elif content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o555
            elif isinstance(content, int):
                member.type = tarfile.CHRTYPE
            else:
                kind, _, member.linkname = str(content).partition(" ")
                member.type = tarfile.SYMTYPE if kind == "->" else tarfile.LNKTYPE
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return tarfile.open(fileobj=io.BytesIO(stream.getvalue()))


def tree(root: Path) -> dict[str, str]:
    """{path: content, or where a link leads} of all that is no folder."""
    there = (path for path in sorted(root.rglob("*")) if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(root)): f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text() for path in there}


def applied(root: Path, *layers: tarfile.TarFile) -> dict[str, str]:
    root.mkdir()
    for archive in layers:
        squashfs.apply(archive, root)
    return tree(root)


def test_a_layer_replaces_adds_and_takes_away(tmp_path: Path) -> None:
    below = layer(("./", None), ("a/", None), ("a/kept", b"1"), ("a/changed", b"1"), ("a/gone", b"1"), ("b/x", b"1"), ("c", b"1"), ("dev/null", 3))
    nested = layer(("n/m/below", b"1"), ("o/p/below", b"1"))
    opaque = layer(("n/m/own", b"2"), ("n/.wh..wh..opq", b""), ("nowhere/.wh..wh..opq", b""))
    above = layer(
        ("a/changed", b"2"),
        ("a/.wh.gone", b""),
        ("b/own", b"2"),
        ("b/.wh..wh..opq", b""),
        ("c/d", b"2"),
        ("link", "-> /a/kept"),
        ("hard", "=> a/kept"),
        ("second", "=> link"),
    )
    expected = {"a/kept": "1", "a/changed": "2", "b/own": "2", "c/d": "2", "link": "-> /a/kept", "hard": "1", "second": "-> /a/kept"}
    expected |= {"n/m/own": "2", "o/p/below": "1"}
    # `c` was a file and is a folder now, and the lower layer's folder `a`, which nobody may write, took files of the upper one.
    assert applied(tmp_path / "root", below, nested, opaque, layer((".wh.c", b"")), above) == expected


@pytest.mark.parametrize(
    "hostile",
    [
        [("../outside", b"x")],
        [("/outside", b"x")],
        [("way", "-> ../"), ("way/outside", b"x")],
        [("way", "-> /"), ("way/tmp/llm-repro-outside", b"x")],
        [("way", "-> .."), ("way/.wh.secret", b"")],
        [("way", "-> .."), ("way/.wh..wh..opq", b"")],
        [("hard", "=> ../secret")],
        [("way", "-> .."), ("hard", "=> way/secret")],
        [("/".join(["deep"] * 40), b"")],
        [(".wh...", b"")],
        [(".wh..", b"")],
        [("a/.wh.", b"")],
    ],
    ids=str,
)
def test_a_layer_that_leads_outside_is_refused_and_touches_nothing_there(tmp_path: Path, hostile: list[tuple[str, object]]) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(ValueError, match="outside|folders deep"):
        applied(tmp_path / "root", layer(*hostile))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "secret"]
    assert not Path("/tmp/llm-repro-outside").exists() and (tmp_path / "secret").stat().st_nlink == 1


def written(layout: Path, content: bytes) -> dict[str, str]:
    """The descriptor of a blob."""
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}"}


def image_of(layout: Path, *layers: tuple[bytes, bytes]) -> Path:
    """An OCI layout with one image: (a layer as it lies there, as the configuration names it) each."""
    config = {"rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}" for _, plain in layers]}}
    manifest = {"config": written(layout, json.dumps(config).encode()), "layers": [written(layout, packed) for packed, _ in layers]}
    (layout / "index.json").write_text(json.dumps({"manifests": [written(layout, json.dumps(manifest).encode())]}))
    return layout


@pytest.fixture
def squashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In place of mksquashfs a program that writes an empty file; returns the folder of an OCI layout."""
    program = tmp_path / "bin/mksquashfs"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n: > "$2"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress, lambda plain: gzip.compress(plain[:1536]) + gzip.compress(plain[1536:])])
def test_layers_are_read_to_their_end_however_they_are_packed(squashed: Path, pack: Callable[[bytes], bytes]) -> None:
    layers = [layer(("a", b"1"), ("b", b"1")).fileobj.getvalue(), layer((".wh.a", b""), ("run", "-> ../../outside"), ("c", b"2")).fileobj.getvalue()]
    old_mask = os.umask(0o077)
    try:
        squashfs.build(image_of(squashed, *((pack(plain), plain) for plain in layers)))
    finally:
        os.umask(old_mask)
    root = squashed.parent / "root"
    assert tree(root) == {"b": "1", "c": "2"}
    assert (root / "run/job").is_dir() and not (squashed.parent.parent / "outside").exists(), "a link of the image is no place for a mount"
    assert {(root / name).stat().st_mode & 0o777 for name in (".", "run", "run/job", "kit", "models")} == {0o755}


def hollow(plain: bytes) -> bytes:
    """A layer that lost its second half between two members of gzip."""
    return gzip.compress(plain[:1024])


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (layer(("a", b"2")).fileobj.getvalue(), "does not have the digest that the image's configuration names"),
        (hollow(layer(("a", b"1"), ("b", b"1")).fileobj.getvalue()), "does not have the digest|unexpected end"),
        (b"rubbish", "truncated|invalid|empty|bad"),
    ],
    ids=["another layer", "half a layer", "rubbish"],
)
def test_an_image_whose_layers_are_not_those_of_its_configuration_is_one_line(squashed: Path, packed: bytes, said: str) -> None:
    plain = layer(("a", b"1"), ("b", b"1")).fileobj.getvalue()
    with pytest.raises(KitError, match=f"the layers of an image cannot be unpacked: .*({said})"):
        squashfs.build(image_of(squashed, (packed, plain)))


def test_a_link_that_leads_to_itself_gives_way_to_a_folder(squashed: Path) -> None:
    plain = layer(("a", "-> a"), ("a/b", b"1")).fileobj.getvalue()
    squashfs.build(image_of(squashed, (plain, plain)))
    assert tree(squashed.parent / "root") == {"a/b": "1"}


def test_a_loop_of_links_hides_no_way_outside(squashed: Path) -> None:
    plain = layer(("a", "-> a/../../outside"), ("a/b", b"1")).fileobj.getvalue()
    with contextlib.suppress(KitError):
        squashfs.build(image_of(squashed, (plain, plain)))
    assert not list(squashed.parents[1].glob("outside*"))


def test_links_behind_a_path_that_is_too_long_for_the_kernel_lead_nowhere(squashed: Path) -> None:
    """As in CVE-2025-4517: beside each of 16 nested folders with long names a short link to it; behind all of them a link upwards."""
    names, members, folder = "abcdefghijklmnop", list[tuple[str, object]](), ""
    for name in names:
        members += [(folder + 247 * "d", None), (folder + name, "-> " + 247 * "d")]
        folder += 247 * "d" + "/"
    upwards = "/".join(names) + "/" + 254 * "l"
    members += [(upwards, "-> " + "../" * (len(names) + 1)), (upwards + "/escaped", b"out")]
    plain = layer(*members).fileobj.getvalue()
    with pytest.raises(KitError, match="the layers of an image cannot be unpacked"):
        squashfs.build(image_of(squashed, (plain, plain)))
    assert not [folder for folder, _, files in os.walk(squashed.parents[1]) if "escaped" in files]  # Path.rglob fails on such paths before Python 3.11.3


def test_an_image_that_is_larger_than_any_of_the_kit_is_one_line(squashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squashfs, "LIMIT_BYTES", 10)
    plain = layer(("a", b"12345"), ("b", b"123456")).fileobj.getvalue()
    with pytest.raises(KitError, match="'b' exceeds the limit of 10 bytes"):
        squashfs.build(image_of(squashed, (plain, plain)))


def test_the_warden_runs_by_the_oldest_python_of_the_images() -> None:
    """Python 3.8 evaluates annotations, and has neither `list[int]` nor `int | None`."""
    annotations = [node for node in ast.walk(ast.parse(pyxis.WARDEN[-1], feature_version=(3, 8))) if isinstance(node, ast.FunctionDef | ast.arg)]
    written = [node.returns if isinstance(node, ast.FunctionDef) else node.annotation for node in annotations]
    assert not [ast.unparse(node) for node in written if isinstance(node, ast.Subscript | ast.BinOp)]


def test_an_image_with_damaged_layers_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/index.json").write_text('{"manifests": [{"digest": "sha256:' + 64 * "0" + '"}]}')
    with pytest.raises(KitError, match="the layers of an image cannot be unpacked"):
        squashfs.build(tmp_path / "images")
