"""A workload of many uneven texts in static batches: each batch begins when the batch before it is answered.

Options: bench/models/texts.py, and `items`, the number of texts; `order`, "naive" (as drawn) or "sorted" (by length, so that texts of
similar length share a batch); `arrivals_per_s` (bench/forms/arrivals.py, optional): a batch then holds what has arrived when it begins, at
most the batch size and at least one. Each answer ends after the length drawn for it, or with a terminator; a batch ends with its last
answer. A timed call is one batch, with tokenising and decoding; with arrivals it begins when the batch before ends, and includes the wait.
Batches of earlier, killed runs of this job count too.
Figures: see `summary`, and with arrivals `figures` of bench/forms/arrivals.py.
"""

import functools
import time

from bench import backends, compat
from bench.forms import arrivals
from bench.measuring import measure
from bench.measuring.answers_file import Outputs
from bench.models import texts

OPTIONS = dict(texts.OPTIONS, items=(), order=(), arrivals_per_s=())

ORDERS = ("naive", "sorted")


def mistake_in(options):
    """What is wrong with the values of a case's options, or ""; the forms `continuous` and `engine_queue` read the same."""
    items, order = options.get("items"), options.get("order")
    if not isinstance(items, int) or isinstance(items, bool) or items < 1:
        return "items is {!r:.60}, allowed is a whole number from 1".format(items)
    if order not in ORDERS:
        return "order is {!r:.60}, allowed are {}".format(order, " and ".join(ORDERS))
    if options.get("arrivals_per_s") is not None and order != "naive":
        return "order is {!r}, allowed for items that arrive over time is 'naive'".format(order)
    return arrivals.mistake_in(options)


def unsupported(job):
    from importlib import metadata

    rate, count = job.options.get("arrivals_per_s"), job.device_count
    if rate is not None and count > 1 and backends.has_ranks(backends.find(job.backend)):
        words = "arrivals_per_s is {}: each of {} processes would batch by its own clock and wait for the others; take GPUS=1 or a backend of one process"
        return words.format(rate, count)
    version = metadata.version("transformers")
    return "" if compat.stops_row_by_row(version) else "transformers {} stops a batch as a whole, not row by row".format(version)


def summary(job, outputs):
    """{items, new_tokens (useful ones), prompt_tokens, padded_prompt_tokens, decode_rows (rows x steps), seconds, batches, resumed}"""

    def total(name):
        return sum(batch[name] for batch in outputs.batches)

    return {
        "items": sum(len(batch["items"]) for batch in outputs.batches),
        "order": job.options["order"],
        "new_tokens": sum(item[1] for batch in outputs.batches for item in batch["items"]),
        "prompt_tokens": total("prompt_tokens"),
        "padded_prompt_tokens": total("padded_prompt_tokens"),
        "decode_rows": total("decode_rows"),
        "seconds": total("ms") / 1000,
        "batches": len(outputs.batches),
        "resumed": outputs.resumed,
    }


def result(job, outputs):
    """The return value of a workload's form: its batches as the timed calls, their summary, and the latencies of items that arrive over time."""
    outputs.close()
    samples = {"new_tokens": job.runs[0]["new_tokens"], "cold_ms": None, "warmup_ms": [], "timed_ms": [batch["ms"] for batch in outputs.batches]}
    return [samples], None, dict(arrivals.figures(job, outputs), workload=summary(job, outputs))


class Progress:
    """Reports how many items are done, and the seconds left at the rate of this process.

    The first batch of items that arrive over time holds one or a few, so the rate counts from its end on, and its own report gives no time left.
    """

    def __init__(self, say, job, waiting):
        self.say, self.total, self.new_tokens = say, job.options["items"], job.runs[0]["new_tokens"]
        self.before = self.done = self.total - len(waiting)
        self.began = None if job.options.get("arrivals_per_s") else time.monotonic()

    def __call__(self, items):
        self.done += items
        self.say(run="items", done=self.done, total=self.total, new_tokens=self.new_tokens, left_s=self._left_s())

    def _left_s(self):
        if self.done == self.total:
            return 0.0
        if self.began is None:
            self.before, self.began = self.done, time.monotonic()
            return None
        return round((self.total - self.done) * (time.monotonic() - self.began) / (self.done - self.before), 1)


