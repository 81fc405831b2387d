"""axe-core, which finds text without contrast: the script that the package axe-core-python holds. It is never shipped."""

import importlib.util
from pathlib import Path


def script() -> str:
    """The text of axe.min.js; the package itself is not imported, because it asks for a browser driver."""
    found = importlib.util.find_spec("axe_core_python")
    assert found and found.origin, "axe-core-python is in the group dev of the tools; type make .venv/.dev"
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
