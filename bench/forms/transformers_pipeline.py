"""The `pipeline("text-generation")` object of transformers on the job's prompt, one text per call. Options: bench/models/texts.py."""

from bench.measuring import recorder
from bench.models import texts

TIMES_RUNS = True
PIPELINE = True
OPTIONS = texts.OPTIONS

call = texts.generate


def run(job, loaded, say):
    import transformers

    tokenizer = texts.tokenizer_of(job)
    pipeline = transformers.pipeline("text-generation", model=loaded.model, tokenizer=tokenizer, device=loaded.device)
    text = texts.rendered(job, tokenizer, job.prompt["text"])
    with recorder.recording(loaded.model) as calls:

        def one_call(arguments):
            pipeline(text, **arguments)
            return calls.new.tolist()

        measurements, _, figures = texts.time_runs(job, tokenizer, one_call, say, loaded.answers)
    figures["prompt_tokens"] = figures["padded_prompt_tokens"] = int(calls.ids.numel())
    loaded.prompt_ids = calls.ids
    same = calls.ids.tolist() == loaded.input_ids.tolist()
    return measurements, calls.new if same else None, figures
