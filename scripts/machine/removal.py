"""Remove a folder that a guest filled."""

import subprocess
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as this user may; a link is removed, but not its target.

    `shutil.rmtree` of Python before 3.13 raises RecursionError for a thousand nested folders, and the path
    of several thousand is longer than the system allows. `rm` removes any depth. Ctrl-C reaches every process of the terminal's foreground group,
    so `rm` has a group of its own: half a folder without its lock would stay forever.
    """
    subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False, start_new_session=True)
