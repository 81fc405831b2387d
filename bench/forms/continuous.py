"""The same workload through transformers' continuous batching: a waiting text starts as soon as another text is answered.

Options: those of bench/forms/workload.py, and `attention`, one of the library's paged attentions. The job's batch size is the number of
texts that run at once, as in a static batch. A timed call is the time between two writes of answers.
"""

from bench import compat
from bench.forms import workload
from bench.forms.kept_answers import as_asked, keep
from bench.forms.workload import Progress, arguments_of, opened, prompts_of, result
from bench.measuring import measure
from bench.models import texts

OPTIONS = dict(texts.OPTIONS, items=(), order=(), attention=())

#: Tokens of a cache block, and the most tokens of one step, prompts and answers together.
BLOCK_TOKENS, STEP_TOKENS = 32, 1024


def mistake_in(options):
    """As in `workload`, but without arrivals over time: the library gets all texts at once."""
    rate = options.get("arrivals_per_s")
    words = "arrivals_per_s is {!r:.60}, but this form has all texts from the start; allowed only with the forms workload and engine-queue".format(rate)
    return workload.mistake_in(options) if rate is None else words


def unsupported(job):
    from importlib import metadata

    version = metadata.version("transformers")
    return "" if compat.continuous_batching(version) else "the kit drives continuous batching of transformers 5.17 and later, this is {}".format(version)


def _answers(manager, count):
    """Each finished request, in the order of finishing; raises RuntimeError where a request fails or the library stops."""
    while count:
        output = manager.get_result(timeout=1)
        if output is None:
            if not manager.is_running():
                raise RuntimeError("continuous batching stopped with {} requests left: {}".format(count, manager.background_thread_status.fatal_error))
            continue
        if output.error is not None:
            raise RuntimeError("a request failed: {}".format(output.error))
        if output.is_finished():
            count -= 1
            yield output


def _warm_up(manager, prompts):
    """Compile and choose kernels before the clock starts. The prompts are reversed, so that no item finds the beginning of its prompt in the cache."""
    for number, ids in enumerate(prompts):
        manager.add_request(ids[::-1], request_id="warm-up {}".format(number), max_new_tokens=2)
    for _ in _answers(manager, len(prompts)):
        pass


def settings_of(requests, longest):
    """The library's settings for `requests` texts at once, each of at most `longest` tokens with its answer.

    By default the library takes nine tenths of the memory for its cache, and as many texts as fit into it.
    """
    blocks = requests * -(-longest // BLOCK_TOKENS) + 1
    return {"num_blocks": blocks, "block_size": BLOCK_TOKENS, "max_batch_tokens": max(STEP_TOKENS, requests), "max_requests_per_batch": requests}


def run(job, loaded, say):
    import transformers

    tokenizer, outputs, waiting = opened(job, loaded)
    synchronize, prompts = measure.synchronizer(job), prompts_of(job, tokenizer, waiting)
    width_of = {number: len(ids) for number, ids in prompts.items()}
    if not waiting:
        return result(job, outputs)
    usual_attention = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation(job.options["attention"])
    longest = max(width_of.values()) + job.runs[0]["new_tokens"]
    settings = settings_of(job.prompt["batch_size"], longest)
    loaded.used["continuous"] = dict(settings, attention=job.options["attention"])
    batching = transformers.ContinuousBatchingConfig(**settings)
    config = transformers.GenerationConfig(**arguments_of(job, tokenizer))
    with loaded.model.continuous_batching_context_manager(generation_config=config, continuous_batching_config=batching, timeout=5) as manager:
        _warm_up(manager, [prompts[item.number] for item in waiting[: job.prompt["batch_size"]]])
        synchronize()

        def finished():
            for item in waiting:
                manager.add_request(prompts[item.number], request_id=str(item.number), max_new_tokens=item.new_tokens, eos_token_id=config.eos_token_id)
            for answer in _answers(manager, len(waiting)):
                yield int(answer.request_id), answer.generated_tokens

        keep(as_asked(finished(), waiting, config.eos_token_id), outputs, tokenizer, width_of, Progress(say, job, waiting))
    loaded.model.set_attn_implementation(usual_attention)  # for the output check
    return result(job, outputs)
