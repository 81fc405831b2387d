"""A model cut into stages of whole layers, one device each, and two schedules of generating with them.

    naive           one micro-batch is in the pipeline at a time: one stage works, the others wait. `device_map="auto"` does this
                    with a single micro-batch that holds all sequences
    rolling queue   as many micro-batches as stages: each stage takes the next micro-batch from its queue, and a micro-batch that
                    got its token goes back to the first stage for the next token (DeepSpeed Inference's schedule for generation)

Every stage has a thread and a queue. A stage waits for its device before it hands its output on: the copy to the next device then never
queues behind other work, and the stage's working time is known for each step.
"""

import copy
import queue
import threading
import time

from bench.measuring import clock
from bench.models import pretrained

#: The modules before the layers in BLOOM, GPT-J and Llama: only the first stage has them.
EMBEDDINGS = ("word_embeddings", "word_embeddings_layernorm", "wte", "embed_tokens")

#: The names of the layers in BLOOM and GPT-J and in Llama, and of the norm behind them.
LAYERS, LAST_NORM = ("h", "layers"), ("ln_f", "norm")


def twin(module, **replaced):
    """A copy of a module with the same parameters, whose named children are replaced."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    copied._modules.update(replaced)
    return copied


def _as_layer(layer, index):
    """The layer as number `index` of its stage, which is its place in the stage's own key-value cache."""
    children = {name: twin(child) for name, child in layer._modules.items() if hasattr(child, "layer_idx")}
    for child in children.values():
        child.layer_idx = index
    copied = twin(layer, **children)
    if hasattr(copied, "layer_idx"):
        copied.layer_idx = index
    return copied


def shares(sizes, count):
    """Cut a list of sizes into `count` consecutive shares of about equal sums: [(start, stop), …], none empty.

    Raises ValueError where there are fewer sizes than shares.
    """
    if count > len(sizes):
        raise ValueError("{} layers cannot be cut into {} stages: at most {}".format(len(sizes), count, len(sizes)))
    total, cuts, size_so_far = float(sum(sizes)), [0], 0.0
    for index, size in enumerate(sizes):
        size_so_far += size
        sizes_left = len(sizes) - index - 1
        cuts_left = count - len(cuts)
        if cuts_left and (size_so_far >= total * len(cuts) / count - size / 2 or sizes_left == cuts_left) and sizes_left >= cuts_left:
            cuts.append(index + 1)
    return list(zip(cuts, cuts[1:] + [len(sizes)]))


def _bytes_of(module):
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


class Stage:
    """Some layers of a model on one device, with a key-value cache for each micro-batch."""

    def __init__(self, body, device, head=None):
        self.body, self.device, self.head = body, device, head
        self.caches = {}

    def step(self, batch, value):
        """The next tokens [rows, 1] on the last stage, else the hidden states; on the first stage `value` holds token ids."""
        first = not value.is_floating_point()
        past = self.caches.get(batch)
        arguments = {"input_ids": value} if first else {"inputs_embeds": value}
        output = self.body(past_key_values=past, use_cache=True, return_dict=True, **arguments)
        self.caches[batch] = output.past_key_values
        hidden = output.last_hidden_state
        return hidden if self.head is None else self.head(hidden[:, -1:]).argmax(dim=-1)


def cut(model, devices):
    """The model as one Stage for each device. Its layers move there; the parameters stay shared with `model`.

    The last stage gets a copy of the output matrix, which counts in its size: BLOOM ties this matrix to the embedding on the first stage.
    """
    layers = list(pretrained.layers_of(model))
    sizes = [_bytes_of(layer) for layer in layers]
    sizes[-1] += _bytes_of(model.lm_head)  # which weighs as much as some layers
    places = zip(shares(sizes, len(devices)), devices)
    return [_stage(model, layers[start:stop], device, first=start == 0, last=stop == len(layers)) for (start, stop), device in places]


def _stage(model, layers, device, first, last):
    """The Stage of these layers. Only the first one of a model embeds tokens, only the last one norms its output and makes logits."""
    import torch

    body = model.transformer if hasattr(model, "transformer") else model.model
    norm = _name_in(body, LAST_NORM)
    replaced = {_name_in(body, LAYERS): torch.nn.ModuleList([_as_layer(layer, index) for index, layer in enumerate(layers)])}
    if not first:
        replaced.update({name: torch.nn.Identity() for name in EMBEDDINGS if name in body._modules})
    if not last:
        replaced[norm] = torch.nn.Identity()
    for layer in layers:
        layer.to(device)
    if not last:
        return Stage(twin(body, **replaced), device)
    body._modules[norm].to(device)
    return Stage(twin(body, **replaced), device, copy.deepcopy(model.lm_head).to(device))


