"""Greedy decoding with deliberate faults, to show that the output check notices them."""

from bench.models import pretrained


class Row:
    """One row of a batch and its fault.

    prompt          token ids [prompt tokens]
    hidden_prompt   the first token of the prompt is masked out
    hidden_new      the first new token is masked out for all later ones
    ahead           from the first new token on, positions are one too large
    skipped_layer   index of a layer whose output is its input, or None
    """

    def __init__(self, name, prompt, hidden_prompt=False, hidden_new=False, ahead=False, skipped_layer=None):
        self.name, self.prompt, self.hidden_prompt, self.hidden_new = name, prompt, hidden_prompt, hidden_new
        self.ahead, self.skipped_layer = ahead, skipped_layer


def takes_positions(model):
    """Does the model take positions? BLOOM computes them from the attention mask, and only their differences count."""
    return model.config.model_type != "bloom"


def decode(model, rows, new_tokens):
    """(tokens [rows, new tokens], [the logits [rows, vocabulary] of each step]) of the rows as one batch, with their faults."""
    import torch

    ids = torch.stack([row.prompt for row in rows])
    width, cache, step_logits, tokens = ids.shape[1], None, [], []
    hooks = [_skip(model, row.skipped_layer, place) for place, row in enumerate(rows) if row.skipped_layer is not None]
    try:
        with torch.no_grad():
            for step in range(new_tokens):
                output = model(ids, past_key_values=cache, use_cache=True, **_inputs(model, rows, width, step))
                cache = output.past_key_values
                step_logits.append(output.logits[:, -1].clone())
                ids = step_logits[-1].argmax(dim=-1, keepdim=True)
                tokens.append(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(tokens, dim=1), step_logits


def _inputs(model, rows, width, step):
    """The attention mask and the positions of a step; step 0 reads the prompt."""
    import torch

    length, device = width + step, rows[0].prompt.device
    mask = torch.ones(len(rows), length, dtype=torch.int64, device=device)
    positions = torch.arange(length, device=device).repeat(len(rows), 1)[:, 0 if step == 0 else -1 :]
    for place, row in enumerate(rows):
        if row.hidden_prompt:
            mask[place, 0] = 0
        if row.hidden_new and step > 1:
            mask[place, width] = 0
    if step:
        positions = positions + torch.tensor([[int(row.ahead)] for row in rows], device=device)
    return dict({"attention_mask": mask}, **({"position_ids": positions} if takes_positions(model) else {}))


def _skip(model, layer, place):
    """A hook that makes a layer return its input in one row of the batch; its cache is filled as usual."""

    def hook(module, arguments, named, output):
        hidden = arguments[0] if arguments else named["hidden_states"]
        whole = output if isinstance(output, tuple) else (output,)
        changed = whole[0].clone()
        changed[place] = hidden[place]
        return (changed,) + whole[1:] if isinstance(output, tuple) else changed

    return pretrained.layers_of(model)[layer].register_forward_hook(hook, with_kwargs=True)


def quantise(model, bits):
    """Round the matrices of all layers to `bits` bits, each row by its largest value."""
    import torch

    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        for parameter in pretrained.layers_of(model).parameters():
            if parameter.dim() == 2:
                scale = parameter.float().abs().amax(dim=1, keepdim=True) / most
                parameter.copy_((parameter.float() / scale).round() * scale)
