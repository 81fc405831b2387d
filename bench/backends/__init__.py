"""The ways to run a model, one module each: `layer-parallel` is `layer_parallel.py`.

A backend is a module with

    unsupported(job)   why this job cannot run here, or "". Asked before anything of the backend's library is imported
    load(job)          the model on its devices, as a Loaded
    ARGUMENTS          what an article's `load` may say beside `dtype` (optional)
    RANKS              True where it runs as one process for each GPU (optional; `python -m bench` starts them)
"""

import types

from bench import modules


class Loaded(types.SimpleNamespace):
    """A model ready to run.

    model    answers `model.generate(ids, **arguments)` and `model(ids).logits`
    device   where the prompt's ids have to be
    input_ids  the job's prompt on the device, [batch_size, tokens]; put there once the model is loaded
    folder   the job's own, the only one it may write; put there with the prompt
    prompt_ids  the ids that the calls really had, where a form renders its own: [rows, tokens], the same in every row; else input_ids
    answers  a list to which a form adds what its timed calls answered (bench/measuring/timed_tokens.py); put there with the prompt
    used     what was really used, for the result: dtype, device map, library file, layer class…
    """


def find(backend: str) -> types.ModuleType:
    """The module of a backend; raises ValueError with its file's name where there is none."""
    return modules.find("backend", backend)


def arguments(module: types.ModuleType) -> "tuple[str, ...]":
    """What `load` of a job may hold for this backend."""
    return ("dtype",) + getattr(module, "ARGUMENTS", ())
