"""The ways to run a model, one module each: `layer-parallel` is `layer_parallel.py`.

A backend is a module with

    unsupported(job)   why this job cannot run on this machine, or "". Called before the backend's library is imported
    load(job)          the model ready on its devices, as an Engine; compiling and allocating ahead happen in `load`, not in a call
    GIVES              the abilities of its engine (optional; default: ABILITIES, all that a module of transformers has)
    ARGUMENTS          the keys of an article's `load` beside `dtype` (optional)
    mistake_in(load)   what is wrong with the values of a case's `load`, or "" (optional); the host asks before anything is built,
                       the guest before anything is loaded
    RANKS              True where the backend runs as one process for each GPU (optional; `python -m bench` starts the processes)
    ON_ONE_GPU         True where the first GPU takes the whole model, or all of its memory limit, however many GPUs a job has (optional);
                       before a run the host compares the memory of that GPU alone

The host reads GIVES too, so a backend's module imports its libraries inside its functions.
"""

import types

from bench import modules
from bench.measuring import environment, token_times

#: Makes exactly N greedy new tokens for a batch of the job's size, whose rows of token ids are equally long.
TOKENS = "tokens"
#: Does the same for uneven rows, padded on the left, with their attention mask.
MASK = "mask"
#: Gives the logits of a prompt's last position over the whole vocabulary.
LOGITS = "logits"
#: Gives the model itself as a module of transformers: layers, cache, batches of any size, every argument of `generate`.
MODULE = "module"

#: Answers any number of uneven prompts by a scheduler of its own, each to its own length; no module of transformers does.
REQUESTS = "requests"

ABILITIES = (TOKENS, MASK, LOGITS, MODULE)
#: All that an engine may give.
KNOWN = (*ABILITIES, REQUESTS)


class Engine(types.SimpleNamespace):
    """A loaded backend, as forms, output check and judge use it. Each kind of engine overrides the methods.

    device      the device of prompt ids; "cpu" for an engine that takes lists of ids
    used        what the backend really used, for the result: dtype, device map, library file, preallocated bytes…

    The kit sets these once the engine is loaded:

    input_ids   the job's prompt on the device, [batch_size, tokens]
    folder      the job's folder, the only one it may write
    prompt_ids  the ids of the calls, [rows, tokens]: input_ids unless the form makes prompts of its own
    prompt_mask their attention mask where prompts are padded on the left, else None
    answers     a list to which a form adds the answers of its timed calls (bench/measuring/timed_tokens.py)
    """

    def generate(self, input_ids, attention_mask=None, **arguments):
        """The new tokens [rows, new tokens] as a tensor, after a prompt [rows, tokens]; returns when they are computed or queued on the device.

        `arguments` have transformers' names and meaning: do_sample, num_beams, max_new_tokens, min_length, eos_token_id… Raises
        ValueError for an argument that the engine cannot follow, so that none is ignored silently. A `streamer` gets `put(prompt)`, then
        `put(tokens)` with the tokens [rows] of each step once they are on the host (bench/measuring/token_times.py).
        """
        raise self._lacks("generate")

    def last_logits(self, input_ids, attention_mask=None):
        """The logits of the last position [rows, vocabulary] of any number of prompts [rows, tokens], for the output check."""
        raise self._lacks("last_logits")

    def finished(self, requests, ends, coming=None):
        """(name, new tokens) of each request (name, prompt ids, most new tokens) as it finishes: at its length or with a token of `ends`.

        The names are distinct whole numbers; the tokens are greedy. Needed where the backend gives REQUESTS. `coming` holds requests that arrive
        over time (bench/forms/arrivals.py): the engine takes `coming.due()` before each step, calls `coming.wait()` only where it has nothing to
        do, tells `coming.answered(names)` as soon as the last tokens of these are on the host, and ends when `coming.left` is 0 and all is done.
        It is given only where the job's items arrive over time.
        """
        raise self._lacks("finished")

    def end_tokens(self):
        """The token ids that end an answer, in order."""
        raise self._lacks("end_tokens")

    def _lacks(self, method):
        return NotImplementedError("the engine {} has no method {}, which docs/adding.md describes".format(type(self).__name__, method))

    def memory(self, job):
        """{devices: [{device, peak_allocated_bytes, peak_reserved_bytes}], peak_rss_bytes} since the start.

        An engine in processes of its own adds their `peak_rss_bytes` to this process's, and gives the number of processes as `processes`.
        `devices` is empty where this process touched no GPU, because the engine works in others: the host samples each GPU anyway. Memory
        that an engine allocates before any call stands in `used` as `preallocated_bytes`.
        """
        return process_memory(job)

    def close(self):
        """End processes and free memory; called once, also after a failure."""


