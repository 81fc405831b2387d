"""One job in a container of pyxis, a plugin of SLURM: srun starts it on the node of the runner, and enroot unpacks its image there.

srun's options are those of https://github.com/NVIDIA/pyxis/wiki/Usage. pyxis isolates files, but neither the network nor processes. A container
has a name, so that enroot unpacks the image once for each process of the kit, before a job starts and its time limit runs.
"""

import atexit
import contextlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts import surroundings
from scripts.containers import process, programs, restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError, PreflightError
from scripts.machine import temporary_folders, warden
from scripts.machine.gpus import Gpu

#: The variables of this process that srun itself sees. SLURM's and enroot's others are left out: their options may show a job more than its folders.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "SLURM_CONF")

#: The whole allocation, for one process that srun binds to no cores. A step gets the allocation's GPUs without asking for them.
STEP = ("--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--unbuffered", "--quiet", "--input=none", "--chdir=/")

#: The image's files are read-only, the user's home is not mounted, no program of the image runs before the job, and the user stays the same inside.
RESTRICTIONS = ("--container-readonly", "--no-container-mount-home", "--no-container-entrypoint", "--no-container-remap-root", "--container-workdir=/kit")

#: srun's input is a named pipe, opened to read and to write. It has no other writer, so it ends when srun ends or is killed.
OPEN_INPUT = 'exec "$@" 0<>"$0"'

#: In the container the warden reads the same pipe, and ends the job when the pipe ends: a killed srun does not end its step.
READ_INPUT = "import os; os.dup2(os.open('/tmp/input', os.O_RDONLY | os.O_NONBLOCK), 0); os.unlink('/tmp/input')\n"
WARDEN = ("python3", "-I", "-S", "-c", READ_INPUT + Path(warden.__file__).read_text(encoding="utf-8"))

#: Seconds for enroot to unpack an image; on slow disks that takes minutes.
UNPACK_S = 3600

#: Seconds for enroot to remove it again.
REMOVE_S = 600

INSTEAD = "load SLURM's module, or type another ENGINE="


def require() -> None:
    """Raise PreflightError outside of a job of SLURM or without pyxis, NothingRuns without srun."""
    done = programs.call(["srun", "--help"], environment(), INSTEAD, 60)
    if done.returncode != 0:
        raise PreflightError(f"srun --help fails: {programs.last_line(done)}; {INSTEAD}")
    if "--container-image" not in done.stdout:
        raise PreflightError("srun has no --container-image: this cluster has no pyxis; type ENGINE=apptainer or another ENGINE=")
    _job()


def _job() -> tuple[str, str]:
    """The number of the job that this process belongs to, and its node."""
    variables = surroundings.current().variables
    number, node = variables.get("SLURM_JOB_ID", ""), variables.get("SLURMD_NODENAME", "")
    if not (number and node):
        raise PreflightError("ENGINE=pyxis runs on a node of a job of SLURM; type SCHEDULER=slurm, or the same command within `srun --pty bash`")
    return number, node


def environment(gpus: Sequence[Gpu] = ()) -> dict[str, str]:
    """The environment of srun, which enroot reads to bring GPUs and driver in; nothing of it reaches a job."""
    own = surroundings.current().only(PASSED)
    if gpus:
        own |= {"NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    return own


#: {image file: the name of its container}, of the containers that this process has unpacked. The names are of this process alone: pyxis
#: would enter a running container of the same name, with that container's mounts in place of ours, or use one that was never fully unpacked.
_unpacked: dict[Path, str] = {}
_names = itertools.count()


def _step(squashfs: Path, name: str, mounts: Sequence[str] = ()) -> list[str]:
    """The words of srun before a command in the container of that name, which is unpacked unless it is there."""
    number, node = _job()
    image = [f"--container-image={_plain(str(squashfs.absolute()))}", f"--container-name={name}:no_exec"]
    shown = [f"--container-mounts={','.join(mounts)}"] if mounts else []
    return ["srun", f"--jobid={number}", f"--nodelist={node}", *STEP, *image, *RESTRICTIONS, *shown]


def unpack(squashfs: Path, image_environment: Mapping[str, str], gpus: Sequence[Gpu] = ()) -> None:
    """Unpack an image for this process. Raises PreflightError where enroot cannot, or where a container lacks the GPUs' driver."""
    look = ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"] if gpus else ["true"]
    name = _unpacked.get(squashfs)
    if not name:
        name = f"llm-repro-{_job()[0]}-{os.getpid()}-{next(_names)}"
        atexit.register(_forget, name)
    words = [*_step(squashfs, name), *restrictions.environment(image_environment, gpus), *look]
    done = programs.call(words, environment(gpus), INSTEAD, UNPACK_S)
    if done.returncode != 0:
        raise PreflightError(f"pyxis does not run {squashfs.name}: {programs.last_line(done)}; see what `{' '.join(words[:3])} …` says in a terminal")
    _unpacked[squashfs] = name


def _forget(name: str) -> None:
    """Remove a container from this node, where pyxis keeps it longer than its job."""
    with contextlib.suppress(KitError):
        programs.call(["enroot", "remove", "--force", f"pyxis_{name}"], environment(), INSTEAD, REMOVE_S)


def run(
    squashfs: Path,
    image_environment: Mapping[str, str],
    command: Sequence[str],
    *,
    folders: restrictions.Folders,
    gpus: Sequence[Gpu] = (),
    cores: str = "",
    timeout_s: float,
    on_line: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run `command` in the container of an image that `unpack` made, its output line by line to `on_line`; its processes end with it.

    `image_environment` is the image's own. `cores` are the processor cores that it stays on, "" for all.
    Raises KitError with the next command. The limit of memory is that of the job of SLURM.
    """
    restrictions.refuse_missing([folders.work, *folders.read_only])
    mounts = [_mount(mount) for mount in folders.mounts()]
    near = ["taskset", "--cpu-list", cores] if cores else []
    inside = [*restrictions.environment(image_environment, gpus), *near, *WARDEN, *command]

    def start(folder: Path) -> Outcome:
        (folder / "tmp").mkdir()
        os.mkfifo(folder / "tmp/input")
        words = [*_step(squashfs, _unpacked[squashfs], [f"{_plain(str(folder / 'tmp'))}:/tmp", *mounts]), *inside]
        return process.run(["sh", "-c", OPEN_INPUT, str(folder / "tmp/input"), *words], Path("/"), environment(gpus), timeout_s, on_line)

    return process.with_folder(temporary_folders.OF_PYXIS, start)


def _mount(mount: Mapping[str, object]) -> str:
    return f"{_plain(str(mount['Source']))}:{_plain(str(mount['Target']))}{':ro' if mount['ReadOnly'] else ''}"


def _plain(path: str) -> str:
    """A path that pyxis takes unchanged, although it writes the path into a script of bash and splits it. Raises PreflightError for others."""
    if not re.fullmatch(r"[A-Za-z0-9._/@+=-]+", path):
        raise PreflightError(f"{path!r} is no path for pyxis: allowed are letters, digits and ._/@+=-; move it, or type another RUNS=, MODELS= or ENGINE=")
    return path
