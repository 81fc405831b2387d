"""transformers with a static cache and a compiled decoding step: torch.compile, and one CUDA graph on a GPU.

The prompt is read as usual, and each further token is one call of the compiled step (bench/models/greedy_loop.py), whose cache keeps one
size from the first token to the last. So a job has one batch size, and `load` compiles for it. A job with arguments that this loop cannot
follow, such as sampling, goes through transformers' own `generate` with a compiled model.

options of `load`:
    cache_tokens   the most tokens of a prompt and its answer together; by default those of the job's prompt and longest run, so a form that
                   renders or pads prompts of its own needs it
    loop           "kit" or "transformers": whose loop calls the step
    products       of the kit's loop: a name of PRODUCTS, which says who makes the matrix products of a step. The name chooses mode, inductor,
                   split_biases, sums and waits; a case may also give each of these itself
    mode           of torch.compile. With "reduce-overhead" and "max-autotune" torch records the CUDA graphs itself; with "default" and
                   "max-autotune-no-cudagraphs" the kit records the step once (the loop of transformers then has no CUDA graph)
    compiler       of torch.compile: "inductor" writes the kernels
    inductor       further settings of Inductor, {name: value}
    split_biases   whether biases are added after their products (greedy_loop.split_biases); only with a batch of one row, unless given
    sums           whether the batched products of `eager` attention are sums in kernels of Inductor (greedy_loop.sums_for_rows)
    waits          whether a kernel that overlaps with the kernel ahead of it waits before it reads or writes anything (waiting_kernels)
    attention      where the model has several: "eager" or "sdpa" of transformers; or "grouped", the kit's (bench/models/grouped_attention.py), with which
                   a step copies no key head for the query heads that share it
"""

import atexit
import contextlib
import os
import shutil
import tempfile
import time

from bench import compat
from bench.backends import LOGITS, MASK, TOKENS, Loaded
from bench.measuring import measure
from bench.models import greedy_loop, grouped_attention, pretrained, prompts

GIVES = (TOKENS, MASK, LOGITS)

ON_ONE_GPU = True

ARGUMENTS = ("cache_tokens", "loop", "products", "mode", "compiler", "inductor", "split_biases", "sums", "waits", "attention")

COMPILER = "inductor"

KIT, TRANSFORMERS = "kit", "transformers"

#: The mode of torch.compile for transformers' loop.
MODE_OF_TRANSFORMERS = "reduce-overhead"

#: Modes in which torch records CUDA graphs itself.
RECORDING_MODES = ("reduce-overhead", "max-autotune")

CUBLAS, VECTORS = {"coordinate_descent_tuning": False}, {"coordinate_descent_tuning": True}

#: On Hopper and newer a kernel may begin before the one ahead of it has ended (programmatic dependent launch).
OVERLAPPED = {"triton.enable_pdl": True}

#: Kernels that do not depend on each other become one kernel.
COMBINED = {"combo_kernels": True}

#: What a name of `products` stands for, {name: (mode, inductor, split_biases, sums, waits)}; split_biases and sums only with one row, with which
#: they were timed. An entry never changes, because cases name it, and runs of one row must share their settings:
#: other settings get another name.
#:
#: ordered   cuBLAS makes the matrix products, Inductor's kernels the small products of attention
#: cublas    as ordered, but kernels overlap. No case uses it any more, because equal calls gave different logits
#:           (reports/instruments/compiled-step-equal-calls.json)
#: vectors   Inductor makes products with one row as well, as matrix-vector kernels fused with the operations around them
#: tuned     Inductor takes for each product the fastest of cuBLAS and Triton's templates, by trial
#: waiting-combined  as ordered, but kernels overlap, each waits for the kernel ahead before it reads or writes (waiting_kernels), and kernels
#:           that do not depend on each other are one kernel. Chosen by a rule (reports/instruments/compiled-step-waiting.json)
PRODUCTS = {
    "ordered": ("default", CUBLAS, False, True, False),
    "cublas": ("default", dict(CUBLAS, **OVERLAPPED), False, True, False),
    "vectors": ("default", VECTORS, True, False, False),
    "tuned": ("max-autotune-no-cudagraphs", CUBLAS, True, False, False),
    "waiting-combined": ("default", dict(CUBLAS, **OVERLAPPED, **COMBINED), False, True, True),
}

DEFAULT_PRODUCTS = "ordered"

#: What some options of `load` may be. No case and no test tried other attentions of transformers, which loads some of them from the hub.
CHOICES = {"attention": ("eager", "sdpa", grouped_attention.NAME), "loop": (KIT, TRANSFORMERS), "products": tuple(PRODUCTS)}

#: The first step compiles, the second records its CUDA graph, the third replays it; the second call reuses the graphs of the first.
WARM_UP_CALLS, WARM_UP_TOKENS = 2, 6

#: The cache has room for at least so many new tokens: warm-up calls and profiles (bench/profile.py) make that many.
LEAST_NEW_TOKENS = 8


def mistake_in(load):
    for option, allowed in CHOICES.items():
        if load.get(option, allowed[0]) not in allowed:
            return "load.{} is {!r}, allowed are {}".format(option, load[option], ", ".join(allowed))
    return ""


