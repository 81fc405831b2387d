"""The engines under one contract: each runs a command with the same folders, however it does so.

As a program it is a runner to kill: python -m tests.images.places ENGINE WORK BENCH MODELS IMAGE FILE COMMAND…; it prints every line of the job.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts import surroundings
from scripts.containers import apptainer, container, podman, pyxis
from scripts.containers.container import Outcome
from scripts.containers.restrictions import Folders
from scripts.run.engines import host

#: The ordinary user of .ci/next.sh.
PERSON = 4321

#: What each engine does not do; docs/clusters.md tells users the same.
#:
#: isolation      a job sees and reaches what the user does
#: memory         no limit of memory
#: exit_127       a command that is not there ends with another code than 127
#: run_in_memory  a job may also write /run, which lies in memory and ends with it
#: network        a job reaches what the node reaches
#: processes      a job sees the node's processes and devices, and its name
#: privileges     not known: the simulated pyxis starts jobs as root
#: at_once        a job that is killed ends some milliseconds after the runner goes on
EXCEPTIONS = {
    "docker": set(),
    "podman": {"exit_127"},
    "podman-rootless": {"exit_127", "run_in_memory"},
    "apptainer": {"memory", "exit_127"},
    "apptainer-person": {"memory", "exit_127"},
    "pyxis": {"memory", "network", "processes", "privileges", "at_once"},
    "host": {"isolation", "memory"},
}

NAMES = tuple(EXCEPTIONS)

#: Engines whose containers are children of a daemon and outlive a killed runner until the next one comes.
WITH_A_DAEMON = ("docker", "podman", "podman-rootless")


@dataclasses.dataclass(frozen=True)
class Place:
    """An engine and what it needs: `image` is a tag for those with a daemon, `file` an image file with its environment beside it."""

    name: str
    image: str
    file: Path

    def variables(self) -> Mapping[str, str]:
        """What has to be set for this engine beside what is."""
        if self.name == "podman-rootless":
            return {"CONTAINER_HOST": os.environ["KIT_TEST_ROOTLESS"]}
        if self.name == "apptainer-person":
            return {"PATH": f"{os.environ['KIT_TEST_PERSON_BIN']}:{os.environ['PATH']}"}
        return {}

    @property
    def environment(self) -> dict[str, str]:
        return json.loads(self.file.with_suffix(".json").read_text())

    def client(self) -> object:
        return container.connect() if self.name == "docker" else podman.connect()

    @property
    def user(self) -> int:
        """Who owns the files of a job whose runner is this process."""
        if self.name in ("podman-rootless", "apptainer-person"):
            return PERSON
        return 10001 if self.name in WITH_A_DAEMON and os.getuid() == 0 else os.getuid()

    def run(self, command: list[str], folders: Folders, on_line: Callable[[str], None], timeout_s: float = 60, **more: object) -> Outcome:
        if self.name == "host":
            return host.run(Path(sys.executable), command[1:], folders.work, [], timeout_s, on_line, str(more.get("cores", "")))
        if self.name.startswith("apptainer"):
            return apptainer.run(self.file, self.environment, command, folders=folders, timeout_s=timeout_s, on_line=on_line, **more)
        if self.name == "pyxis":

            def of_the_job(line: str) -> None:
                own = line.partition("srun: ")[0]  # srun's words stand in a log among a job's
                if own:
                    on_line(own)

            pyxis.unpack(self.file, self.environment)
            return pyxis.run(self.file, self.environment, command, folders=folders, timeout_s=timeout_s, on_line=of_the_job, **more)
        return container.run(self.client(), self.image, command, run_id="contract", folders=folders, timeout_s=timeout_s, on_line=on_line, **more)


def main() -> int:
    surroundings.use(os.environ)
    name, work, bench, models, image, file, *command = sys.argv[1:]
    place = Place(name, image, Path(file))
    return place.run(command, Folders(Path(work), Path(bench), Path(models)), lambda line: print(line, flush=True)).exit_code


if __name__ == "__main__":
    sys.exit(main())
