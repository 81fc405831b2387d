"""The key-value cache in host memory: how large a batch it allows, and the time per token.

The form searches the largest batch that fits with `context_tokens` per sequence, once with transformers' default cache and once with its
offloaded cache (`cache_implementation="offloaded"`: each layer's cache is copied to the GPU before it is used). It then times both caches
with the largest batch that fits with both. `memory_limit_bytes` makes a large GPU behave like a smaller one: torch may not reserve more.

options: context_tokens, most_sequences (the end of the search), memory_limit_bytes (optional), new_tokens (of a timed call), copies_wait
(optional; in the offloaded cache each copy then waits for the model's work before it, see bench/models/offloaded_cache.py).

figures: {"kv_offload": {context_tokens, memory_limit_bytes, caches: [{cache, most_sequences, searched_to_the_end, batch_size,
first_ms: [...], all_ms: [...], new_tokens, identical}]}}: `first_ms` are calls of one new token, `all_ms` of `new_tokens`; `identical`
counts the sequences that have in every call of `all_ms` the tokens of the first such call with the default cache.
"""

import contextlib
import gc

from bench import compat, reasons
from bench.checking import check
from bench.measuring import measure
from bench.models import offloaded_cache

OPTIONS = dict.fromkeys(("context_tokens", "most_sequences", "memory_limit_bytes", "new_tokens", "copies_wait"), ())

DEFAULT, OFFLOADED, WAITING = "default", "offloaded", "offloaded, copies wait"


def unsupported(job):
    from importlib import metadata

    if job.device != "cuda":
        return "the offloaded cache copies between a GPU and the host's memory: it needs an NVIDIA GPU"
    version = metadata.version("transformers")
    return "" if compat.offloaded_cache(version) else "transformers {} has no offloaded cache for this model, 4.44 and later have".format(version)


def largest(fits, most):
    """The largest number up to `most` that fits, within a sixteenth, by doubling and halving; 0 where not even 1 fits."""
    fitting, too_large = 0, 1
    while too_large <= most and fits(too_large):
        fitting, too_large = too_large, 2 * too_large
    too_large = min(too_large, most + 1)
    while too_large - fitting > max(1, fitting // 16):
        middle = (fitting + too_large) // 2
        fitting, too_large = (middle, too_large) if fits(middle) else (fitting, middle)
    return fitting


@contextlib.contextmanager
def _limited(limit, device):
    """Within the block torch may reserve at most `limit` bytes of the GPU; without a limit, and after the block, all of it."""
    import torch

    if not limit:
        yield
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def run(job, loaded, say):
    with _limited(job.options.get("memory_limit_bytes"), loaded.device):
        return _compared(job, loaded, say)


def _compared(job, loaded, say):
    """What `run` returns."""
    options = job.options
    context, new_tokens = options["context_tokens"], options["new_tokens"]
    rows = []
    for cache in (DEFAULT, WAITING if options.get("copies_wait") else OFFLOADED):

        def fits(sequences, cache=cache):
            say(run=cache, sequences=sequences)
            return _fits(loaded, _prompt(loaded, sequences, context), cache, new_tokens)

        most = largest(fits, options["most_sequences"])
        rows.append({"cache": cache, "most_sequences": most, "searched_to_the_end": most == options["most_sequences"]})
    common, expected = min(row["most_sequences"] for row in rows), None
    for row in rows if common else []:
        prompt = _prompt(loaded, common, context)
        first_ms, _ = _timed(job, loaded, prompt, row["cache"], 1)
        all_ms, tokens = _timed(job, loaded, prompt, row["cache"], new_tokens)
        answers = [call.tolist() for call in tokens]
        expected = answers[0] if expected is None else expected
        identical = check.alike(answers, expected)
        row.update(batch_size=common, first_ms=first_ms, all_ms=all_ms, new_tokens=new_tokens, identical=identical)
    return [], None, {"kv_offload": {"context_tokens": context, "memory_limit_bytes": options.get("memory_limit_bytes"), "caches": rows}}


def _timed(job, loaded, prompt, cache, new_tokens):
    """([ms of each timed call], [the new tokens [sequences, new_tokens] of each timed call])."""
    made = []

    def call():
        made.append(_generate(loaded, prompt, cache, new_tokens))
        return made[-1].shape[1]

    measurement = measure.measure(call, new_tokens, 1, job.timed_runs, cold=False, synchronize=measure.synchronizer(job))
    return measurement["timed_ms"], made[-job.timed_runs :]


def _prompt(loaded, sequences, context):
    """Token ids [sequences, context]: the job's prompt, repeated to the length of the context."""
    ids = loaded.input_ids[:1]
    return ids.repeat(1, -(-context // ids.shape[1]))[:, :context].repeat(sequences, 1)


def _generate(loaded, prompt, cache, new_tokens):
    """The new tokens [sequences, new_tokens], greedy, on the CPU."""
    import torch

    arguments = {} if cache == DEFAULT else {"cache_implementation": OFFLOADED}
    copies = offloaded_cache.copies_that_wait() if cache == WAITING else contextlib.nullcontext()
    with torch.no_grad(), copies:
        output = loaded.model.generate(prompt, do_sample=False, num_beams=1, max_new_tokens=new_tokens, min_new_tokens=new_tokens, **arguments)
    return output[:, prompt.shape[1] :].cpu()


def _fits(loaded, prompt, cache, new_tokens):
    """Does a call with this prompt and cache fit into the memory?"""
    import torch

    try:
        _generate(loaded, prompt, cache, new_tokens)
        has_room = True
    except Exception as error:
        if not isinstance(error, compat.out_of_memory_errors(torch)) and not reasons.reports_out_of_memory(error):
            raise
        has_room = False
    gc.collect()
    torch.cuda.empty_cache()
    return has_room