def unsupported(job):
    from importlib import metadata

    version = metadata.version("transformers")
    if not compat.compiled_decoding(version):
        return "the kit drives compiled decoding of transformers 5.17 and later, this is {}".format(version)
    if job.device_count > 1:
        return "a compiled model runs on one device, the job has {}".format(job.device_count)
    return no_compiler(job.device, job.load.get("compiler", COMPILER))


def no_compiler(device, compiler):
    """Why the kernels cannot be built on this machine, or "": Triton's launchers are C, and kernels for a CPU are C++."""
    names = {"cuda": ("gcc", "clang"), "cpu": ("g++", "clang++")}[device]
    given = os.environ.get({"cuda": "CC", "cpu": "CXX"}[device])
    if compiler != "inductor" or any(shutil.which(name) for name in names + ((given,) if given else ())):
        return ""
    return "torch.compile needs a compiler where it runs, and there is no {}: install {}".format(" and no ".join(names), names[0])


class Compiled(Loaded):
    """A model compiled for `batch_size` rows and a cache of `cache_tokens`; `loop` is a GreedyLoop, or None for transformers' own."""

    def generate(self, input_ids, attention_mask=None, **arguments):
        rows, prompt_tokens = input_ids.shape
        if rows != self.batch_size:
            raise ValueError("the model is compiled for a batch of {}, this one has {} rows".format(self.batch_size, rows))
        longest = prompt_tokens + arguments["max_new_tokens"] if "max_new_tokens" in arguments else arguments.get("max_length", 0)
        if longest > self.cache_tokens:
            words = "prompt and answer have {} tokens, the cache has room for {}: give the case load.cache_tokens = {}"
            raise ValueError(words.format(longest, self.cache_tokens, longest))
        if self.loop is not None:
            return self.loop.generate(input_ids, attention_mask, **arguments)
        return Loaded.generate(self, input_ids, attention_mask, **arguments)

    def close(self):
        """Forget the compiled code and its CUDA graphs, which hold the model's memory."""
        import torch

        if self.loop is not None:
            self.loop.forget()
        self.loop = None
        torch._dynamo.reset()
        torch.compiler.set_stance("default")


