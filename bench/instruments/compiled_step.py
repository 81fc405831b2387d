"""Which settings make the step of `compiled` fastest, and where does the time of a step go?

    python -m bench.instruments.compiled_step bloom-7b1 --out steps.json

On one GPU, with one model in memory, the program times the matrix products of a step alone (bench/measuring/roof.py), which a step can hardly
beat, and then each variant: what a case may write under `load` of bench/backends/compiled.py. It rewrites the file after each variant; a variant
that fails is a line with its reason. Every variant compiles everything anew, which takes most of the time: `--layers 8` keeps the first 8 layers.
The weights are those of the kit's checkpoint to the bit, but are never written to a disk.
"""

import collections
import copy
import gc
import hashlib
import statistics
import sys
import time
import types

from bench import compat, profile
from bench.backends import compiled
from bench.instruments import shared_options, weights_and_times
from bench.job import to_json, write_whole
from bench.measuring import measure, roof, work
from bench.models import weights

#: A sum is one kernel, not one for its parts and another for the parts' sum.
WHOLE = {"split_reductions": False}

#: Kernels of Inductor are tried in more sizes, and sums of a row also in registers alone.
SIZED, PERSISTENT = {"max_autotune_pointwise": True}, {"triton.multi_kernel": 1}


def kit(products, *settings, sums=False, **more):
    """`load` of the kit's loop; `settings` of Inductor that are not named are off."""
    inductor = dict.fromkeys({**compiled.OVERLAPPED, **compiled.COMBINED}, False)
    for setting in settings:
        inductor.update(setting)
    return dict(loop=compiled.KIT, products=products, inductor=inductor, sums=sums, **more)


#: {name: load}, the most interesting variants first. Tokens are compared with those of the first variant that runs.
VARIANTS = {
    # What transformers does by itself.
    "generate": {"loop": "transformers"},
    # Whose matrix products are faster?
    "cublas": kit("cublas"),
    "vectors": kit("vectors"),
    "tuned": kit("tuned"),
    # What do attention's small products cost, the time between kernels, and kernels that could be one?
    "sums": kit("cublas", sums=True),
    "overlapped": kit("cublas", compiled.OVERLAPPED),
    "sums-overlapped": kit("cublas", compiled.OVERLAPPED, sums=True),
    "sums-combined": kit("cublas", compiled.COMBINED, sums=True),
    "sums-overlapped-combined": kit("cublas", compiled.OVERLAPPED, compiled.COMBINED, sums=True),
    # Are small sums faster in one kernel, and kernels in other sizes?
    "whole": kit("cublas", compiled.OVERLAPPED, WHOLE, sums=True),
    "whole-sized": kit("cublas", compiled.OVERLAPPED, WHOLE, SIZED, sums=True),
    "whole-persistent": kit("cublas", compiled.OVERLAPPED, WHOLE, PERSISTENT, sums=True),
    # What do fewer kernels bring without overlap, and kernels that overlap but wait before they read?
    "sums-whole": kit("cublas", WHOLE, sums=True),
    "sums-whole-combined": kit("cublas", WHOLE, compiled.COMBINED, sums=True),
    "sums-waiting": kit("cublas", compiled.OVERLAPPED, sums=True, waits=True),
    "sums-waiting-combined": kit("cublas", compiled.OVERLAPPED, compiled.COMBINED, sums=True, waits=True),
    # Is attention by the products and sums of `eager` faster than a library's kernel, for a model that has both?
    "eager-attention": kit("cublas", attention="eager"),
    "eager-attention-sums": kit("cublas", attention="eager", sums=True),
    "eager-attention-sums-overlapped": kit("cublas", compiled.OVERLAPPED, attention="eager", sums=True),
    # The best of both? Products with a bias inside are tried, the others and those of the attention become kernels of Inductor.
    "tuned-vectors": kit("tuned", compiled.VECTORS, split_biases=False),
    # What do biases cost? A product with its bias inside stays with cuBLAS, or is tried with it.
    "cublas-split": kit("cublas", split_biases=True),
    "vectors-joined": kit("vectors", split_biases=False),
    "tuned-joined": kit("tuned", split_biases=False),
    # Is a product of one row faster in parts along its sum?
    "tuned-in-parts": kit("tuned", {"triton.decompose_k_threshold": 0}),
    # Does it matter who records the CUDA graph?
    "cublas-torch-records": kit("cublas", mode="reduce-overhead"),
    # Are Inductor's matrix-vector kernels slow because the search ends too soon?
    "vectors-searched": kit("vectors", {"coordinate_descent_check_all_directions": True, "coordinate_descent_search_radius": 2}),
    # What do Inductor's kernels bring at all? The model's own kernels, in the kit's CUDA graph.
    "eager": kit("cublas", compiler="eager"),
}