class Loaded(Engine):
    """An engine that is a module of transformers, or wraps one, in this process.

    model    answers `model.generate(ids, **arguments)` and `model(ids).logits`
    """

    def generate(self, input_ids, attention_mask=None, **arguments):
        import torch

        arguments, tell_the_last = token_times.for_library(arguments)
        with torch.no_grad():
            if attention_mask is None:
                output = self.model.generate(input_ids, **arguments)
            else:
                output = self.model.generate(input_ids=input_ids, attention_mask=attention_mask, **arguments)
        made = output[:, input_ids.shape[1] :]
        tell_the_last(made)
        return made

    def last_logits(self, input_ids, attention_mask=None):
        """As in Engine; without a mask the model gets the mask of `generate` (int64 ones).

        Without this mask, transformers up to 4.26 gives BLOOM's layers a float32 mask, which DeepSpeed 0.7.7's kernel reads as float16: the
        logits would be wrong, in a call that `generate` never makes.
        """
        import torch

        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        with torch.no_grad():
            return self.model(input_ids, attention_mask=mask).logits[:, -1, :]

    def end_tokens(self):
        # DeepSpeed's engine holds the model as its module.
        return end_tokens_of(getattr(self.model, "module", self.model).generation_config)


def end_tokens_of(generation_config):
    """The ids of the end tokens in order; [] where there are none."""
    ids = getattr(generation_config, "eos_token_id", None)
    return sorted(set(ids)) if isinstance(ids, (list, tuple)) else [] if ids is None else [ids]


def process_memory(job):
    """Torch's own peaks on each device of this process, and the process's peak resident set: {devices, peak_rss_bytes}."""
    names = ("device", "peak_allocated_bytes", "peak_reserved_bytes")
    devices = [{name: gpu[name] for name in names} for gpu in environment.gpu_memory(job)]
    return {"devices": devices, "peak_rss_bytes": environment.peak_rss_bytes()}


def find(backend: str) -> types.ModuleType:
    """The module of a backend; raises WrongModule where it has no file, or its file lacks what a backend needs."""
    module = modules.find("backend", backend)
    for name in ("unsupported", "load"):
        if not callable(getattr(module, name, None)):
            raise modules.WrongModule("{} has no function {}(job), which every backend has".format(modules.file_of(module), name))
    modules.check_names(module, "GIVES", KNOWN)
    modules.check_names(module, "ARGUMENTS")
    return module


def arguments(module: types.ModuleType) -> "tuple[str, ...]":
    """The keys that `load` of a job may have for this backend."""
    return ("dtype", *getattr(module, "ARGUMENTS", ()))


def mistake_in(module: types.ModuleType, load: "dict[str, object]") -> str:
    """What is wrong with the keys or the values of a case's `load` for this backend, or ""."""
    allowed = arguments(module)
    for key in load:
        if key not in allowed:
            return "load.{} is no argument of this backend, allowed are {}".format(key, ", ".join(allowed))
    return module.mistake_in(load) if hasattr(module, "mistake_in") else ""


def has_ranks(module: types.ModuleType) -> bool:
    """Does this backend run as one process for each GPU?"""
    return getattr(module, "RANKS", False)


def is_on_one_gpu(module: types.ModuleType) -> bool:
    """Does the first GPU take the whole model, or all of its memory limit, however many GPUs a job has?"""
    return getattr(module, "ON_ONE_GPU", False)


def gives(module: types.ModuleType) -> "tuple[str, ...]":
    """The abilities of a backend's engine."""
    return getattr(module, "GIVES", ABILITIES)
