"""python -m scripts VERB --option: the kit's one command line; `make` is its short form."""

import sys

from scripts import INTERRUPTED
from scripts.machine import signals

signals.importing()
try:
    from scripts.commands.line import main

    main()
except ModuleNotFoundError as error:
    if (error.name or "").startswith(("scripts", "bench")):
        raise
    print(f"error: {sys.executable} has no {error.name}; type make VERB, which installs the tools into .venv, or make .venv/.run", file=sys.stderr)
    sys.exit(3)
except KeyboardInterrupt:  # during the imports, or while scripts/errors.py answers an earlier Ctrl-C
    print(INTERRUPTED, file=sys.stderr)
    sys.exit(130)
