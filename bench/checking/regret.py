"""The regret of each token of an answer, by a reference model.

The reference reads the prompt and the answer itself, so the answer need not have the same tokens as the reference's own. The regret of a token is
(the largest reference logit - the reference logit of the token) / the standard deviation of the reference's logits at that step.
A token that the reference would choose has regret 0.
"""

from bench.models import pretrained


class Reader:
    """What a reference model says of answers. It keeps the cache of the last prompt, because reading a long prompt for each of many answers takes minutes."""

    def __init__(self, model):
        self.model, self.prompt = model, None

    def read(self, prompt, tokens):
        """The model's logits [new tokens, vocabulary] in float32, one row for each of `tokens` [new tokens].

        prompt: token ids [1, prompt tokens] on the model's first device. One forward pass reads all tokens; a new prompt takes one more before it.
        """
        import torch

        with torch.no_grad():
            if self.prompt is None or not torch.equal(self.prompt, prompt):
                self._read_prompt(prompt)
            if len(tokens) < 2:
                return self.last
            answer = torch.as_tensor(tokens[:-1], dtype=prompt.dtype, device=prompt.device).reshape(1, -1)
            mask = torch.ones_like(torch.cat([prompt, answer], dim=1))
            logits = self.model(answer, attention_mask=mask, past_key_values=self.cache, use_cache=True).logits[0].float()
        pretrained.drop(self.cache, answer.shape[1])
        return torch.cat([self.last.to(logits.device), logits])

    def _read_prompt(self, prompt):
        """Read a prompt. A long prompt's cache and logits take gigabytes each: the earlier prompt's cache goes first, and only the last logits stay."""
        import torch

        self.prompt = self.cache = None
        output = self.model(prompt, attention_mask=torch.ones_like(prompt), use_cache=True)
        self.prompt, self.cache, self.last = prompt, output.past_key_values, output.logits[0, -1:].float().clone()


def regrets(logits, tokens, end_tokens=()):
    """The regret of each token [new tokens], a float32 tensor, from the reference's logits [new tokens, vocabulary].

    `end_tokens` do not count for the largest logit: a run with a fixed number of tokens forbids them.
    """
    import torch

    chosen = torch.as_tensor(tokens, dtype=torch.int64, device=logits.device).reshape(-1, 1)
    candidates = logits.clone()
    candidates[:, list(end_tokens)] = float("-inf")
    return (candidates.max(dim=1).values - logits.gather(1, chosen)[:, 0]).clamp(min=0) / logits.std(dim=1)


def summary(values):
    """{p50, p90, max} of regrets; quantiles are interpolated linearly."""
    ordered = sorted(float(value) for value in values)

    def quantile(share):
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return {"p50": quantile(0.5), "p90": quantile(0.9), "max": ordered[-1]}
