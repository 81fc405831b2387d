"""python -m bench.instruments.clocks_tokens JOB OUT [ROUNDS]: compare the second article's benchmark with the kit's ms per token.

JOB is a job of accelerate-fp16, accelerate-int8 or ds-inference in a batch. Each round is one cycle of the benchmark (tokenise, generate,
decode; the time divided by the tokens that `generate` appended; the benchmark itself times five cycles together) and one call of the kit's
form. On a GPU the two times should be within 3 % of each other. A tokenizer makes the prompts of both, as in the benchmark: in rows with random
weights the kit cuts them, which the benchmark does not.
"""

import dataclasses
import time

from bench import forms
from bench.instruments import clocks


def benchmark_ms_per_token(model, tokenizer, sentences, device, arguments):
    """The benchmark's ms per token of one cycle; its tokens are all columns after the prompts, in every row."""
    import torch

    began = time.time()
    encoded = tokenizer(sentences, return_tensors="pt", padding=True, return_token_type_ids=False).to(device)
    with torch.no_grad():
        answers = model.generate(**encoded, **arguments)
    tokenizer.batch_decode(answers, skip_special_tokens=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.time() - began) / (answers.numel() - encoded["input_ids"].numel())


def main():
    job, out, rounds = clocks.arguments("clocks_tokens")
    job = dataclasses.replace(job, prompt=dict(job.prompt, tokens=None))
    import transformers

    transformers.logging.set_verbosity_error()
    loaded = clocks.load(job)
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model["path"], padding_side="left")
    sentences = forms.find(job.form).batch_of(job.prompt["texts"], job.prompt["batch_size"])

    def article():
        return benchmark_ms_per_token(loaded.model, tokenizer, sentences, loaded.device, job.runs[0]["arguments"])

    pairs, figures = clocks.call_by_call(job, loaded, article, rounds)
    per_token = [(kit_ms / figures["cycles"]["counted_tokens"], article_ms_per_token) for kit_ms, article_ms_per_token in pairs]
    clocks.write(job, {**clocks.summary(per_token, "ms_per_token"), "new_tokens": job.runs[0]["new_tokens"]}, out)


if __name__ == "__main__":
    main()
