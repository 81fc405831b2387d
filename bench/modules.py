"""Find backends and forms by name: the backend `layer-parallel` is the module bench/backends/layer_parallel.py."""

import importlib
import types


def find(kind: str, name: str) -> types.ModuleType:
    """The module of a "backend" or "form"; raises ValueError with the missing file's name."""
    file_name = name.replace("-", "_")
    module_name = "bench.{}s.{}".format(kind, file_name)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise ValueError("{} {!r} has no module bench/{}s/{}.py".format(kind, name, kind, file_name)) from None
