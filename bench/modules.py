"""Find backends and forms by name: the backend `layer-parallel` is the module bench/backends/layer_parallel.py."""

import difflib
import importlib
import os
import types


class WrongModule(ValueError):
    """A backend or a form has no module, or one that lacks what it needs. Any other ValueError comes from the module's own code."""


def find(kind: str, name: str) -> types.ModuleType:
    """The module of a "backend" or "form"; raises WrongModule with the missing file's name."""
    file_name = name.replace("-", "_")
    module_name = "bench.{}s.{}".format(kind, file_name)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        near = difflib.get_close_matches(file_name, _file_names(kind), n=1)
        hint = "did you mean {!r}?".format(near[0].replace("_", "-")) if near else "write this file, as docs/adding.md shows"
        raise WrongModule("{} {!r} has no module bench/{}s/{}.py; {}".format(kind, name, kind, file_name, hint)) from None


def _file_names(kind):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), kind + "s")
    return [name[:-3] for name in sorted(os.listdir(folder)) if name.endswith(".py") and not name.startswith("_")]


def check_names(module: types.ModuleType, name: str, allowed: "tuple[str, ...] | None" = None) -> None:
    """Raise WrongModule where the module's list `name`, if any, is no tuple of texts, or has another text than the allowed ones."""
    values = getattr(module, name, ())
    if not isinstance(values, (tuple, list)) or not all(isinstance(value, str) for value in values):
        raise WrongModule("{} of {} is {!r}, allowed is a tuple of texts; a tuple of one text ends in a comma".format(name, file_of(module), values))
    unknown = [value for value in values if allowed is not None and value not in allowed]
    if unknown:
        raise WrongModule("{} of {} names {!r}, allowed are {}".format(name, file_of(module), unknown[0], ", ".join(allowed or ())))


def file_of(module: types.ModuleType) -> str:
    """The path of the module's file, relative to the kit's folder."""
    return module.__name__.replace(".", "/") + ".py"
