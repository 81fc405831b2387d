"""Do the kit's ms/token tell what the second article's benchmark tells? Both run on the same model and the same sentences.

    PYTHON -m tests.honesty_tokens [CASE [CHECKPOINT [BATCH [ROUNDS [OUT [NEW_TOKENS]]]]]]

in an environment with torch and transformers (Python 3.11 or newer)

CASE is accelerate-fp16 (the default), accelerate-int8 or ds-inference. Without a checkpoint (or with -) it writes a tiny one (`make honesty`); with one it runs
on all GPUs that it sees. NEW_TOKENS may be fewer than the benchmark's 100, which is the harder test: what is not generation weighs more.
Each round is a cycle by the benchmark's way (its clock around tokenising, generating and decoding, divided by what `generate` appended; it has
one clock around five of them) and a call of the kit's form. Printed: the ratio of the means over all rounds with its interval; OUT gets it as
JSON. They should be within 3 % of each other on a GPU.
"""

import dataclasses
import time

from bench import backends, forms
from bench.models import prompts
from tests import asked, honesty


def benchmark_ms_per_token(model, tokenizer, sentences, device, arguments):
    """Of one cycle; its tokens are the columns that came beyond the prompts', of every row."""
    import torch

    began = time.time()
    encoded = tokenizer(sentences, return_tensors="pt", padding=True, return_token_type_ids=False).to(device)
    with torch.no_grad():
        answers = model.generate(**encoded, **arguments)
    tokenizer.batch_decode(answers, skip_special_tokens=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.time() - began) / (answers.numel() - encoded["input_ids"].numel())


def job_of(case_name, checkpoint, batch, new_tokens, device, count):
    """The case as published, in texts as its tokenizer has them, with so many new tokens (None: as many as published)."""
    job = asked.published("deepspeed-inference", case_name, batch, device, count)
    made = {"model": {**job.model, "path": str(checkpoint)}, "prompt": {**job.prompt, "tokens": None}}
    if new_tokens:
        made["runs"] = [{**run, "new_tokens": new_tokens, "arguments": {**run["arguments"], "max_new_tokens": new_tokens}} for run in job.runs]
    return dataclasses.replace(job, **made)


def main(case, checkpoint, batch, rounds, new_tokens, out=None):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    job = job_of(case, checkpoint, batch, new_tokens, device, max(1, torch.cuda.device_count()))
    loaded = backends.find(job.backend).load(job)
    loaded.input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, padding_side="left")
    sentences = forms.find(job.form).batch_of(job.prompt["texts"], batch)

    def article():
        return benchmark_ms_per_token(loaded.model, tokenizer, sentences, loaded.device, job.runs[0]["arguments"])

    pairs, figures = honesty.call_by_call(job, loaded, article, rounds)
    means = [(ms / figures["cycles"]["counted_tokens"], benchmarks) for ms, benchmarks in pairs]
    facts = {"case": case, "batch_size": batch, "new_tokens": job.runs[0]["new_tokens"]}
    honesty.tell(f"{case}, batches of {batch}", honesty.summary(means, "ms_per_token") | facts, out)


if __name__ == "__main__":
    typed = honesty.options(case="accelerate-fp16")
    with honesty.checkpoint(typed.checkpoint, "bloom-7b1") as folder:
        main(typed.case, folder, typed.batch, typed.rounds, typed.new_tokens, typed.out)