def _name_in(body, names):
    """Which of these names a child of the model's body has."""
    return next(name for name in names if name in body._modules)


class Generation:
    """One generation of `count` micro-batches: a queue for each stage, a queue with None for each finished micro-batch (or a stage's exception), and
    the times and tokens of the stages."""

    def __init__(self, stages, count, new_tokens):
        self.stages, self.new_tokens = stages, new_tokens
        self.inboxes, self.finished = [queue.Queue() for _ in stages], queue.Queue()
        self.busy_ms = [0.0] * len(stages)
        self.tokens_of = [[] for _ in range(count)]

    def work(self, place):
        """The thread of a stage: its next micro-batch again and again, until None comes or a step raises an exception."""
        import torch

        if str(self.stages[place].device).startswith("cuda"):
            torch.cuda.set_device(self.stages[place].device)
        with torch.no_grad():
            for number, value in iter(self.inboxes[place].get, None):
                try:
                    value = self._step(place, number, value)
                except Exception as error:  # the caller's thread raises it
                    self.finished.put(error)
                    return
                self._hand_on(place, number, value)

    def _step(self, place, number, value):
        """The stage's output, on the device of the stage after it."""
        stage = self.stages[place]
        with clock.span(stage.device) as elapsed:
            value = stage.step(number, value)
        self.busy_ms[place] += elapsed.ms
        return _moved(value, self.stages[self._after(place)].device)

    def _hand_on(self, place, number, value):
        tokens = self.tokens_of[number]
        if self._after(place) == 0:
            tokens.append(value)
        if len(tokens) == self.new_tokens:
            self.finished.put(None)
        else:
            self.inboxes[self._after(place)].put((number, value))

    def _after(self, place):
        return (place + 1) % len(self.stages)

    def feed(self, batches, in_flight):
        """Let at most `in_flight` micro-batches in at once until all are finished; raises a stage's exception."""
        waiting = list(enumerate(batches))
        for _ in range(min(in_flight, len(waiting))):
            self.inboxes[0].put(waiting.pop(0))
        for _ in batches:
            error = self.finished.get()
            if error is not None:
                raise error
            if waiting:
                self.inboxes[0].put(waiting.pop(0))


def generate(stages, batches, new_tokens, in_flight):
    """Greedy tokens of micro-batches [rows, prompt tokens] with at most `in_flight` of them in the pipeline at once.

    Returns ([tokens [rows, new tokens] of each micro-batch, on the CPU], wall ms, [working ms of each stage]); raises a stage's exception.
    """
    import torch

    for stage in stages:
        stage.caches.clear()
    generation = Generation(stages, len(batches), new_tokens)
    threads = [threading.Thread(target=generation.work, args=(place,), daemon=True) for place in range(len(stages))]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    try:
        generation.feed(batches, in_flight)
        wall_ms = (time.perf_counter() - began) * 1000
    finally:
        for inbox in generation.inboxes:
            inbox.put(None)
        for thread in threads:
            thread.join(timeout=60)
    return [torch.cat(tokens, dim=1).cpu() for tokens in generation.tokens_of], wall_ms, generation.busy_ms


def last_logits(stages, input_ids):
    """The logits of the last position [rows, vocabulary] as the stages compute them, in a generation of one token like those of the timed calls.

    These logits show a stage that computes or hands on anything but its layers' output; those of the whole model would hide it.
    """
    seen = []
    hook = stages[-1].head.register_forward_hook(lambda module, inputs, output: seen.append(output[:, -1]))
    try:
        generate(stages, [input_ids.to(stages[0].device)], 1, 1)
    finally:
        hook.remove()
        for stage in stages:
            stage.caches.clear()
    return seen[0]


def _moved(value, device):
    """The value on another device, once the copy has arrived."""
    moved = value.to(device)
    if moved.device != value.device:
        import torch

        torch.cuda.current_stream(value.device).synchronize()
        torch.cuda.current_stream(moved.device).synchronize() if moved.is_cuda else None
    return moved
