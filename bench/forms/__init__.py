"""Forms: the ways in which a case calls the model, one module per form. The form `plain-batch` is `plain_batch.py`.

A form is a module with

    run(job, loaded, say)       (measurements, tokens, figures): the calls of job.runs, timed by bench/measuring/measure.py; the new tokens
                                [rows, new tokens] of the last call of the longest run, where they continue the job's own prompt,
                                else None; and {name: data} of its other measurements, for Result.figures. `loaded` is the backend's
                                Engine with the prompt as `loaded.input_ids`; `say(**event)` reports progress, only between timed calls.
                                A form that computes by parts of its own sets `loaded.last_logits` to theirs, for the output check
    NEEDS                       the abilities of bench/backends/__init__.py that the engine must have beside `logits` (optional; default: all,
                                with the model itself). The host reads it too, and refuses a case whose backend does not fit
    call(job, loaded, run, input_ids, **more)
                                the new tokens [rows, new tokens] of one further call of a run on any prompt, for the judge; needed
                                where `run` adds to `loaded.answers` (bench/measuring/timed_tokens.py); prompts are padded as
                                `loaded.prompt_mask` tells
    judged(job)                 whether the judge can read this job's answers (optional; default: yes, where there is a `call`)
    STOPS                       True where an end token ends an answer before its length (optional)
    unsupported(job)            why this job cannot run on this machine, or "" (optional); called before anything is loaded
    LOADS                       False where the form measures without a model: `loaded` is then None, and the job has neither a
                                checkpoint nor an output check (optional)
    OPTIONS                     {name: names of its keys, () for a plain value}: the `options` of an article that the form reads (optional)
    mistake_in(options)         what is wrong with the values of a case's options, or "" (optional); the host asks before anything is built
    timed_call(job, loaded, run)
                                a function without arguments that makes one call as the clock times it, with all that the form does beside
                                `generate`; each form returns something of its own. On a GPU such calls fill the windows of slow counters
                                (bench/measuring/longer.py; optional)
    PIPELINE                    True where the arguments of the runs go to transformers' text-generation pipeline, which has some beside those
                                of `generate` (optional)
    TIMES_RUNS                  True where the measurements are those of the job's runs, with the job's numbers of warm-up and timed
                                calls: the host then refuses other numbers (optional)

Modules without `run` are helpers: fused_regions of fusion, pipeline_stages of pipeline-parallel, kept_answers of continuous and engine-queue,
arrivals of workload and engine-queue.
"""

import types

from bench import backends, modules
from bench.job import Job


def find(form: str) -> types.ModuleType:
    """The module of a form; raises WrongModule where it has no file, or its NEEDS name what no engine gives."""
    module = modules.find("form", form)
    modules.check_names(module, "NEEDS", backends.KNOWN)
    return module


def loads(module: types.ModuleType) -> bool:
    """Does this form measure a loaded model?"""
    return getattr(module, "LOADS", True)


def times_runs(module: types.ModuleType) -> bool:
    """Are the measurements of this form the calls of the job's runs?"""
    return getattr(module, "TIMES_RUNS", False)


def leaves_tokens(module: types.ModuleType, job: Job) -> bool:
    """Does a good run of this job leave the tokens of its timed calls for the judge?"""
    return hasattr(module, "call") and (not hasattr(module, "judged") or module.judged(job))


def stops(module: types.ModuleType) -> bool:
    """Does an end token end an answer of this form before its length?"""
    return getattr(module, "STOPS", False)


def asks_pipeline(module: types.ModuleType) -> bool:
    """Do the arguments of the runs go to a text-generation pipeline?"""
    return getattr(module, "PIPELINE", False)


def makes_further_calls(module: types.ModuleType) -> bool:
    """Can this form make further calls like those that the clock timed?"""
    return hasattr(module, "timed_call")


def needs(module: types.ModuleType) -> "tuple[str, ...]":
    """The abilities that a form needs of its engine; the output check needs the logits of every loaded engine."""
    if not loads(module):
        return ()
    named = tuple(getattr(module, "NEEDS", backends.ABILITIES))
    return named if backends.LOGITS in named else (*named, backends.LOGITS)


def refusal(form: str, backend: str) -> str:
    """Why a form (by name) cannot measure a backend (by name), in one line, or ""; needs no job, no GPU and no torch."""
    given = backends.gives(backends.find(backend))
    missing = [need for need in needs(find(form)) if need not in given]
    if not missing:
        return ""
    words = "the form {!r} needs {}, and the backend {!r} gives {}: {}"
    no_check = "the output check needs logits of every engine; add last_logits to it and LOGITS to GIVES, as docs/adding.md says"
    hint = no_check if backends.LOGITS in missing else "give the case another form of bench/forms"
    return words.format(form, " and ".join(missing), backend, ", ".join(given) or "nothing", hint)


def unsupported(module: types.ModuleType, job: Job) -> str:
    """Why this form cannot run the job on this machine, or ""."""
    return module.unsupported(job) if hasattr(module, "unsupported") else ""


def mistake_in(module: types.ModuleType, values: "dict[str, object]") -> str:
    """What is wrong with the values of a case's options for this form, or ""."""
    return module.mistake_in(values) if hasattr(module, "mistake_in") else ""


def options(module: types.ModuleType) -> "dict[str, tuple[str, ...]]":
    """{name: names of its keys} of the options that this form reads."""
    return getattr(module, "OPTIONS", {})
