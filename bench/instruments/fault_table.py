"""Which faults does the judge see in greedy tokens, with which random weights?

    python -m bench.instruments.fault_table bloom-7b1 --candidates q1.5w4 q2w4 --out table.json

For each candidate (factors for the roles of bench/models/weights.py) the model decodes greedily, correctly and with deliberate faults. A
float32 model of the same weights judges the tokens (bench/checking/regret.py) and the logits. The file is rewritten after each candidate.
The weights are those of the kit's checkpoint to the bit, but are never written to a disk.
"""

import json
import os
import re
import sys
import tempfile
import time

from bench.checking import regret
from bench.instruments import faulty, shared_options
from bench.job import write_whole
from bench.measuring import timed_tokens
from bench.models import prompts, weights

TEXT = "The kit runs one prompt through every backend and compares what comes out."


def built(config, dtype, device):
    """An initialised model of a config.json's fields. Its buffers stay float32, as `from_pretrained` leaves them."""
    import torch
    import transformers

    model_config = transformers.AutoConfig.for_model(**dict(config, torch_dtype="float32"))
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(model_config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model.eval().requires_grad_(False)


class Pair:
    """A model in the dtype of the rows, and the reference: the same weights in float32."""

    def __init__(self, shape, scale, dtype, device):
        import torch

        self.config, self.device = weights.config_of(shape, scale), device
        self.stored = getattr(torch, self.config["torch_dtype"])
        self.model = built(self.config, getattr(torch, dtype), device)
        self.reference = built(self.config, torch.float32, device)

    def fill(self, factors):
        """Give both models the checkpoint's values with these {role: factor}."""
        for (name, parameter), (_, exact) in zip(self.model.named_parameters(), self.reference.named_parameters()):
            times = weights.multiplier(name, factors)
            values = weights.random_tensor(name, tuple(parameter.shape), 0, self.stored, self.device, times=times)
            parameter.data.copy_(values)
            exact.data.copy_(values)

    def restore(self):
        """Undo what `faulty.quantise` did to the model."""
        for parameter, exact in zip(self.model.parameters(), self.reference.parameters()):
            parameter.data.copy_(exact.data)


def prompt_ids(config, text, count, device):
    """The kit's token ids of a text, cut or repeated to `count`: [1, count]."""
    with tempfile.TemporaryDirectory() as folder:
        weights.write_tokenizer(folder)
        with open(os.path.join(folder, "config.json"), "w") as stream:
            json.dump(config, stream)
        return prompts.token_ids({"text": text, "tokens": count, "batch_size": 1}, folder).to(device)


def judged(name, pair, prompt, tokens, logits=None):
    """A row of the table; `logits` are the decoding's own, [vocabulary] for each step, or None."""
    expected = regret.Reader(pair.reference).read(prompt, tokens)
    row = {"decoding": name, "prompt_tokens": prompt.shape[1], "tokens": len(tokens), "distinct": len(set(tokens))}
    row["regret"] = regret.summary(regret.regrets(expected, tokens))
    if logits is not None:
        errors = [float((own.float() - right).norm() / right.norm()) for own, right in zip(logits, expected)]
        row["logits_error"] = {"prompt": errors[0], "late": errors[timed_tokens.late_step(len(errors))], "largest": max(errors)}
    return row


def batch_of(pair, prompt):
    """The rows of one batch: without a fault, and with each fault of a mask, a position or a layer."""
    middle = len(list(faulty.pretrained.layers_of(pair.model))) // 2
    ids, row = prompt[0], faulty.Row
    rows = [
        row("honest, in a batch", ids),
        row("a layer skipped", ids, skipped_layer=middle),
        row("first prompt token hidden", ids, hidden_prompt=True),
        row("first new token hidden", ids, hidden_new=True),
        row("another prompt's answer", ids.flip(0)),
    ]
    return rows + ([row("positions one too far", ids, ahead=True)] if faulty.takes_positions(pair.model) else [])


def candidate_rows(pair, prompt, new_tokens, bits):
    """The table's rows for the weights that the pair holds."""
    import torch

    tokens, logits = faulty.decode(pair.model, [faulty.Row("honest", prompt[0])], new_tokens)
    honest = tokens[0].tolist()
    rows = [judged("honest", pair, prompt, honest, [step[0] for step in logits])]
    batch = batch_of(pair, prompt)
    tokens, logits = faulty.decode(pair.model, batch, new_tokens)
    for place, row in enumerate(batch):
        own = None if row.name.startswith("another") else [step[place] for step in logits]
        rows.append(judged(row.name, pair, prompt, tokens[place].tolist(), own))
    del logits
    for count in bits:
        faulty.quantise(pair.model, count)
        tokens, logits = faulty.decode(pair.model, [faulty.Row("", prompt[0])], new_tokens)
        rows.append(judged("weights rounded to {} bits".format(count), pair, prompt, tokens[0].tolist(), [step[0] for step in logits]))
        pair.restore()
    most_common = max(sorted(set(honest)), key=honest.count)
    rows.append(judged("a constant: the first token", pair, prompt, honest[:1] * new_tokens))
    rows.append(judged("a constant: the commonest token", pair, prompt, [most_common] * new_tokens))
    rows.append(judged("one token behind", pair, prompt, honest[:1] + honest[:-1]))
    rows.append(judged("one token short", pair, prompt, honest[:-1]))
    rows.append(judged("cached answer to another prompt", pair, prompt.flip(1), honest))
    if pair.device != "cpu":
        torch.cuda.empty_cache()
    return rows


def factors_of(text):
    """{"q": 1.5, "a": 8.0, "m": 2.0} of "q1.5a8m2"; w stands for a and m together. Raises ValueError."""
    if not re.fullmatch(r"([qamw]\d+(\.\d+)?)+", text):
        raise ValueError("candidate is {!r}, allowed are roles with their factors, such as q1.5w4 or q1.5a8m2".format(text))
    factors = {}
    for role, number in re.findall(r"([qamw])([\d.]+)", text):
        factors.update({letter: float(number) for letter in ("am" if role == "w" else role)})
    return factors


def markdown(table):
    """The table as Markdown, one line for each candidate and decoding."""
    lines = [
        "| weights | prompt tokens | decoding | distinct tokens | regret p50 / p90 / max | logits error prompt / late / largest |",
        "|---|---|---|---|---|---|",
    ]
    for candidate in table["candidates"]:
        for row in candidate["rows"]:
            errors = row.get("logits_error")
            cells = [
                candidate["weights"],
                str(row["prompt_tokens"]),
                row["decoding"],
                "{} of {}".format(row["distinct"], row["tokens"]),
                " / ".join("{:.3f}".format(row["regret"][part]) for part in ("p50", "p90", "max")),
                " / ".join("{:.4f}".format(errors[part]) for part in ("prompt", "late", "largest")) if errors else "-",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write(table, path):
    """Write the table as JSON to `path`, and as Markdown beside it."""
    for name, text in ((path, json.dumps(table, indent=1) + "\n"), (os.path.splitext(path)[0] + ".md", markdown(table))):
        write_whole(name, text)


def run(options):
    import torch
    import transformers

    began = time.monotonic()
    pair = Pair(options.shape, options.scale, options.dtype, options.device)
    prompts = [prompt_ids(pair.config, options.text, count, options.device) for count in options.prompt_tokens]
    table = {
        "shape": options.shape,
        "scale": options.scale,
        "dtype": options.dtype,
        "new_tokens": options.new_tokens,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name(0) if options.device != "cpu" else "cpu",
        "candidates": [],
    }
    print("{} built after {:.1f} s".format(options.shape, time.monotonic() - began), flush=True)
    for text in options.candidates:
        if time.monotonic() - began > options.stop_after_s:
            print("stopped before {}: {} s are over".format(text, options.stop_after_s), flush=True)
            break
        pair.fill(factors_of(text))
        rows = [row for prompt in prompts for row in candidate_rows(pair, prompt, options.new_tokens, options.bits)]
        table["candidates"].append({"weights": text, "rows": rows})
        write(table, options.out)
        print("{} {} after {:.1f} s".format(options.shape, text, time.monotonic() - began), flush=True)
    return table


def parse(arguments):
    parser = shared_options.parser_of("fault_table", "Which faults does the judge see in greedy tokens?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--candidates", nargs="+", required=True, metavar="q1.5w4")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--prompt-tokens", nargs="+", type=int, default=[128])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--bits", nargs="*", type=int, default=[4, 8])
    parser.add_argument("--stop-after-s", type=float, default=1e9, help="start no candidate after this many seconds")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(markdown(run(parse(sys.argv[1:]))))
