"""The ways to run a model, one module each: `layer-parallel` is `layer_parallel.py`.

A backend is a module with

    unsupported(job)   why this job cannot run here, or "". Asked before anything of the backend's library is imported
    load(job)          the model ready on its devices, as an Engine; what is compiled or allocated ahead belongs to it, not to a call
    GIVES              what its engine can do, of the words below (optional: all of them, as a module of transformers can)
    ARGUMENTS          what an article's `load` may say beside `dtype` (optional)
    RANKS              True where it runs as one process for each GPU (optional; `python -m bench` starts them)

The host reads GIVES as well, so a backend's module imports its libraries inside its functions.
"""

import types

from bench import modules
from bench.measuring import environment

#: Exactly N greedy new tokens for a batch, of the job's size, of equally long rows of token ids.
TOKENS = "tokens"
#: The same for uneven rows, padded on the left, with their attention mask.
MASK = "mask"
#: The logits of a prompt's last position over the whole vocabulary.
LOGITS = "logits"
#: The model itself as a module of transformers: its layers, its cache, batches of any size, every argument of its `generate`.
MODULE = "module"

ABILITIES = (TOKENS, MASK, LOGITS, MODULE)


class Engine(types.SimpleNamespace):
    """A loaded backend: what forms, output check and judge ask of it. An engine of its own kind overrides the methods.

    device   where the ids of a prompt have to be; "cpu" for an engine that takes lists of ids
    used     what was really used, for the result: dtype, device map, library file, preallocated bytes…

    The kit puts there, once the engine is loaded:

    input_ids  the job's prompt on the device, [batch_size, tokens]
    folder   the job's own, the only one it may write
    prompt_ids  the ids that the calls really had, where a form renders its own: [rows, tokens], the same in every row; else input_ids
    answers  a list to which a form adds what its timed calls answered (bench/measuring/timed_tokens.py)
    """

    def generate(self, input_ids, attention_mask=None, **arguments):
        """The new tokens [rows, new tokens] as a tensor, after a prompt [rows, tokens]; returns when they are computed or queued on the device.

        `arguments` have transformers' names and meaning: do_sample, num_beams, max_new_tokens, min_length, eos_token_id… Raises
        ValueError for one that the engine cannot follow, so that none is left out in silence.
        """
        raise NotImplementedError

    def last_logits(self, input_ids, attention_mask=None):
        """The logits of the last position [rows, vocabulary] of any number of prompts [rows, tokens]; needed where the backend gives LOGITS."""
        raise NotImplementedError

    def end_tokens(self):
        """The token ids that end an answer, in order."""
        raise NotImplementedError

    def memory(self, job):
        """{devices: [{device, peak_allocated_bytes, peak_reserved_bytes}], peak_rss_bytes} since the start.

        `devices` is empty where the allocator cannot be read, as in another process: the host samples each GPU anyway. What an engine
        allocates ahead of any call stands in `used` as `preallocated_bytes`.
        """
        raise NotImplementedError

    def close(self):
        """End processes and free memory; called once, also after a failure."""


class Loaded(Engine):
    """An engine that is a module of transformers, or wraps one, in this very process.

    model    answers `model.generate(ids, **arguments)` and `model(ids).logits`
    """

    def generate(self, input_ids, attention_mask=None, **arguments):
        import torch

        with torch.no_grad():
            if attention_mask is None:
                output = self.model.generate(input_ids, **arguments)
            else:
                output = self.model.generate(input_ids=input_ids, attention_mask=attention_mask, **arguments)
        return output[:, input_ids.shape[1] :]

    def last_logits(self, input_ids, attention_mask=None):
        """Where no mask is given, with the one that `generate` makes by itself (int64 ones).

        Without one, transformers up to 4.26 gives BLOOM's layers a float32 mask, which DeepSpeed 0.7.7's kernel reads as float16: wrong
        logits, in a call that `generate` never makes.
        """
        import torch

        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        with torch.no_grad():
            return self.model(input_ids, attention_mask=mask).logits[:, -1, :]

    def end_tokens(self):
        # DeepSpeed's engine holds the model as its module.
        ids = getattr(getattr(self.model, "module", self.model).generation_config, "eos_token_id", None)
        return sorted(set(ids)) if isinstance(ids, (list, tuple)) else [] if ids is None else [ids]

    def memory(self, job):
        return process_memory(job)


def process_memory(job):
    """Torch's own peaks on each device of this process, and the process's peak resident set: {devices, peak_rss_bytes}."""
    names = ("device", "peak_allocated_bytes", "peak_reserved_bytes")
    devices = [{name: gpu[name] for name in names} for gpu in environment.gpu_memory(job)]
    return {"devices": devices, "peak_rss_bytes": environment.peak_rss_bytes()}


def find(backend: str) -> types.ModuleType:
    """The module of a backend; raises ValueError with its file's name where there is none."""
    return modules.find("backend", backend)


def arguments(module: types.ModuleType) -> "tuple[str, ...]":
    """What `load` of a job may hold for this backend."""
    return ("dtype",) + getattr(module, "ARGUMENTS", ())


def gives(module: types.ModuleType) -> "tuple[str, ...]":
    """The abilities of a backend's engine."""
    return getattr(module, "GIVES", ABILITIES)
