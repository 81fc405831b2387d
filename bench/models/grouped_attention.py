"""An attention function for transformers that copies no key and no value in a step of one token, where several query heads share a key head.

With a mask, transformers' own functions repeat each key head and each value head for the query heads that share it: each step copies the whole cache,
several times as large. Here the query heads that share a key head are the rows of one product with it. A prompt goes through transformers' own `sdpa`.
"""

#: The name in transformers of this attention function, and of its mask.
NAME = "grouped"


def register():
    """Let transformers know `forward` by NAME."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, position_bias=None, **more):
    """(output [rows, tokens, heads, size], None) of a query [rows, heads, tokens, size] on keys and values [rows, key heads, length, size].

    The arguments are those of transformers' attention functions. What is no plain step of one token goes through `sdpa`.
    """
    if query.shape[2] == 1 and position_bias is None and not dropout:
        return step(query, key, value, attention_mask, scaling), None
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, position_bias=position_bias, **more)


def step(query, key, value, mask=None, scaling=None):
    """The output [rows, 1, heads, size] of one token's query [rows, heads, 1, size].

    `mask` [rows or 1, 1, 1, length] says which keys count, or is added to the scores. A query head's key head is its number divided by the size of
    a group. The softmax is in float32, whatever the dtype, as in transformers' `eager`.
    """
    import torch

    rows, heads, _, size = query.shape
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    scores = torch.matmul(grouped, key.transpose(2, 3)).float() * (size**-0.5 if scaling is None else scaling)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1).to(value.dtype)
    return torch.matmul(weights, value).reshape(rows, 1, heads, value.shape[-1])
