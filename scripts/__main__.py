"""python -m scripts VERB --option: the kit's one command line; `make` is its short form."""

import os
import signal
import sys


def _end(*_: object) -> None:
    """Python drops an exception that comes at some places of an import, or makes another one of it; nothing is there to be released yet."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)  # until the verb is imported (scripts/commands/line.py)

try:
    from scripts.commands.line import main

    main()
except ModuleNotFoundError as error:
    if (error.name or "").startswith(("scripts", "bench")):
        raise
    print(f"error: {sys.executable} has no {error.name}; type make VERB, which installs the tools into .venv, or make .venv/.run", file=sys.stderr)
    sys.exit(3)
except KeyboardInterrupt:  # while the modules were imported, or while scripts/errors.py answered another
    print("interrupted", file=sys.stderr)
    sys.exit(130)
