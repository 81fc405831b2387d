"""How a case calls the model, one module a form: `plain-batch` is `plain_batch.py`.

A form is a module with

    run(job, loaded, say)       (measurements, tokens, figures): the calls of job.runs as bench/measuring/measure.py times them; the new
                                tokens of the last call of the longest run, [rows, new tokens], where they continue the job's
                                own prompt, else None; and {name: data} of whatever else it measures, for Result.figures.
                                `loaded` is the backend's Loaded with the prompt as `loaded.input_ids`; `say(**event)`
                                tells progress, between timed calls only
    call(job, loaded, run, input_ids, **more)
                                the new tokens [rows, new tokens] of one more call of one of the job's runs on any prompt, for the
                                judge; needed where `run` adds a part of each run (bench/measuring/timed_tokens.py) to `loaded.answers`
    unsupported(job)            why this job cannot run here, or "" (optional); asked before anything is loaded
    LOADS                       False where it measures without the model: `loaded` is then None, and there is neither
                                a checkpoint nor an output check (optional)
    OPTIONS                     {name: the names within it, () for a plain value} of what an article's `options` may tell it (optional)
    TIMES_RUNS                  True where its measurements are those of each of the job's runs, with as many warm-up and timed calls as
                                the job asks for: the host then refuses any other number (optional)
"""

import types

from bench import modules
from bench.job import Job


def find(form: str) -> types.ModuleType:
    """The module of a form; raises ValueError with its file's name where there is none."""
    return modules.find("form", form)


def loads(module: types.ModuleType) -> bool:
    """Does this form measure a loaded model?"""
    return getattr(module, "LOADS", True)


def unsupported(module: types.ModuleType, job: Job) -> str:
    """Why this form cannot run the job here, or ""."""
    return module.unsupported(job) if hasattr(module, "unsupported") else ""


def options(module: types.ModuleType) -> "dict[str, tuple[str, ...]]":
    """{name: the names within it} of the options that this form reads."""
    return getattr(module, "OPTIONS", {})