def cache_tokens_of(job, prompt_tokens):
    """The size of the cache in tokens: as `load` says, else prompt and longest answer, rounded up to a multiple of 8 for the attention kernels."""
    longest = prompt_tokens + max([LEAST_NEW_TOKENS] + [run["new_tokens"] for run in job.runs])
    return job.load.get("cache_tokens") or -(-longest // 8) * 8


def load(job):
    own_cache_of_kernels()
    device = pretrained.first_device(job)
    model = pretrained.load_onto(job, device)
    return of_model(job, model, prompts.token_ids(job.prompt, job.model["path"]).to(device))


def of_model(job, model, ids):
    """The engine of a model that lies on its device, compiled as `job.load` says for prompts like `ids`."""
    attention = job.load.get("attention")
    if attention:
        set_attention(model, attention)
    cache_tokens, rows = cache_tokens_of(job, ids.shape[1]), job.prompt["batch_size"]
    loop = job.load.get("loop") or loop_of(job, model)
    compiler = job.load.get("compiler", COMPILER)
    settings = settings_of(job.load, rows, model.config._attn_implementation, compiler)
    settings["waits"] = settings["waits"] and job.device == "cuda" and compiler == COMPILER
    loaded = Compiled(model=model, device=str(ids.device), batch_size=rows, cache_tokens=cache_tokens, loop=None)
    if loop == KIT:
        record, prepared = _prepare_loop(job, loaded, compiler, **settings)
    else:
        record, prepared = _prepare_transformers(job, loaded, compiler)
    with waiting_kernels() if loop == KIT and settings["waits"] else contextlib.nullcontext():
        compiled = _compile(job, loaded, ids, record)
    loaded.used = dict(compiled, dtype=pretrained.dtype_of(model), cache="static", cache_tokens=cache_tokens, loop=loop, compiler=compiler, **prepared)
    if attention == grouped_attention.NAME:  # results with an attention of transformers name none, as before the kit had its own
        loaded.used["attention"] = attention
    return loaded


def set_attention(model, name):
    """Set the model's attention implementation. Raises ValueError for a model whose layers cannot take another one."""
    if name == grouped_attention.NAME:
        grouped_attention.register()
    model.set_attn_implementation(name)
    # transformers only warns, and goes on with the implementation of before.
    if model.config._attn_implementation != name:
        words = "{} computes its attention itself and takes no other function: give load another attention than {!r}, or leave attention out"
        raise ValueError(words.format(type(model).__name__, name))


def loop_of(job, model):
    """The kit's loop, where it can follow the model's layers and the arguments of every run; forms add nothing that it cannot follow."""
    length = {"max_new_tokens": 1}
    cannot = greedy_loop.other_layers(model) or any(greedy_loop.why_not(model, dict(length, **run["arguments"])) for run in job.runs)
    return TRANSFORMERS if cannot else KIT


def settings_of(load, rows, attention, compiler=COMPILER):
    """{products, mode, inductor, split_biases, sums, waits} of the kit's loop for a batch of `rows`, by `load` and the entry of PRODUCTS that it names.

    `attention` is the model's implementation in transformers: only `eager` makes batched products.
    """
    name = load.get("products", DEFAULT_PRODUCTS)
    mode, inductor, split_biases, sums, waits = PRODUCTS[name]
    return {
        "products": name,
        "mode": load.get("mode", mode),
        "inductor": dict(inductor, **load.get("inductor", {})),
        "split_biases": load.get("split_biases", split_biases and rows == 1 and compiler == COMPILER),
        "sums": load.get("sums", sums and rows == 1) and attention == "eager",
        "waits": load.get("waits", waits),
    }


@contextlib.contextmanager
def waiting_kernels():
    """Within the block, Inductor writes kernels that wait for the kernel ahead before they read or write a buffer (torch 2.11 and 2.13).

    This matters only for kernels that overlap (OVERLAPPED). By default such a kernel waits only before it accesses what Inductor takes for a
    buffer of the kernel ahead. A kernel that follows no kernel of Inductor always waits, so here Inductor writes every kernel as if none were
    ahead: only the starts of kernels still overlap. Seeds of random numbers are read without waiting; a greedy step has none.
    """
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.virtualized import V

    before_access = TritonKernel._handle_pdl_before_access

    def waiting(kernel, *arguments, **named):
        scheduler = V.graph.scheduler
        if scheduler is None:  # within a template, where Inductor lets a kernel wait by itself
            return before_access(kernel, *arguments, **named)
        ahead, scheduler.previous_node = scheduler.previous_node, None
        try:
            return before_access(kernel, *arguments, **named)
        finally:
            scheduler.previous_node = ahead

    TritonKernel._handle_pdl_before_access = waiting
    try:
        yield
    finally:
        TritonKernel._handle_pdl_before_access = before_access


def own_cache_of_kernels():
    """Set a kernel cache for this process alone, so that each load compiles everything. torch's own default needs a user name, which a
    container's user may not have."""
    folder = tempfile.mkdtemp(prefix="kernels-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _prepare_loop(job, loaded, compiler, mode, inductor, split_biases, sums, waits, products):
    """Give the engine the kit's loop; returns (the function that records its CUDA graph, what `used` tells of it)."""
    if split_biases:
        greedy_loop.split_biases(loaded.model)
    loaded.loop = greedy_loop.GreedyLoop(loaded.model, loaded.batch_size, loaded.cache_tokens, loaded.device, sums)
    torch_records = mode in RECORDING_MODES and compiler == COMPILER
    kit_records = job.device == "cuda" and not torch_records
    options = _inductor_options(mode, inductor) if compiler == COMPILER else None
    record = loaded.loop.prepare(compiler, options, capture=kit_records)
    graph = "the kit" if kit_records else "torch" if job.device == "cuda" else "nobody"
    told = {"mode": mode, "products": products, "cuda_graph_by": graph, "split_biases": split_biases, "sums": sums}
    if waits:
        told["waits"] = waits
    return record, dict(told, inductor=inductor) if compiler == COMPILER else told


def _inductor_options(mode, inductor):
    """Inductor's settings of a mode together with others: torch.compile takes a mode or settings, not both."""
    import torch

    return dict(torch._inductor.list_mode_options(mode), **inductor)


def _prepare_transformers(job, loaded, compiler):
    """Set the model up for a compiled `generate` of transformers; as _prepare_loop."""
    mode = job.load.get("mode", MODE_OF_TRANSFORMERS)
    loaded.model.generation_config.update(
        cache_implementation="static",
        max_cache_len=loaded.cache_tokens,
        compile_config=_compile_config(job, mode, compiler),
    )
    return lambda: None, {"mode": mode}


def _compile_config(job, mode, compiler):
    """transformers' settings of torch.compile: the whole step is one graph. On a CPU transformers compiles only where it is told to."""
    import transformers

    # Only Inductor knows modes.
    config = transformers.CompileConfig(fullgraph=True, mode=mode if compiler == "inductor" else None, backend=compiler)
    config._compile_all_devices = job.device == "cpu"
    return config


def _compile(job, loaded, ids, record):
    """Generate like the job until everything is compiled and recorded; returns {compile_s, graphs, cudagraph_skips}.

    Afterwards torch raises an error instead of compiling again, so that no timed call includes compilation.
    """
    import torch
    from torch._dynamo.utils import counters

    def generate():
        loaded.generate(ids, do_sample=False, num_beams=1, max_new_tokens=WARM_UP_TOKENS, min_new_tokens=WARM_UP_TOKENS)

    synchronize, began = measure.synchronizer(job), time.monotonic()
    for _ in range(WARM_UP_CALLS):
        generate()
    loaded.generate(ids, do_sample=False, num_beams=1, max_new_tokens=1)  # leaves room in the cache for the steps of a recording
    record()
    generate()
    synchronize()
    torch.compiler.set_stance("fail_on_recompile")
    return {
        "compile_s": round(time.monotonic() - began, 3),
        "graphs": counters["stats"]["unique_graphs"],
        "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
    }
