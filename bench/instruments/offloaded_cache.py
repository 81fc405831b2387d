"""Does transformers' offloaded key-value cache answer as its default cache does? Random weights, greedy tokens, one prompt in every row.

    PYTHON -m bench.instruments.offloaded_cache SHAPE --out OUT

A line of the table is a way to hold the cache: `default`; `offloaded`, as transformers has it; `waiting`, where a copy to the GPU waits for all
work that the GPU was given before; `synchronized`, where the host waits for that work; then the first two ways again, because the order might
matter. The first call with the default cache is the reference. For each call the table has the number of rows with the reference's tokens, and
the largest error of a step's logits against the reference's (norm of the difference over norm; null where it is not finite). A step's error
covers the rows whose tokens before this step are the reference's.
"""

import sys

from bench.checking import check
from bench.instruments import shared_options, weights_and_times
from bench.job import to_json, write_whole
from bench.models import weights
from bench.models.offloaded_cache import after_what_was_asked_for, before_each_copy


def at_once(cache):
    """As transformers has it."""


def after_all_work(cache):
    import torch

    torch.cuda.synchronize()


#: {way: (the name that `generate` gets, what comes before each copy to the GPU)}
WAYS = {
    "default": (None, at_once),
    "offloaded": ("offloaded", at_once),
    "waiting": ("offloaded", after_what_was_asked_for),
    "synchronized": ("offloaded", after_all_work),
    "offloaded again": ("offloaded", at_once),
    "default again": (None, at_once),
}


def answer(model, ids, new_tokens, implementation):
    """(tokens [rows, new tokens], logits [steps, rows, vocabulary]) of one call."""
    import torch

    arguments = {"cache_implementation": implementation} if implementation else {}
    length = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
    with torch.no_grad():
        made = model.generate(ids, do_sample=False, num_beams=1, return_dict_in_generate=True, output_logits=True, **length, **arguments)
    return made.sequences[:, ids.shape[1] :], torch.stack(made.logits)


def largest_error(found, expected):
    """The largest error of an answer's logits, while both answers have the same tokens; None where an error is not finite."""
    (tokens, logits), (expected_tokens, expected_logits) = found, expected
    alike = (tokens == expected_tokens).cumprod(dim=1).bool()
    errors, rows = [], slice(None)
    for step in range(tokens.shape[1]):
        errors.append(check.tensor_error(logits[step][rows], expected_logits[step][rows]))
        rows = alike[:, step]
        if not rows.any():
            break
    return None if None in errors else max(errors)


def line_of(way, model, ids, options, expected):
    """A way's line, or one with the reason of its failure; `expected` is the first call with the default cache, None for that call itself."""
    import transformers

    implementation, wait = WAYS[way]
    line = {"way": way, "rows_alike": [], "logits_error": []}
    try:
        with before_each_copy(transformers.cache_utils.Cache, wait):
            for _ in range(options.calls):
                found = answer(model, ids, options.new_tokens, implementation)
                expected = expected or found
                line["rows_alike"].append(int((found[0] == expected[0]).all(dim=1).sum()))
                line["logits_error"].append(largest_error(found, expected))
    except Exception as error:  # any error of a library or of the driver
        line["reason"] = "{}: {}".format(type(error).__name__, str(error)[:600])
    return line, expected


def run(options):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    config = weights.config_of(options.shape, options.scale)
    table = {name: value for name, value in vars(options).items() if name != "out"}
    table.update(torch=torch.__version__, transformers=transformers.__version__, ways=[])
    table.update(shared_options.device_of(options))
    model, ids = weights_and_times.model_and_prompt(config, options, options.context_tokens)
    expected = None
    for way in WAYS:
        line, expected = line_of(way, model, ids, options, expected)
        table["ways"].append(line)
        write_whole(options.out, to_json(table))
        print("{way:14} rows alike {rows_alike} of {rows}, error of logits {logits_error} {reason}".format(**{"reason": "", **line}, rows=options.rows))
    return table


def parse(arguments):
    parser = shared_options.parser_of("offloaded_cache", "Does the offloaded cache answer as the default one?")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=int, default=11)
    parser.add_argument("--context-tokens", type=int, default=1024)
    parser.add_argument("--new-tokens", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
