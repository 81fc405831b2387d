"""The `pipeline("text-generation")` object of transformers, which may answer one text with several sequences.

A timed call is `pipeline(text, **arguments)` with the arguments of the job's runs, tokenising and decoding included.
options: seed (for `set_seed` before the first call; optional).

figures: {"pipeline": {sequences, prompt_tokens, tokens_by_call: [new tokens of the longest sequence, for each timed call]}}.
"""

from bench import compat
from bench.measuring import measure, recorder

TIMES_RUNS = True
PIPELINE = True
OPTIONS = {"seed": ()}


def text_of(job, tokenizer):
    """The job's text, cut to its number of tokens where the job gives one: the stand-in tokenizer of random weights makes more."""
    tokens = job.prompt["tokens"]
    text = job.prompt["text"]
    return tokenizer.decode(tokenizer(text).input_ids[:tokens]) if tokens else text


def run(job, loaded, say):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model["path"])
    model = getattr(loaded.model, "module", loaded.model)  # DeepSpeed's engine holds the model as its module
    pipeline = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer, device=torch.device(loaded.device))
    pipeline.model = loaded.model  # the article too puts the engine in the model's place
    text = text_of(job, tokenizer)
    prompt_tokens = len(tokenizer(text).input_ids)
    if "seed" in job.options:
        transformers.set_seed(job.options["seed"])
    measurements, new_tokens = [], []
    with recorder.recording(loaded.model) as calls:
        for number, job_run in enumerate(job.runs):
            arguments = compat.pipeline_arguments(transformers.__version__, job_run["arguments"], prompt_tokens)

            def call(arguments=arguments):
                pipeline(text, **arguments)
                new_tokens.append(calls.new.shape[1])
                return new_tokens[-1]

            measurements.append(measure.measure_run(job, job_run, call, cold=number == 0, say=say))
    return measurements, None, {"pipeline": {"sequences": calls.new.shape[0], "tokens_by_call": new_tokens[-job.timed_runs :], "prompt_tokens": prompt_tokens}}
