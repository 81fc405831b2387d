"""From a job's prompt to token ids."""


def token_ids(prompt, model_path):
    """The prompt as a tensor [batch_size, tokens] of int64 on the CPU.

    The text's ids are cut or repeated to the length `prompt["tokens"]`, if any: random weights have a stand-in tokenizer,
    whose own number of tokens would mean nothing.
    """
    import torch
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(model_path)(prompt["text"], return_tensors="pt").input_ids
    length = prompt.get("tokens")
    if length:
        repeats = -(-length // ids.shape[1])
        ids = ids.repeat(1, repeats)[:, :length]
    return ids.repeat(prompt["batch_size"], 1).to(torch.int64)
