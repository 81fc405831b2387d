"""One job in Apptainer, in a user namespace: no daemon and no root, and each process is a child of the runner's warden.

Apptainer starts a container even where it cannot provide what was asked for (`--nv` without a driver), so the kit checks before a job starts.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts import surroundings
from scripts.containers import process, programs, restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.machine.gpus import Gpu

#: The variables of this process that Apptainer itself sees. APPTAINER_BIND and its like are left out: they would show a job more than its folders.
PASSED = ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "APPTAINER_TMPDIR", "APPTAINER_CACHEDIR", "APPTAINER_CONFIGDIR")

#: --userns works without a setuid program, --containall leaves home, /tmp and processes out, --no-privs drops every capability, and
#: --no-mount leaves out what a site's own settings would mount.
RESTRICTIONS = (
    *("--userns", "--containall", "--no-home", "--no-mount", "bind-paths,hostfs,cwd", "--no-privs"),
    *("--hostname", "job", "--net", "--network", "none", "--cleanenv", "--no-eval"),
)

#: Where --nv puts the driver's libraries.
DRIVER_LIBRARIES = "/.singularity.d/libs"

#: What a user without a working Apptainer can do.
INSTEAD = "install Apptainer 1.4 or newer, or type another ENGINE="

#: Seconds for a command that only looks or lists.
LOOK_S = 300


def program() -> str:
    """The path of the program. Raises NothingRuns where there is none."""
    found = shutil.which("apptainer", path=surroundings.current().text("PATH") or None)
    if not found:
        raise NothingRuns(f"there is no apptainer on the PATH; load its module, or {INSTEAD}")
    return found


def environment() -> dict[str, str]:
    """The environment of Apptainer itself; nothing of it reaches a job."""
    return surroundings.current().only(PASSED)


def run(
    sif: Path,
    image_environment: Mapping[str, str],
    command: Sequence[str],
    *,
    folders: restrictions.Folders,
    gpus: Sequence[Gpu] = (),
    cores: str = "",
    timeout_s: float,
    on_line: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run `command` in an image, its output line by line to `on_line`; its processes end with it.

    `image_environment` is the image's own. `cores` are the processor cores that it stays on, "" for all.
    Raises KitError with the next command. There is no limit of memory, and with `gpus` a job can open every GPU of the machine.
    """
    restrictions.refuse_missing([folders.work, *folders.read_only])
    mounts = [word for mount in folders.mounts() for word in ("--mount", _mount(mount))]
    words = [program(), "--silent", "exec", *RESTRICTIONS, *(["--nv"] if gpus else []), "--cwd", "/kit", *mounts, str(sif)]
    return process.run(
        [*words, *restrictions.environment(image_environment, gpus, DRIVER_LIBRARIES), *command], Path("/"), environment(), timeout_s, on_line, cores
    )


def _mount(mount: Mapping[str, object]) -> str:
    """A mount as Apptainer takes it: a line of CSV."""
    fields = ["type=bind", f"source={mount['Source']}", f"destination={mount['Target']}", *(["ro"] if mount["ReadOnly"] else [])]
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def output_of(sif: Path, image_environment: Mapping[str, str], command: Sequence[str], *options: str) -> str:
    """The output of a short command in an image; the command sees no folder of this machine. Raises KitError with its last line where it fails."""
    done = call(["--silent", "exec", *RESTRICTIONS, *options, "--cwd", "/", str(sif), *restrictions.environment(image_environment), *command], LOOK_S)
    if done.returncode != 0:
        raise KitError(f"Apptainer does not run {sif.name}: {programs.last_line(done)}")
    return done.stdout


def call(words: Sequence[str], timeout_s: float | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Apptainer with these words, its output kept; `variables` are further ones of its own environment. Raises what `programs.call` raises."""
    return programs.call([program(), *words], environment() | variables, INSTEAD, timeout_s)


def require_driver(sif: Path, image_environment: Mapping[str, str]) -> None:
    """Raise PreflightError where --nv does not bring the driver's libraries into a container: Apptainer starts it without them, and says nothing."""
    listed = output_of(sif, image_environment, ["sh", "-c", f"ls {DRIVER_LIBRARIES} 2>/dev/null || true"], "--nv").split()
    if "libcuda.so.1" not in listed:
        raise PreflightError(
            "apptainer --nv brings no libcuda.so.1 into the container; `ldconfig -p | grep libcuda` and Apptainer's nvliblist.conf "
            "should list it, or type DEVICE=cpu"
        )
