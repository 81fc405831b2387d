"""From a job's prompt to token ids."""


def token_ids(prompt, model_path):
    """The prompt as a tensor [batch_size, tokens] of int64 on the CPU.

    `prompt["tokens"]` cuts the text's ids, or repeats them, to that length: with random weights the tokenizer is a
    stand-in whose own count would mean nothing.
    """
    import torch
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(model_path)(prompt["text"], return_tensors="pt").input_ids
    wanted = prompt.get("tokens")
    if wanted:
        repeats = -(-wanted // ids.shape[1])
        ids = ids.repeat(1, repeats)[:, :wanted]
    return ids.repeat(prompt["batch_size"], 1).to(torch.int64)
