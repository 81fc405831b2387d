"""The same workload through an engine's own scheduler, which gets all texts at once and chooses what runs beside what.

Options: those of bench/forms/workload.py; with `arrivals_per_s` the engine gets each text when its time has come, while it steps. The job's
batch size is the most texts that run at once, as in a static batch. A timed call is the time between two writes of answers. The engine reads
and gives token ids; tokenising comes before the clock starts, decoding is timed, but is no part of a latency.
"""

from bench.backends import LOGITS, REQUESTS
from bench.forms import arrivals, workload
from bench.forms.kept_answers import as_asked, keep
from bench.forms.workload import Progress, arguments_of, opened, prompts_of, result
from bench.measuring import measure
from bench.models import texts

OPTIONS = dict(texts.OPTIONS, items=(), order=(), arrivals_per_s=())

mistake_in = workload.mistake_in

NEEDS = (LOGITS, REQUESTS)

WARM_UP_TOKENS = 2


def run(job, loaded, say):
    tokenizer, outputs, waiting = opened(job, loaded)
    ends, prompts = arguments_of(job, tokenizer)["eos_token_id"], prompts_of(job, tokenizer, waiting)
    if waiting:
        # A warm-up, to compile and choose kernels before the clock starts. Its prompts are reversed, so that no cache holds the beginning of an item's.
        first = waiting[: job.prompt["batch_size"]]
        for _ in loaded.finished([(item.number, prompts[item.number][::-1], WARM_UP_TOKENS) for item in first], ends):
            pass
        measure.synchronizer(job)()
        asked = [(item.number, prompts[item.number], item.new_tokens) for item in waiting]
        width_of = {number: len(ids) for number, ids in prompts.items()}
        coming = arrivals.of(job, {request[0]: request for request in asked}, outputs.resumed)
        if coming:
            coming.start()
        finished = loaded.finished([], ends, coming) if coming else loaded.finished(asked, ends)
        keep(as_asked(finished, waiting, ends), outputs, tokenizer, width_of, Progress(say, job, waiting), coming)
    return result(job, outputs)