#: The rule of `choice`, written before the timings that it judges: other settings must be at least so many times as fast as the first ones.
#: Settings that change what Inductor writes (`waits`) must also be so many times as fast as the best ones without `waits`.
LEAST_GAIN = 1.015

GREEDY = {"do_sample": False, "num_beams": 1}

#: Calls of one token for each longer one.
FIRSTS_A_CALL = 5

#: Decoding steps of a profile, and how many of its kernels are listed.
STEPS, MOST_KERNELS = 16, 25

#: What counts as a kernel in a trace; on a CPU operators take their place.
CATEGORIES = {"cuda": ("kernel", "gpu_memcpy", "gpu_memset"), "cpu": ("cpu_op",)}


def config_of(options):
    """The config.json of the shape, with the first layers only where `--layers` says so."""
    config = weights.config_of(options.shape, options.scale)
    name = "n_layer" if "n_layer" in config else "num_hidden_layers"
    return dict(config, **{name: min(options.layers or config[name], config[name])})


def job_of(options, load):
    """What bench/backends/compiled.py reads of a job; its cache has room for a profile too."""
    runs = [{"new_tokens": count, "arguments": GREEDY} for count in (1, options.new_tokens, 1 + STEPS)]
    return types.SimpleNamespace(device=options.device, load=load, runs=runs, prompt={"batch_size": options.rows})


def generator(loaded, ids):
    """A function of a number of new tokens, which makes them [rows, new tokens]."""
    import transformers

    def generate(new_tokens):
        length = compat.length_arguments(transformers.__version__, GREEDY, ids.shape[1], new_tokens)
        return loaded.generate(ids, **dict(GREEDY, **length))

    return generate


def timed(generate, new_tokens, calls, synchronize):
    """({first_ms, call_ms, ms_a_further_token} by medians, the tokens of the last call's first row; all rows have one prompt)."""
    # The prompt's time is subtracted below, and on a slow host it scatters more than all steps together.
    firsts = [measure.elapsed_ms(lambda: generate(1), synchronize)[0] for _ in range(FIRSTS_A_CALL * calls)]
    wholes = [measure.elapsed_ms(lambda: generate(new_tokens), synchronize) for _ in range(calls)]
    first_ms, call_ms = statistics.median(firsts), statistics.median(ms for ms, _ in wholes)
    times = {"first_ms": first_ms, "call_ms": call_ms, "ms_a_further_token": (call_ms - first_ms) / (new_tokens - 1)}
    return times, wholes[-1][1][0].tolist()


def repeated(loaded, generate, new_tokens, calls):
    """{answers, last_logits}: how many different answers and last logits equal calls made; None for the logits of transformers' loop.

    More than one means kernels that add in no fixed order, or a race.
    """
    answers, logits = set(), set()
    for _ in range(calls):
        answers.add(digest(generate(new_tokens)))
        if loaded.loop is not None:
            logits.add(digest(loaded.loop.logits.float()))
    return {"answers": len(answers), "last_logits": len(logits) or None}


def digest(tensor):
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()


