"""Generation from texts to texts, as in the third article: prompts, chat template, workloads, and counts of new tokens.

Options that the forms of this article share (Job.options):

    chat           {template, special_tokens}: the chat template for a tokenizer without one, and its special tokens
    terminators    texts of further tokens that end an answer, beside the tokenizer's end token
    templated      true where each text goes through the chat template
    texts          "prompt" (the job's prompt in every row) or "workload" (uneven texts made from a seed)
    seed, prompt_tokens, answer_tokens
                   of a workload; both lengths are {median, sigma, least, most} of a log-normal distribution, clamped to least and most
"""

import functools
import random

from bench.measuring import measure, timed_tokens

LENGTHS = ("median", "sigma", "least", "most")
OPTIONS = {
    "chat": ("template", "special_tokens"),
    "terminators": (),
    "templated": (),
    "texts": (),
    "seed": (),
    "prompt_tokens": LENGTHS,
    "answer_tokens": LENGTHS,
}

WORDS = (
    "a the red blue small large old bright wooden open quiet wet city street river field window table bridge harbour market garden "
    "man woman child dog horse bird boat train bicycle umbrella lamp stands runs sits holds crosses watches under over beside behind"
).split()

#: No model has a token of this id.
NO_TOKEN = 2**31 - 1


class Item:
    """One text of a workload: its `number`, its `text`, and the number of `new_tokens` after which its answer ends."""

    def __init__(self, number, text, new_tokens):
        self.number, self.text, self.new_tokens = number, text, new_tokens


def tokenizer_of(job):
    """The checkpoint's tokenizer, padding on the left; the stand-in of random weights gets the article's chat template.

    The tokens of the template are added to the loaded tokenizer, never to the checkpoint. The stand-in's vocabulary is far smaller than
    the model's, so the model has the new ids.
    """
    chat = job.options.get("chat") or {}
    tokenizer = _loaded(job.model["path"], chat.get("template"), tuple(chat.get("special_tokens", ())))
    tokenizer.padding_side = "left"
    return tokenizer


@functools.lru_cache(maxsize=1)  # `generate` asks within timed calls, and a vocabulary of 128,000 words takes most of a second to load
def _loaded(path, template, special_tokens):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    if template and not getattr(tokenizer, "chat_template", None):
        tokenizer.add_special_tokens({"additional_special_tokens": list(special_tokens)})
        tokenizer.chat_template = template
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def terminators(job, tokenizer):
    """The ids that end an answer."""
    return [tokenizer.eos_token_id] + [tokenizer.convert_tokens_to_ids(token) for token in job.options.get("terminators", [])]


def rendered(job, tokenizer, text):
    """The text for the model, within the chat template where the option `templated` is set."""
    if not job.options.get("templated"):
        return text
    return tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False)


def encode(job, tokenizer, texts):
    """The texts as {input_ids, attention_mask} [texts, longest], padded on the tokenizer's side; a rendered text already has its special tokens."""
    return tokenizer(texts, return_tensors="pt", padding="longest", truncation=True, add_special_tokens=not job.options.get("templated"))


def length(draw, lengths):
    """A number of tokens, drawn from {median, sigma, least, most}."""
    value = lengths["median"] * draw.lognormvariate(0.0, lengths["sigma"])
    return int(min(max(value, lengths["least"]), lengths["most"]))


def workload(job, tokenizer, count):
    """The first `count` Items of the job's workload: the same for the same seed on every machine and Python.

    No answer is longer than the job's run allows.
    """
    most = job.runs[0]["new_tokens"]
    sizes = {word: len(tokenizer.encode(" " + word, add_special_tokens=False)) for word in WORDS}
    items = []
    for number in range(count):
        draw = random.Random("{}:{}".format(job.options["seed"], number))
        prompt_tokens, new_tokens = length(draw, job.options["prompt_tokens"]), length(draw, job.options["answer_tokens"])
        words, tokens = [], 0
        while tokens < prompt_tokens:
            words.append(draw.choice(WORDS))
            tokens += sizes[words[-1]]
        items.append(Item(number, rendered(job, tokenizer, " ".join(words)), min(new_tokens, most)))
    return items


def batch_of(job, tokenizer):
    """The texts of one call, as many as the job's batch size."""
    count = job.prompt["batch_size"]
    if job.options.get("texts") == "workload":
        return [item.text for item in workload(job, tokenizer, count)]
    return [rendered(job, tokenizer, job.prompt["text"])] * count


def generate_arguments(job, tokenizer, run):
    """The arguments of `generate` for a run: the article's, with its terminators where the run has `up_to`, else with none, for equal lengths.

    A minimum length would do the same, but would copy the scores of the whole vocabulary at each step.
    """
    arguments = dict(run["arguments"], max_new_tokens=run["new_tokens"], pad_token_id=tokenizer.pad_token_id)
    arguments["eos_token_id"] = terminators(job, tokenizer) if run.get("up_to") else NO_TOKEN
    return arguments


def lengths_of(rows, ends):
    """The number of new tokens of each row, with its terminator and without the padding after it."""
    return [next((place + 1 for place, token in enumerate(row) if token in ends), len(row)) for row in rows]


def generate(job, loaded, run, input_ids, **more):
    """The new tokens [rows, new tokens] of one call of a run on unpadded prompts; `more` are further arguments of `generate`."""
    import torch

    arguments = dict(generate_arguments(job, tokenizer_of(job), run), **more)
    return loaded.generate(input_ids, torch.ones_like(input_ids), **arguments)


def judged(job):
    """Can the judge read the answers? Only where every row of each call is the job's prompt."""
    return job.options.get("texts") == "prompt"


def time_runs(job, tokenizer, call, say, kept=None):
    """Time `call(arguments) -> [rows, new tokens]`, from texts to texts; returns (measurements, the last call's rows, figures).

    Answers of a run with `up_to` may end sooner; every row of any other run must have all its tokens. `figures` has for each run
    `timed_tokens`, the new tokens of each timed call over all its rows. Where `kept` is a list, it gets the answers of each run's timed
    calls for the judge.
    """
    import torch

    measurements, tokens, rows = [], [], []
    for number, run in enumerate(job.runs):
        arguments, counts, calls = generate_arguments(job, tokenizer, run), [], []

        def generate(run=run, arguments=arguments, counts=counts, calls=calls):
            rows[:] = call(arguments)
            calls.append(list(rows))
            lengths = lengths_of(rows, set(terminators(job, tokenizer))) if run.get("up_to") else [len(row) for row in rows]
            counts.append(sum(lengths))
            return run["new_tokens"] if run.get("up_to") and max(lengths) <= run["new_tokens"] else min(lengths)

        torch.manual_seed(0)
        with torch.no_grad():
            measurements.append(measure.measure_run(job, run, generate, cold=number == 0, say=say))
        if kept is not None:
            kept.append(timed_tokens.Timed(run["new_tokens"], calls[-job.timed_runs :], measurements[-1]["timed_ms"]))
        tokens.append({"new_tokens": run["new_tokens"], "timed_tokens": counts[-job.timed_runs :]})
    return measurements, list(rows), {"calls": tokens}
