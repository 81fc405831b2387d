"""pyxis before a job starts: the words of srun, what is said where something is missing, and the layers of an image as one tree of files."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from scripts import pins
from scripts.containers import pyxis, restrictions
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.images import squashfs
from scripts.machine.gpus import Gpu
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
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    return path


def arguments(tmp_path: Path, **more: object) -> list[str]:
    """What srun is asked for by a job."""
    (tmp_path / "work").mkdir()
    own = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf"}
    pyxis.run(Path("/sqsh/x.sqsh"), own, ["true"], work_dir=tmp_path / "work", bench_dir=tmp_path, timeout_s=20, **more)
    return (tmp_path / "arguments").read_text().split("\0")[:-1]


def test_srun_is_asked_for_one_process_on_the_runners_node_in_the_image(program: Path, tmp_path: Path) -> None:
    asked = arguments(tmp_path)
    assert {"--jobid=17", "--nodelist=node3", "--nodes=1", "--ntasks=1", "--overlap"} < set(asked)
    assert {"--container-image=/sqsh/x.sqsh", "--container-readonly", "--no-container-mount-home", "--no-container-entrypoint"} < set(asked)
    (mounts,) = (word.removeprefix("--container-mounts=").split(",") for word in asked if word.startswith("--container-mounts="))
    assert f"{tmp_path}/work:/run/job" in mounts and f"{tmp_path}:/kit/bench:ro" in mounts


def test_a_job_in_pyxis_gets_the_variables_of_image_and_kit_its_gpus_and_its_cores(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "ENROOT_MOUNT_HOME", "SLURM_CONTAINER_MOUNTS", "PYXIS_CONTAINER_MOUNTS"):
        monkeypatch.setenv(name, "/secret")
    asked = arguments(tmp_path, gpus=[Gpu(index, uuid(index), "Fake GPU", 80 << 30, 0, "9.0") for index in (1, 3)], cores="4-7")
    after = asked[asked.index("env") :]
    assert after[:2] == ["env", "-i"] and after[-1] == "true"
    place = after.index("taskset")
    gpus = f"{uuid(1)},{uuid(3)}"
    expected = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf", "CUDA_VISIBLE_DEVICES": gpus} | restrictions.ENVIRONMENT
    assert dict(word.split("=", 1) for word in after[2:place]) == expected
    assert after[place : place + 4] == ["taskset", "--cpu-list", "4-7", "python3"]
    of_srun = (tmp_path / "environment").read_text()
    assert f"NVIDIA_VISIBLE_DEVICES={gpus}\n" in of_srun and "/secret" not in of_srun


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_folder_that_pyxis_cannot_name_is_refused(program: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(PreflightError, match=f"/{name}' has a comma or a colon"):
        arguments(tmp_path, models_dir=tmp_path / name)


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURMD_NODENAME"])
def test_pyxis_outside_of_a_job_of_slurm_is_one_line(program: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(PreflightError, match="^ENGINE=pyxis runs on a node of a job of SLURM; type SCHEDULER=slurm"):
        engines.choose(IMAGE, [], Options(engine="pyxis"))


def test_a_cluster_without_pyxis_and_a_machine_without_srun_are_one_line(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    above = layer(
        ("a/changed", b"2"), ("a/.wh.gone", b""), ("b/own", b"2"), ("b/.wh..wh..opq", b""), ("c/d", b"2"), ("link", "-> /a/kept"), ("hard", "=> a/kept")
    )
    expected = {"a/kept": "1", "a/changed": "2", "b/own": "2", "c/d": "2", "link": "-> /a/kept", "hard": "1"}
    # `c` was a file and is a folder now, and the lower layer's folder `a`, which nobody may write, took files of the upper one.
    assert applied(tmp_path / "root", below, layer((".wh.c", b"")), above) == expected


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
        [("way", "-> ../secret"), ("hard", "=> way")],
        [(".wh...", b"")],
        [(".wh..", b"")],
        [("a/.wh.", b"")],
    ],
    ids=str,
)
def test_a_layer_that_leads_outside_is_refused_and_touches_nothing_there(tmp_path: Path, hostile: list[tuple[str, object]]) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(ValueError, match="outside"):
        applied(tmp_path / "root", layer(*hostile))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "secret"]
    assert not Path("/tmp/llm-repro-outside").exists() and (tmp_path / "secret").stat().st_nlink == 1


def test_an_image_with_damaged_layers_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/index.json").write_text('{"manifests": [{"digest": "sha256:' + 64 * "0" + '"}]}')
    with pytest.raises(KitError, match="the layers of an image cannot be unpacked"):
        squashfs.build(tmp_path / "images")