def found_in(trace, device):
    """[(begin, duration, name)] in µs of what the device did in a trace, in order."""
    return sorted(kernel[2:] + kernel[1:2] for category in CATEGORIES[device] for kernel in profile.kernels(trace, category))


def steps_of(prompt, whole, steps=STEPS):
    """Where the time of a step goes, by two lists of found_in: a call of one token, and one of `steps` tokens more.

    Both calls begin alike, so the kernels of the longer call beyond the number of kernels of the shorter one are those of the steps. A profiler
    lengthens the gaps; the untraced time of a step less its device time shows them better.
    """
    kernels = whole[len(prompt) :]
    if not kernels:
        raise ValueError("the trace holds no kernels beyond those of the prompt")
    durations = collections.defaultdict(list)
    for _, duration, name in kernels:
        durations[name].append(duration)
    device_us = 1000 * profile.busy_ms([(begin, duration) for begin, duration, _ in kernels])
    span_us = max(begin + duration for begin, duration, _ in kernels) - kernels[0][0]
    top = sorted(durations.items(), key=lambda item: -sum(item[1]))[:MOST_KERNELS]
    return {
        "device_us": device_us / steps,
        "traced_gaps_us": (span_us - device_us) / steps,
        "kernels": len(kernels) / steps,
        "top": [{"name": name[:160], "us": sum(times) / steps, "count": len(times) / steps} for name, times in top],
    }


def profiled(generate, device):
    """steps_of for a loaded variant."""
    prompt, whole = (found_in(profile.trace(lambda count=count: generate(count)), device) for count in (1, 1 + STEPS))
    return steps_of(prompt, whole)


def restore(model, generation_config, attention):
    """Undo what a variant, even a failed one, did to the model and to torch."""
    import torch
    from torch._dynamo.utils import counters

    model.generation_config = copy.deepcopy(generation_config)
    model.set_attn_implementation(attention)
    for name in ("_compiled_call", "_last_compile_config"):
        vars(model).pop(name, None)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.__class__ = torch.nn.Linear  # undoes split_biases
    torch._dynamo.reset()
    torch.compiler.set_stance("default")
    counters.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def variant_line(name, options, model, ids, table):
    """A variant's line of the table, or one with the reason of its failure; `table` holds what came before."""
    load = VARIANTS[name]
    job, ran = job_of(options, load), [line for line in table["variants"] if "tokens" in line]
    loaded, line = None, {"variant": name, "load": load}
    try:
        loaded = compiled.of_model(job, model, ids)
        generate = generator(loaded, ids)
        times, tokens = timed(generate, options.new_tokens, options.calls, measure.synchronizer(job))
        line.update(loaded.used, tokens=tokens, tokens_equal=not ran or tokens == ran[0]["tokens"], **times)
        if "step_us" in table["products"]:
            line["times_the_products"] = 1000 * times["ms_a_further_token"] / statistics.median(table["products"]["step_us"])
        line["of_equal_calls"] = repeated(loaded, generate, options.new_tokens, options.equal_calls)
        fastest = all(times["ms_a_further_token"] < one["ms_a_further_token"] for one in ran)
        if options.profile == "all" or options.profile == "best" and fastest:
            line["profile"] = profiled(generate, options.device)
    except Exception as error:  # any error of a library, of its compiler or of the driver
        line["reason"] = "{}: {}".format(type(error).__name__, str(error)[:600])
    finally:
        if loaded is not None:
            loaded.close()
    return line


def choice(lines):
    """The name of the variant to take, by LEAST_GAIN; None where the first variant does not count.

    A variant counts where its equal calls made one answer and one set of last logits, and its tokens are those of the first variant.
    """

    def counts(line):
        return line.get("of_equal_calls") == {"answers": 1, "last_logits": 1} and line["tokens_equal"]

    def ms(line):
        return line["ms_a_further_token"]

    if not lines or not counts(lines[0]):
        return None
    first, *others = [line for line in lines if counts(line)]
    fastest = min([line for line in others if not line["load"].get("waits")], key=ms, default=first)
    waiting = min([line for line in others if line["load"].get("waits")], key=ms, default=first)
    if min(ms(first), ms(fastest)) >= LEAST_GAIN * ms(waiting):
        return waiting["variant"]
    return (fastest if ms(first) >= LEAST_GAIN * ms(fastest) else first)["variant"]


