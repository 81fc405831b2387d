"""A simulated pyxis in front of a real srun: the container part of its options, done with unsquashfs, mount and chroot. Needs root and squashfs-tools.

It starts containers as root and separates nothing but files, so it says nothing of the privileges that a job has with the real pyxis.

    python pyxis.py FOLDER SRUN OPTION… COMMAND…    what a cluster's srun is; FOLDER keeps the unpacked images
    python pyxis.py --inside WORDS COMMAND…         what runs on the node, in a mount namespace of its own
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.slurm import Cluster

HELP = "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n      --container-mounts=SRC:DST[:FLAGS][,SRC:DST...]\n"


def main(arguments: list[str]) -> None:
    folder, srun, *words = arguments
    if words == ["--help"]:
        done = subprocess.run([srun, "--help"], capture_output=True, text=True, check=True)
        print(done.stdout + HELP)
        return
    count = next((place for place, word in enumerate(words) if not word.startswith("--")), len(words))
    options, command = words[:count], words[count:]
    of_pyxis = [word for word in options if word.startswith(("--container-", "--no-container-"))]
    own = dict(word.removeprefix("--").partition("=")[::2] for word in of_pyxis)
    if own:
        inside = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--inside", json.dumps(own | {"folder": folder})]
        command = inside + command
    os.execv(srun, [srun, *(word for word in options if word not in of_pyxis), *command])


def inside(own: dict[str, str], command: list[str]) -> None:
    name, _, flag = own["container-name"].partition(":")
    assert flag == "no_exec", "without it the real pyxis enters a container of that name that runs, with the mounts of another job"
    root = Path(own["folder"]) / f"pyxis_{name}"
    if not root.exists():
        subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", str(root), own["container-image"]], check=True, stdout=subprocess.DEVNULL)
    mount("--bind", str(root), str(root))
    shown = [(text.split(":") + [""])[:3] for text in own.get("container-mounts", "").split(",") if text]
    for source, target, flags in [("/dev", "/dev", ""), ("/proc", "/proc", ""), *shown]:
        place = f"{root}{target}"
        os.makedirs(place, exist_ok=True)
        mount("--rbind", source, place)
        if flags == "ro":
            mount("-o", "remount,bind,ro", place)
    if "container-readonly" in own:
        mount("-o", "remount,bind,ro", str(root))
    os.chroot(root)
    os.chdir(own.get("container-workdir", "/"))
    os.execvp(command[0], command)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@contextlib.contextmanager
def job(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A job of a real SLURM whose srun has the simulated pyxis: the variables of a process on its node."""
    with tempfile.TemporaryDirectory(prefix="llm-repro-test-pyxis-", dir="/tmp") as name:
        folder = Path(name)
        program = folder / "bin/srun"
        program.parent.mkdir()
        root = Path(__file__).parents[2]
        program.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} {__file__} {folder} {shutil.which("srun")} "$@"\n')
        program.chmod(0o755)
        enroot = program.with_name("enroot")
        enroot.write_text(f'#!/bin/sh\n[ "$1 $2" = "remove --force" ] && rm -rf {folder}/"$3"\n')
        enroot.chmod(0o755)
        cluster.run("salloc", "--no-shell", "--exclusive", "--mem=0")
        ((number, _, node),) = cluster.jobs()
        path = f"{program.parent}:{os.environ['PATH']}"
        yield {"PATH": path, "SLURM_CONF": cluster.environment["SLURM_CONF"], "SLURM_JOB_ID": number, "SLURMD_NODENAME": node}
        cluster.run("scancel", number)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(json.loads(sys.argv[2]), sys.argv[3:])
    else:
        main(sys.argv[1:])
