"""Probes of the GPU itself, after the run's own calls: how fast it reads memory and multiplies matrices, and how long the model's products take alone.

    roof       a float16 matrix-vector product over a few GiB (bytes/s), and a product of two large float16 matrices (floating-point operations/s)
    products   the matrix products of one decoding step of the job's batch, with their biases and nothing else: float16 weights of the
               model's shapes in one CUDA graph; a few layers' weights are used in turn, more than any cache holds

A probe runs once the engine is closed, in memory that the run has given back. It takes no more than the run's peak, so it changes no peak
that the host sees. It fails no run: where it cannot measure, its figure holds the reason.
"""

import contextlib
import gc
import statistics

from bench import reasons
from bench.measuring import clock, ranks, work

GIB = 1 << 30

#: A read of fewer bytes than LEAST_READ_BYTES might come from a cache; one of more than MOST_READ_BYTES tells nothing new.
LEAST_READ_BYTES, MOST_READ_BYTES = GIB, 4 * GIB

#: Row lengths of the matrix of the matrix-vector product; the library has other kernels for other lengths, and the fastest counts.
WIDTHS = (4096, 16384)

#: Rows and columns of the large product.
SIDE = 8192

#: So many bytes of weights are read before a layer's weights are read again: far more than a GPU's cache.
IN_TURN_BYTES = GIB

#: Room for activations and the libraries' workspaces beside the weights of the products.
BESIDE_BYTES = GIB // 4


def measure(job, config, products):
    """{roof}, with `products` also {products}, for Result.figures; `config` is the model's config.json, None where it is not known.

    One process measures its own GPUs; of several ranks the first stands for all. Where the engine worked in processes of its own, which are
    gone by now, this process measures on their GPUs.
    """
    import torch

    here = torch.cuda.is_initialized()
    figures = {"roof": _told(lambda: {"devices": _roofs(0 if here else _weights_of_a_gpu(job, config))})}
    if products:
        figures["products"] = _told(lambda: _products(job, config, 0 if here else _weights_of_a_gpu(job, config)))
    return figures


def _weights_of_a_gpu(job, config):
    """The bytes of weights that each GPU held at least, for an engine whose processes are gone; 0 where shape or dtype is not known."""
    dtype = job.load.get("dtype")
    return work.weight_bytes(work.model_of(config), dtype) // job.device_count if config and dtype in work.VALUE_BYTES else 0


def _told(action):
    """What a probe gives, or {reason}: a failure of a probe costs its figure, never the run."""
    try:
        return action()
    except Exception as error:  # any error of a library or of the driver
        return {"reason": reasons.reason(error)}


def _free_memory():
    """Give back what the closed engine held. Raises RuntimeError where there is no GPU to measure."""
    import torch

    if not ranks.gpus():
        raise RuntimeError("torch sees no GPU")
    gc.collect()
    for index in ranks.gpus():
        with torch.cuda.device(index):
            torch.cuda.synchronize()
    torch.cuda.empty_cache()


def room_bytes(index, elsewhere_bytes):
    """How much memory a probe may take on a GPU: as much as the run held at its peak, here or in a process of the engine, and has given back, but
    no more than is free."""
    import torch

    given_back = max(elsewhere_bytes, torch.cuda.max_memory_reserved(index)) - torch.cuda.memory_reserved(index)
    return max(0, min(given_back, torch.cuda.mem_get_info(index)[0]))