def said(line):
    """A variant's line for the terminal."""
    text = "{:20} ".format(line["variant"])
    if "ms_a_further_token" in line:
        times = " ({:.3f} x the products)".format(line["times_the_products"]) if "times_the_products" in line else ""
        equal = "" if line["tokens_equal"] else ", other tokens"
        text += "{:8.3f} ms a further token{}, compiled in {:.0f} s{}".format(line["ms_a_further_token"], times, line["compile_s"], equal)
    if "of_equal_calls" in line:
        text += ", different answers and last logits of equal calls: {answers}, {last_logits}".format(**line["of_equal_calls"])
    if "profile" in line:
        text += ", device {device_us:.0f} µs, gaps {traced_gaps_us:.0f} µs, {kernels:.0f} kernels".format(**line["profile"])
    return text + (" " + line["reason"].splitlines()[0] if "reason" in line else "")


def run(options):
    compiled.own_cache_of_kernels()  # before torch is imported, which looks for its cache by the user's name
    import torch
    import transformers
    from torch._inductor.utils import fresh_cache

    transformers.logging.set_verbosity_error()
    began, config = time.monotonic(), config_of(options)
    table = {name: value for name, value in vars(options).items() if name not in ("out", "only")}
    table.update(torch=torch.__version__, transformers=transformers.__version__, variants=[])
    table["began_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    table.update(shared_options.device_of(options))
    try:
        table["products"] = roof.products_alone(work.model_of(config), options.rows, options.device)
        print("products alone {:.3f} ms".format(statistics.median(table["products"]["step_us"]) / 1000), flush=True)
    except Exception as error:
        table["products"] = {"reason": "{}: {}".format(type(error).__name__, error)}
    model, ids = weights_and_times.model_and_prompt(config, options, options.prompt_tokens)
    untouched = copy.deepcopy(model.generation_config), model.config._attn_implementation
    for name in options.only or VARIANTS:
        if time.monotonic() - began > options.limit:
            line = {"variant": name, "reason": "left out: {:g} s are over".format(options.limit)}
        else:
            with fresh_cache():
                line = variant_line(name, options, model, ids, table)
                restore(model, *untouched)
        table["variants"].append(dict(line, ended_s=time.monotonic() - began))
        table["choice"] = choice(table["variants"])
        write_whole(options.out, to_json(table))
        print(said(line), flush=True)
    print("choice: {}".format(table["choice"]))
    return table


def parse(arguments):
    parser = shared_options.parser_of(
        "compiled_step", "Which settings make a compiled step fastest?", dtype_help="of the model; the products alone are float16"
    )
    parser.add_argument("--layers", type=int, default=0, help="keep only this many layers, from the first on (default: all)")
    parser.add_argument("--device", choices=sorted(CATEGORIES), default="cuda")
    parser.add_argument("--rows", type=int, default=1, help="the batch")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--calls", type=int, default=3, help="timed calls of each length")
    parser.add_argument("--equal-calls", type=int, default=10, help="calls whose tokens and last logits are compared")
    words = "variants to time; name the settings in use first, as the others are compared with the first. Allowed are " + ", ".join(VARIANTS)
    parser.add_argument("--only", nargs="+", choices=sorted(VARIANTS), metavar="VARIANT", help=words)
    parser.add_argument("--profile", choices=("none", "best", "all"), default="best", help="best: profile each variant that is faster than all before it")
    parser.add_argument("--limit", type=float, default=1e9, help="start no variant after this many seconds")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
