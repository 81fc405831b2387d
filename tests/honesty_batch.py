"""Does the kit's row of a batch tell what the third article's own batched loop tells? Both run on the same model and the same texts.

    PYTHON -m tests.honesty_batch [CHECKPOINT [BATCH [ROUNDS [OUT [NEW_TOKENS]]]]]

in an environment with torch and transformers (Python 3.11 or newer)

Without a checkpoint (or with -) it writes a tiny one (`make honesty`). NEW_TOKENS may be fewer than the article's 256 (32 on a CPU), which is the harder
test: what is not generation weighs more.
Each round is a call by the article's loop and one by the kit's form. Printed: the ratio of the means over all rounds with its interval; OUT gets it as
JSON. They should be within 3 % of each other on a GPU.
"""

import dataclasses
from time import perf_counter

from bench import backends
from bench.models import prompts, texts
from tests import asked, honesty


def articles_loop(model, tokenizer, texts_list, new_tokens):
    """Seconds of the article's batched part, from the list of texts to the list of captions."""
    import torch

    captions = []
    began = perf_counter()
    encoded = tokenizer(texts_list, return_tensors="pt", padding="longest", truncation=True).to(model.device)
    terminators = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|eot_id|>")]
    with torch.no_grad():
        outputs = model.generate(max_new_tokens=new_tokens, eos_token_id=terminators, do_sample=True, **encoded)
    for index, output in enumerate(outputs):
        response = output[len(encoded["attention_mask"][index]) :]
        captions.append([tokenizer.decode(response, skip_special_tokens=True).split("\n")[-1]])
    return perf_counter() - began


def job_of(checkpoint, batch, new_tokens, device):
    """The article's batch as published."""
    job = asked.published("batch-generate", "batch", batch, device, 1)
    runs = [{**run, "new_tokens": new_tokens or run["new_tokens"]} for run in job.runs]
    return dataclasses.replace(job, model={**job.model, "path": str(checkpoint)}, runs=runs)


def main(checkpoint, batch, rounds, new_tokens, out=None):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    job = job_of(checkpoint, batch, new_tokens, "cuda" if torch.cuda.is_available() else "cpu")
    loaded = backends.find(job.backend).load(job)
    loaded.input_ids = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    tokenizer = texts.tokenizer_of(job)
    texts_list = texts.batch_of(job, tokenizer)
    made = job.runs[0]["new_tokens"]

    def article():
        return 1000 * articles_loop(loaded.model, tokenizer, texts_list, made)

    means, _ = honesty.call_by_call(job, loaded, article, rounds)
    honesty.tell(f"batches of {batch}", honesty.summary(means) | {"case": "batch", "batch_size": batch, "new_tokens": made}, out)


if __name__ == "__main__":
    typed = honesty.options()
    with honesty.checkpoint(typed.checkpoint, "llama-3-8B") as folder:
        main(folder, typed.batch, typed.rounds, typed.new_tokens, typed.out)
