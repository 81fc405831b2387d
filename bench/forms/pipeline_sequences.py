"""The `pipeline("text-generation")` object of transformers: a text goes in, texts come out.

A call is `pipeline(text, **arguments)` with the arguments of the job's runs; tokenising and the way back to text are in it, as an
article times it. options: seed (of `set_seed` before the first call; optional).

figures: {"pipeline": {sequences, prompt_tokens, tokens_by_call: [the longest sequence's new tokens of each timed call]}}.
"""

from bench import compat
from bench.measuring import measure, recorder

TIMES_RUNS = True
OPTIONS = {"seed": ()}


def text_of(job, tokenizer):
    """The job's text; cut to its number of tokens where that is given, for the stand-in tokenizer of random weights."""
    wanted = job.prompt["tokens"]
    text = job.prompt["text"]
    return tokenizer.decode(tokenizer(text).input_ids[:wanted]) if wanted else text


def run(job, loaded, say):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model["path"])
    plain = getattr(loaded.model, "module", loaded.model)  # DeepSpeed's engine holds the model as its module
    pipe = transformers.pipeline("text-generation", model=plain, tokenizer=tokenizer, device=torch.device(loaded.device))
    pipe.model = loaded.model  # as the article puts the engine in the model's place
    text = text_of(job, tokenizer)
    prompt_tokens = len(tokenizer(text).input_ids)
    if "seed" in job.options:
        transformers.set_seed(job.options["seed"])
    measurements, made = [], []
    with recorder.recording(loaded.model) as calls:
        for number, one in enumerate(job.runs):
            arguments = compat.pipeline_arguments(transformers.__version__, one["arguments"], prompt_tokens)

            def call(arguments=arguments):
                pipe(text, **arguments)
                made.append(calls.new.shape[1])
                return made[-1]

            measurements.append(measure.measure_run(job, one, call, cold=number == 0, say=say))
    return measurements, None, {"pipeline": {"sequences": calls.new.shape[0], "tokens_by_call": made[-job.timed_runs :], "prompt_tokens": prompt_tokens}}
