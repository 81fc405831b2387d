"""Does the kit's row of a batch tell what the third article's own batched loop tells? Both run on the same model and the same texts.

    PYTHON tests/honesty_batch.py [CHECKPOINT [BATCH [ROUNDS [OUT [NEW_TOKENS]]]]]      in an environment with torch and transformers (Python 3.11 or newer)

Without a checkpoint (or with -) it writes a tiny one and makes 32 new tokens a text (`make honesty`); with one it makes the article's 256, or NEW_TOKENS,
on a GPU where there is one: fewer let more rounds see the same moment of a host, and are the harder test, for what is not generation weighs more.
Each round makes two calls by the article's loop and two by the kit's form, each first in every other round, both from the same seed. Printed: the
ratio of their times with its interval; OUT gets it as JSON. They should be within 3 % of each other on a GPU.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import backends, forms, inputs, texts, weights
from scripts import articles, jobs
from tests import honesty


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
    """The article's batch as published, once timed."""
    article = articles.find("batch-generate")
    (case,) = [case for case in article.cases if case.name == "batch"]
    target = jobs.Target("current", device, 1, "random", "full" if device == "cuda" else "tiny")
    job = jobs.measuring_job(article, case, "published", target, jobs.Typed(batch))
    runs = [{**run, "new_tokens": new_tokens} for run in job.runs]
    return dataclasses.replace(job, model={**job.model, "path": str(checkpoint)}, runs=runs, warmup_runs=0, timed_runs=1)


def main(checkpoint, batch, rounds, new_tokens, out=None):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    job = job_of(checkpoint, batch, new_tokens, "cuda" if torch.cuda.is_available() else "cpu")
    loaded = backends.find(job.backend).load(job)
    loaded.input_ids = inputs.token_ids(job.prompt, job.model["path"]).to(loaded.device)
    tokenizer = texts.tokenizer_of(job)
    texts_list = texts.batch_of(job, tokenizer)
    form = forms.find(job.form)

    def article():
        torch.manual_seed(0)
        return articles_loop(loaded.model, tokenizer, texts_list, new_tokens) + articles_loop(loaded.model, tokenizer, texts_list, new_tokens)

    def kit():
        """A row's cold and its timed call: here the model is warm for both."""
        (measurement,), _, _ = form.run(job, loaded, lambda **event: None)
        return (measurement["cold_ms"] + measurement["timed_ms"][0]) / 1000

    articles_loop(loaded.model, tokenizer, texts_list, new_tokens)
    means = []
    for number in range(rounds):
        times = {one: 1000 * one() / 2 for one in ((article, kit) if number % 2 else (kit, article))}
        means.append((times[kit], times[article]))
    honesty.tell(f"batches of {batch}", honesty.summary(means) | {"case": "batch", "batch_size": batch, "new_tokens": new_tokens}, out)


if __name__ == "__main__":
    given = sys.argv[1:]
    batch, rounds = (int(given[place]) if len(given) > place else default for place, default in ((1, 4), (2, 10)))
    if given and given[0] != "-":
        main(given[0], batch, rounds, int(given[4]) if len(given) > 4 else 256, *given[3:4])
    else:
        with tempfile.TemporaryDirectory() as folder:
            weights.write_checkpoint(folder, "llama-3-8B", "tiny", seed=0)
            main(folder, batch, rounds, 32)
