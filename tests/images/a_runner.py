"""A runner to interrupt, kill and starve: python -m tests.images.a_runner IMAGE WORK_DIR GPU_COUNT COMMAND…

It says `started` with the first line of the container and prints every line.
"""

import os
import sys
from pathlib import Path

from scripts import surroundings
from scripts.containers import container
from scripts.containers.restrictions import Folders
from scripts.errors import run_command
from scripts.machine import gpus

BENCH = Path(__file__).resolve().parents[2] / "bench"


def main() -> int:
    surroundings.use(os.environ)
    image, work, count, *command = sys.argv[1:]
    client = container.connect()

    def compute(chosen: list[gpus.Gpu]) -> int:
        return container.run(
            client,
            image,
            command,
            run_id=Path(work).name,
            folders=Folders(Path(work), BENCH),
            gpus=chosen,
            timeout_s=120,
            on_line=lambda line: print(line, flush=True),
        ).exit_code

    if count == "0":
        return compute([])
    with gpus.select(count=int(count)) as chosen:
        return compute(chosen)


if __name__ == "__main__":
    run_command(main)
