"""python -m bench.instruments.clocks_batches JOB OUT [ROUNDS]: compare the third article's batched loop with the kit's.

JOB is a job of the case `batch`. Each round is one call by the article's loop and one by the kit's form, on the same texts. On a GPU
the two times should be within 3 % of each other.
"""

from time import perf_counter

from bench.instruments import clocks
from bench.models import texts


def articles_loop_ms(model, tokenizer, texts_list, new_tokens):
    """The ms of the article's batched code, from the list of texts to the list of captions."""
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
    return 1000 * (perf_counter() - began)


def main():
    job, out, rounds = clocks.arguments("clocks_batches")
    import transformers

    transformers.logging.set_verbosity_error()
    loaded = clocks.load(job)
    tokenizer = texts.tokenizer_of(job)
    texts_list = texts.batch_of(job, tokenizer)
    new_tokens = job.runs[0]["new_tokens"]
    pairs, _ = clocks.call_by_call(job, loaded, lambda: articles_loop_ms(loaded.model, tokenizer, texts_list, new_tokens), rounds)
    clocks.write(job, {**clocks.summary(pairs), "new_tokens": new_tokens}, out)


if __name__ == "__main__":
    main()