def _roofs(elsewhere_bytes):
    _free_memory()
    room = {index: min(MOST_READ_BYTES, room_bytes(index, elsewhere_bytes) * 9 // 10) for index in ranks.gpus()}
    fullest = max(room, key=room.get)
    if room[fullest] < LEAST_READ_BYTES:
        raise RuntimeError("{:.2f} GiB of cuda:{} are below the run's peak and free, the probe needs {:.2f}".format(room[fullest] / GIB, fullest, 1.0))
    # A library may put no weight on one of several GPUs. There the run held too little memory for a probe: none, or a cache that passes through.
    return [_roof(index, read_bytes) for index, read_bytes in room.items() if read_bytes >= LEAST_READ_BYTES]


def _roof(index, read_bytes):
    import torch

    device = "cuda:{}".format(index)
    with torch.cuda.device(index):
        found = dict(read(device, read_bytes), device=device, **multiply(device, SIDE))
        torch.cuda.empty_cache()
    return found


def read(device, read_bytes, widths=WIDTHS, samples=9, calls_per_sample=3):
    """{read_bytes, read_width, read_us}: times of float16 matrix-vector products that read so many bytes, at the fastest of several widths."""
    import torch

    numbers = torch.empty(read_bytes // 2 // max(widths) * max(widths), dtype=torch.float16, device=device).normal_(0, 0.02)
    best = None
    for width in widths:
        matrix, vector = numbers.view(-1, width), torch.ones(1, width, dtype=torch.float16, device=device)
        with torch.no_grad():
            times = clock.call_times_us(lambda m=matrix, v=vector: torch.nn.functional.linear(v, m), device, samples, calls_per_sample, warmup_calls=3)
        if best is None or statistics.median(times) < statistics.median(best["read_us"]):
            best = {"read_bytes": numbers.numel() * 2, "read_width": width, "read_us": times}
    return best


def multiply(device, side, samples=9, calls_per_sample=3):
    """{matrix_flop, matrix_us}: times of the product of two float16 matrices [side, side]."""
    import torch

    left, right = (torch.empty(side, side, dtype=torch.float16, device=device).normal_(0, 0.02) for _ in range(2))
    out = torch.empty(side, side, dtype=torch.float16, device=device)
    times = clock.call_times_us(lambda: torch.mm(left, right, out=out), device, samples, calls_per_sample, warmup_calls=3)
    return {"matrix_flop": 2 * side**3, "matrix_us": times}


def _products(job, config, elsewhere_bytes):
    if config is None:
        raise ValueError("the shape {!r} is not known".format(job.model.get("shape")))
    model = work.model_of(config)
    _free_memory()
    held = layers_in_turn(model) * _layer_bytes(model) + 2 * model.output.parameters
    needed_bytes, room = held + BESIDE_BYTES, room_bytes(0, elsewhere_bytes)
    if needed_bytes > room:
        raise RuntimeError("{:.2f} GiB are below the run's peak and free, the products need {:.2f}".format(room / GIB, needed_bytes / GIB))
    return products_alone(model, job.answers, "cuda:0")


def _layer_bytes(model):
    return sum(2 * matrix.parameters // matrix.layers for matrix in model.matrices)


def layers_in_turn(model):
    """How many layers' weights the products take in turn."""
    return min(model.layers, -(-IN_TURN_BYTES // _layer_bytes(model)))


def products_alone(model, rows, device, samples=9, calls_per_sample=3):
    """{rows, weight_bytes, step_us}: times of all matrix products of one decoding step of `rows` sequences, in a CUDA graph on a GPU."""
    import torch

    linear = torch.nn.functional.linear

    def numbers(*shape):
        return torch.empty(*shape, dtype=torch.float16, device=device).normal_(0, 0.02)

    def weights_of(matrix):
        return numbers(matrix.outputs, matrix.inputs), numbers(matrix.outputs) if matrix.bias else None

    held = [[weights_of(matrix) for matrix in model.matrices] for _ in range(layers_in_turn(model))]
    order = [weights for place in range(model.layers) for weights in held[place % len(held)]] + [weights_of(model.output)]
    inputs = {width: numbers(rows, width) for width in {weight.shape[1] for weight, _ in order}}

    def step():
        for weight, bias in order:
            linear(inputs[weight.shape[1]], weight, bias)

    with torch.no_grad(), _as_graph(step, device) as call:
        times = clock.call_times_us(call, device, samples, calls_per_sample, warmup_calls=3)
    return {"rows": rows, "weight_bytes": work.weight_bytes(model, "float16"), "step_us": times}


@contextlib.contextmanager
def _as_graph(step, device):
    """A function that replays the CUDA graph of `step`; `step` itself on a CPU."""
    import torch

    if not str(device).startswith("cuda"):
        yield step
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # libraries choose kernels and allocate workspaces, which a capture does not allow
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    yield graph.replay
