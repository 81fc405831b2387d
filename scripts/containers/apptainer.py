"""One job in Apptainer, in a user namespace: no daemon and no root, and each process is a child of the runner's warden.

Apptainer starts a container also where it could not give what was asked for (`--nv` without a driver), so the kit looks before a job starts.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts import surroundings
from scripts.containers import process, restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.machine.gpus import Gpu

#: What Apptainer itself sees of this process's environment: APPTAINER_BIND and its like would show a job more than its folders.
PASSED = ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "APPTAINER_TMPDIR", "APPTAINER_CACHEDIR", "APPTAINER_CONFIGDIR")

#: --userns works without a setuid program, --containall leaves home, /tmp and processes out, --no-privs takes every capability, and
#: --no-mount leaves out what a site's own settings would mount.
RESTRICTIONS = (
    *("--userns", "--containall", "--no-home", "--no-mount", "bind-paths,hostfs,cwd", "--no-privs"),
    *("--hostname", "job", "--net", "--network", "none", "--cleanenv", "--no-eval"),
)

#: Where --nv puts the driver's libraries.
DRIVER_LIBRARIES = "/.singularity.d/libs"

#: Seconds for a command that only looks or lists.
LOOK_S = 300


def program() -> str:
    """The path of the program. Raises NothingRuns where there is none."""
    found = shutil.which("apptainer", path=surroundings.current().text("PATH") or None)
    if not found:
        raise NothingRuns("there is no apptainer on the PATH; load its module, or install Apptainer 1.4 or newer, or type another ENGINE=")
    return found


def environment() -> dict[str, str]:
    """The environment of Apptainer itself, of which nothing reaches a job."""
    return {name: value for name, value in surroundings.current().variables.items() if name in PASSED}


def run(
    sif: Path,
    image_environment: Mapping[str, str],
    command: Sequence[str],
    *,
    work_dir: Path,
    bench_dir: Path,
    models_dir: Path | None = None,
    linked_dirs: Sequence[Path] = (),
    gpus: Sequence[Gpu] = (),
    cores: str = "",
    timeout_s: float,
    on_line: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run `command` in an image, its output line by line to `on_line`; its processes end with it.

    The folders are those of `container.run`. `image_environment` is the image's own. `cores` are the processor cores that it stays on, "" for all.
    Raises KitError with the next command. There is no limit of memory, and with `gpus` a job can open every GPU of the machine.
    """
    restrictions.refuse_missing([folder for folder in (work_dir, bench_dir, models_dir, *linked_dirs) if folder])
    mounts = [word for mount in restrictions.mounts(work_dir, bench_dir, models_dir, linked_dirs) for word in ("--mount", _mount(mount))]
    words = [program(), "--silent", "exec", *RESTRICTIONS, *(["--nv"] if gpus else []), "--cwd", "/kit", *mounts, str(sif)]
    return process.run([*words, *_variables(image_environment, gpus), *command], Path("/"), environment(), timeout_s, on_line, cores)


def _mount(mount: Mapping[str, object]) -> str:
    """A mount in Apptainer's words, which are a line of CSV."""
    fields = ["type=bind", f"source={mount['Source']}", f"destination={mount['Target']}", *(["ro"] if mount["ReadOnly"] else [])]
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def _variables(image_environment: Mapping[str, str], gpus: Sequence[Gpu]) -> list[str]:
    """The command that gives a job its environment, as Docker would: the image's own and the kit's, nothing of Apptainer's."""
    own = dict(image_environment) | restrictions.ENVIRONMENT
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
        own["LD_LIBRARY_PATH"] = ":".join(filter(None, (own.get("LD_LIBRARY_PATH"), DRIVER_LIBRARIES)))
    return ["env", "-i", *(f"{name}={value}" for name, value in own.items())]


def output_of(sif: Path, image_environment: Mapping[str, str], command: Sequence[str], *options: str) -> str:
    """The output of a short command in an image without folders of this machine. Raises KitError with its last line where it fails."""
    done = call(["--silent", "exec", *RESTRICTIONS, *options, "--cwd", "/", str(sif), *_variables(image_environment, ()), *command], LOOK_S)
    if done.returncode != 0:
        raise KitError(f"Apptainer does not run {sif.name}: {last_line(done)}")
    return done.stdout


def call(words: Sequence[str], timeout_s: float | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Apptainer with these words, its output kept; `variables` are further ones of its own environment.

    Raises NothingRuns where the program cannot be started, KitError where it takes longer than `timeout_s`.
    """
    path = program()
    try:
        return subprocess.run(
            [path, *words],
            cwd="/",
            env=environment() | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except OSError as error:
        raise NothingRuns(f"{path} cannot be started ({error.strerror}); install Apptainer 1.4 or newer, or type another ENGINE=") from error
    except subprocess.TimeoutExpired as error:
        raise KitError(f"{path} has not answered `{words[1]}` within {timeout_s:.0f} s; see what the same command says in a terminal") from error


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a failed command said, or its exit code."""
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1] if said else f"exit code {done.returncode}"


def require_driver(sif: Path, image_environment: Mapping[str, str]) -> None:
    """Raise PreflightError where --nv does not bring the driver's libraries into a container: it starts without them, and says nothing."""
    listed = output_of(sif, image_environment, ["sh", "-c", f"ls {DRIVER_LIBRARIES} 2>/dev/null || true"], "--nv").split()
    if "libcuda.so.1" not in listed:
        raise PreflightError(
            "apptainer --nv brings no libcuda.so.1 into the container; `ldconfig -p | grep libcuda` and Apptainer's nvliblist.conf "
            "should list it, or type DEVICE=cpu"
        )