def stop_each(width, targets):
    """A stopping criterion that ends each row of a batch after its own number of new tokens; `width` is the padded length of the prompts."""
    import transformers

    class StopEach(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            return targets <= input_ids.shape[1] - width

    return transformers.StoppingCriteriaList([StopEach()])


def answer(job, loaded, tokenizer, items, arguments):
    """Answer one batch, from tokenising to decoding: a line of the outputs, without its time."""
    import torch

    encoded = texts.encode(job, tokenizer, [item.text for item in items]).to(loaded.device)
    width = encoded["input_ids"].shape[1]
    targets = torch.tensor([item.new_tokens for item in items], device=loaded.device)
    output = loaded.model.generate(
        input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], stopping_criteria=stop_each(width, targets), **arguments
    )
    rows = output[:, width:].tolist()
    answers = [row[: min(item.new_tokens, length)] for row, item, length in zip(rows, items, texts.lengths_of(rows, set(arguments["eos_token_id"])))]
    return {
        "items": [[item.number, len(row), tokenizer.decode(row, skip_special_tokens=True)] for item, row in zip(items, answers)],
        "prompt_tokens": int(encoded["attention_mask"].sum()),
        "padded_prompt_tokens": width * len(items),
        "decode_rows": len(items) * len(rows[0]),
    }


def arguments_of(job, tokenizer):
    """Arguments of a greedy `generate`: an item's answer does not depend on random draws of its neighbours."""
    return {
        "do_sample": False,
        "max_new_tokens": job.runs[0]["new_tokens"],
        "eos_token_id": texts.terminators(job, tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
    }


def in_order(job, tokenizer, items):
    """The items in the order of the batches; raises ValueError for an unknown order, or one that does not fit arrivals."""
    mistake = mistake_in(job.options)
    if mistake:
        raise ValueError(mistake)
    return items if job.options["order"] == "naive" else sorted(items, key=lambda item: len(tokenizer.encode(item.text)))


def opened(job, loaded):
    """(the tokenizer, the outputs of this job so far, the items that wait for an answer in their order)."""
    tokenizer, outputs = texts.tokenizer_of(job), Outputs(loaded.folder, job.fingerprint())
    done = outputs.done()
    items = in_order(job, tokenizer, texts.workload(job, tokenizer, job.options["items"]))
    return tokenizer, outputs, [item for item in items if item.number not in done]


def prompts_of(job, tokenizer, items):
    """{number of an item: its prompt's token ids}"""
    return {item.number: texts.encode(job, tokenizer, [item.text])["input_ids"][0].tolist() for item in items}


def answer_over_time(coming, size, call, outputs, progress):
    """Answer what arrives in batches: `call(items)` returns (its ms, its line of the outputs) once all of it is on the host."""
    ended_s = 0.0
    coming.start()
    while coming.left:
        coming.wait()
        batch = coming.due(size)
        _, line = call(batch)
        began_s, numbers = ended_s, [item.number for item in batch]
        ended_s = coming.answered(numbers)
        outputs.add(dict(line, ms=(ended_s - began_s) * 1000, latency_ms=[coming.latency_ms[number] for number in numbers]))
        progress(len(batch))


def run(job, loaded, say):
    import torch

    tokenizer, outputs, waiting = opened(job, loaded)
    arguments, synchronize, size = arguments_of(job, tokenizer), measure.synchronizer(job), job.prompt["batch_size"]
    progress = Progress(say, job, waiting)

    def call(batch):
        return measure.elapsed_ms(functools.partial(answer, job, loaded, tokenizer, batch, arguments), synchronize)

    with torch.no_grad():
        if waiting:  # to compile, choose kernels and allocate before the clock starts; later batches may be longer, and are so with "sorted"
            answer(job, loaded, tokenizer, waiting[:size], arguments)
        coming = arrivals.of(job, {item.number: item for item in waiting}, outputs.resumed)
        if coming:
            answer_over_time(coming, size, call, outputs, progress)
            return result(job, outputs)
        for start in range(0, len(waiting), size):
            batch = waiting[start : start + size]
            ms, line = call(batch)
            outputs.add(dict(line, ms=ms))
            progress(len(batch))
    return result(job, outputs)
