"""Does the installed transformers know the arguments of `generate` that an article gives? The kit asks before it loads the weights, which may
take many minutes: the library itself refuses an argument only at the first call."""

import difflib
import inspect


class UnknownArgument(ValueError):
    """A run of the job names an argument that the library does not know."""


def known(transformers, pipeline):
    """The names that `generate` of this transformers takes; with `pipeline` also those of its text-generation pipeline.

    Names of a model's own forward pass are not among them: `generate` sets those that are plain values by itself.
    """
    names = {name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")}
    names |= _parameters(transformers.GenerationMixin.generate)
    return names | _parameters(transformers.TextGenerationPipeline._sanitize_parameters) if pipeline else names


def check(job, transformers, pipeline=False):
    """Raise UnknownArgument for the first argument of the job's runs that is not `known`."""
    names = known(transformers, pipeline)
    for name in (name for run in job.runs for name in run["arguments"] if name not in names):
        near = difflib.get_close_matches(name, sorted(names), n=1)
        hint = "did you mean {!r}?".format(near[0]) if near else "allowed are the names in its GenerationConfig"
        raise UnknownArgument("generate of transformers {} knows no argument {!r}; {}".format(transformers.__version__, name, hint))


def _parameters(function):
    """The names by which a function takes values, without the object itself."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)} - {"self"}
