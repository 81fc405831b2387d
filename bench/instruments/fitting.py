"""Which jobs an instrument examines. It refuses others in one line: the kit before it makes weights, the instrument before it loads a library."""

import sys

from bench import backends, modules
from bench.measuring import ranks

#: Instruments that read no checkpoint and load no backend.
WITHOUT_WEIGHTS = ("device_map", "float32_rotary")

#: The second article's systems whose model has the `generate` that its benchmark calls.
TIMED_IN_TOKENS = ("accelerate-fp16", "accelerate-int8", "ds-inference")


def _has_several_deepspeed_ranks(job):
    return job.backend == "deepspeed" and job.device_count > 1


def _has_several_threads(job):
    return job.backend == "tensor-parallel" and job.device_count > 1


def _has_a_map_of_several_devices(job):
    return job.device_count > 1 and "device_map" in job.load


def _is_random_gptj(job):
    return (job.model["architecture"], job.model["weights"]) == ("gptj", "random")


def _is_in_one_process(job):
    """True within several ranks too: whoever started these knows that there are several."""
    return ranks.inside() or job.device_count == 1 or not backends.has_ranks(backends.find(job.backend))


def _is_timed_in_tokens(job):
    return job.form == "padded-sentences" and job.case in TIMED_IN_TOKENS


def _is_timed_in_batches(job):
    return (job.form, job.backend) == ("batch", "transformers")


def _samples(job):
    return job.runs[0]["arguments"].get("do_sample")


def _is_plain(job):
    return job.backend == "transformers"


def _lets_torch_choose(job):
    return job.load.get("cudnn_attention", True)


_ONE_PROCESS = (_is_in_one_process, "one GPU, which is one process")
_PLAIN = (_is_plain, "plain transformers, such as long-prompts, case transformers")
#: {instrument: pairs (a check of the job, the allowed jobs in words)} of the instruments that do not examine every job.
MUST = {
    "clocks_batches": (
        _ONE_PROCESS,
        (_is_timed_in_batches, "batch-generate, case batch"),
        (_samples, "a variant that samples, as the article's loop does: published"),
    ),
    "clocks_latency": (_ONE_PROCESS,),
    "clocks_tokens": (_ONE_PROCESS, (_is_timed_in_tokens, "deepspeed-inference, case {}".format(" or ".join(TIMED_IN_TOKENS)))),
    "collectives": ((_has_several_deepspeed_ranks, "deepspeed on at least 2 GPUs"),),
    "device_map": ((_has_a_map_of_several_devices, "a case with a device map, such as layer-parallel or int8, on at least 2 GPUs"),),
    "equal_calls": (_PLAIN,),
    "float32_rotary": ((_is_random_gptj, "GPT-J with random weights"),),
    "layers": (_ONE_PROCESS,),
    "new_lengths": (_PLAIN, (_lets_torch_choose, "a case in which torch may choose cuDNN's attention, such as long-prompts, case transformers")),
    "threads": ((_has_several_threads, "tensor-parallel on at least 2 GPUs"),),
}


def refusal(instrument, job):
    """Why an instrument does not examine a job, in one line; "" where it does."""
    for fits, allowed in MUST.get(instrument, ()):
        if not fits(job):
            facts = job.article, job.case, job.backend, job.model["weights"], job.device_count
            return "the job is of {}/{} (backend {}, {} weights, GPUS={}); take a job of {}".format(*facts, allowed)
    return ""


def must_fit(instrument, job):
    """End the process where a job does not fit, or where its backend does not exist, refuses its `load` or cannot run it on this machine: the host has not
    checked a job that was written by hand."""
    try:
        reason = refusal(instrument, job) or _refused_by_backend(instrument, job)
    except modules.WrongModule as error:  # a backend without a module
        reason = str(error)
    if reason:
        sys.exit(reason)


def _refused_by_backend(instrument, job):
    backend = backends.find(job.backend)
    return backends.mistake_in(backend, job.load) or _unsupported(instrument, backend, job)


def _unsupported(instrument, backend, job):
    """Why an instrument's backend cannot run a job on this machine, or "": also where it lacks a library, which the load then names."""
    if instrument in WITHOUT_WEIGHTS:
        return ""
    try:
        return backend.unsupported(job)
    except ImportError:
        return ""
