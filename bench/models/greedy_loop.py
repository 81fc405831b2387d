"""Greedy decoding without work on the host between tokens: one compiled step, called once for each token.

The model reads the prompt as in transformers' `generate`, into transformers' static cache. From then on everything that changes from token
to token lies in tensors of one size at one address: the token, its place, the cache, all ids so far, the logits. A step reads them, makes
the next token and writes them, so it takes no arguments and returns nothing, and one CUDA graph holds all of it. The host calls it n times
and looks at the ids afterwards. `generate` of transformers makes a mask, positions and a longer row of ids on the host for each token, and
waits for the token to see if it ends the answer.

The tokens are those of `generate`: the same minimum lengths, end tokens and padding.
"""

import contextlib
import types

#: Arguments of `generate` that the loop follows.
FOLLOWED = (
    "do_sample",
    "num_beams",
    "max_new_tokens",
    "max_length",
    "min_new_tokens",
    "min_length",
    "eos_token_id",
    "pad_token_id",
    "logits_processor",
    "streamer",
)

#: Entries of a model's generation config that change no greedy token beyond those of FOLLOWED.
HARMLESS = ("do_sample", "eos_token_id", "pad_token_id", "bos_token_id", "max_length", "min_length") + (
    "temperature",
    "top_p",
    "top_k",
    "use_cache",
    "transformers_version",
    "_from_model_config",
)

#: Where an end token may come, the host checks after every so many tokens whether all rows have ended.
LOOKS_EVERY = 16


def why_not(model, arguments):
    """Why the loop cannot follow these arguments of `generate` for this model, or ""."""
    config = model.generation_config
    unknown = [name for name in arguments if name not in FOLLOWED]
    unknown += [name for name, value in config.to_diff_dict().items() if name not in HARMLESS and value not in (None, False)]
    if unknown:
        return "{} in the arguments or in the model's generation config".format(", ".join(sorted(unknown)))
    if arguments.get("do_sample", config.do_sample) or (arguments.get("num_beams") or 1) != 1:
        return "tokens that are sampled or searched"
    if arguments.get("max_new_tokens") is None and arguments.get("max_length") is None:
        return "no length in the arguments"
    return ""


def asked_for(model, prompt_tokens, arguments):
    """What a call of `generate` asks for: {new_tokens, least, ends, pad, may_end}.

    An end token is forbidden while prompt and answer have fewer than `least` tokens together. `ends` are those that the model can make;
    `may_end` says if one may come before the last token.
    """
    config = model.generation_config
    new_tokens = arguments.get("max_new_tokens")
    if new_tokens is None:
        new_tokens = arguments["max_length"] - prompt_tokens
    if new_tokens < 1:
        raise ValueError("{} new tokens were asked for".format(new_tokens))
    least = arguments.get("min_length", config.min_length) or 0
    if arguments.get("min_new_tokens") is not None:  # goes before min_length in transformers too
        least = prompt_tokens + arguments["min_new_tokens"]
    ends = arguments.get("eos_token_id", config.eos_token_id)
    ends = list(ends) if isinstance(ends, (list, tuple)) else [] if ends is None else [ends]
    pad = arguments.get("pad_token_id", config.pad_token_id)
    if pad is None and ends:
        pad = ends[0]
    made = sorted({token for token in ends if 0 <= token < vocabulary_of(model)})
    may_end = bool(made) and least < prompt_tokens + new_tokens
    return types.SimpleNamespace(new_tokens=new_tokens, least=least, ends=made, all_ends=ends, pad=pad, may_end=may_end)


def vocabulary_of(model):
    return model.get_output_embeddings().weight.shape[0]


def other_layers(model):
    """Why the loop has no cache for this model's layers, or "": layers that see a window of the context keep a length of their own."""
    import transformers
    from transformers.cache_utils import StaticLayer

    kinds = {type(layer).__name__ for layer in transformers.StaticCache(config=model.config, max_cache_len=8).layers}
    other = sorted(kinds - {StaticLayer.__name__})
    return "layers of the kind {}".format(", ".join(other)) if other else ""


def one_length_cache(model, cache_tokens, length):
    """(transformers' static cache, its state), with one length for all layers, the tensor `length`: transformers' own layers count a length each,
    which takes a kernel each.

    `filled` of the state says that a prompt lies in the cache. Raises ValueError for a model whose layers need other caches.
    """
    import torch
    import transformers
    from transformers.cache_utils import StaticLayer

    state = types.SimpleNamespace(filled=False)

    class Layer(StaticLayer):
        def update(self, key_states, value_states, *arguments, **more):
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            places = torch.arange(key_states.shape[-2], device=self.device) + self.cumulative_length
            self.keys.index_copy_(2, places, key_states)
            self.values.index_copy_(2, places, value_states)
            return self.keys, self.values

        def get_seq_length(self):
            return self.cumulative_length if state.filled else 0

    reason = other_layers(model)
    if reason:
        raise ValueError("the loop cannot follow {}".format(reason))
    cache = transformers.StaticCache(config=model.config, max_cache_len=cache_tokens)
    cache.layers = [Layer(max_cache_len=cache_tokens) for _ in cache.layers]
    for layer in cache.layers:
        layer.cumulative_length = length
    return cache, state


def split_biases(model):
    """Let each linear layer of compiled code add its bias after its product.

    For one row Inductor writes a matrix-vector product of its own, fused with what follows, if `coordinate_descent_tuning` is set; but it
    leaves a float16 product with a bias inside to cuBLAS.
    """
    import torch

    class Linear(torch.nn.Linear):
        def forward(self, values):
            if torch.compiler.is_compiling():
                return torch.nn.functional.linear(values, self.weight) + self.bias
            return torch.nn.functional.linear(values, self.weight, self.bias)

    for module in model.modules():
        if type(module) is torch.nn.Linear and module.bias is not None:
            module.__class__ = Linear


def sums_for_rows():
    """A context in which a batched product of one row becomes an element-wise product and its sum; `eager` attention makes two for each new token.

    Inductor fuses both with the operations around them. A library's kernel stands alone, and for so little work takes longer to start than to
    run. The sum is in float32 and is rounded once, to the dtype. The library still computes everything but torch.bmm, torch.matmul and
    Tensor.baddbmm of two factors with one dtype and equally many dimensions, without broadcasting within a product.
    """
    import torch

    names = {
        torch.bmm: ("input", "mat2"),
        torch.matmul: ("input", "other"),
        torch.Tensor.baddbmm: ("self", "batch1", "batch2"),
    }

    def fits(left, right):
        kinds = (torch.float16, torch.bfloat16, torch.float32)
        alike = left.dtype == right.dtype and left.dtype in kinds and left.dim() == right.dim() > 2
        return alike and left.shape[-2] == 1 and left.shape[-1] == right.shape[-2]

    def summed(left, right, added=None, beta=1, alpha=1):
        sums = alpha * (left.float().transpose(-1, -2) * right.float()).sum(dim=-2, keepdim=True)
        return (sums if added is None or beta == 0 else sums + beta * added.float()).to(left.dtype)

    class Sums(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            named = named or {}
            if function in names:
                given = dict(zip(names[function], arguments), **named)
                known = all(name in given for name in names[function]) and set(given) <= {*names[function], "beta", "alpha"}
                *added, left, right = [given.pop(name, None) for name in names[function]]
                if known and fits(left, right):
                    return summed(left, right, *added, **given)
            return function(*arguments, **named)

    return Sums()


def parts_of(count):
    """The largest divisor of `count` up to its square root: so many parts of a row are searched side by side."""
    return max(part for part in range(1, int(count**0.5) + 1) if count % part == 0)


def largest(scores):
    """argmax [rows, 1] of [rows, vocabulary], the first of equals, in two stages: in one stage Inductor would give a whole row to one block of threads."""
    rows, count = scores.shape
    parts = scores.reshape(rows, parts_of(count), -1)
    places = parts.argmax(dim=-1)
    best = parts.amax(dim=-1).argmax(dim=-1, keepdim=True)
    return best * parts.shape[-1] + places.gather(1, best)


class GreedyLoop:
    """The loop for `rows` rows and at most `cache_tokens` tokens of prompt and answer. `prepare` compiles its step.

    `sums` says that sums_for_rows replaces the step's batched products of one row.
    """

    def __init__(self, model, rows, cache_tokens, device, sums=False):
        import torch

        def fixed(*shape, **options):
            tensor = torch.zeros(shape, device=device, **options)
            torch._dynamo.mark_static_address(tensor)
            return tensor

        self.model, self.vocabulary = model, vocabulary_of(model)
        self.place = fixed(dtype=torch.long)  # of `token` among the ids, and the length of the cache before it
        self.token = fixed(rows, 1, dtype=torch.long)
        self.position = fixed(rows, 1, dtype=torch.long)  # as rotary embeddings count: without padding
        self.ids = fixed(rows, cache_tokens, dtype=torch.long)
        self.real = fixed(rows, cache_tokens, dtype=torch.long)  # 0 at padding
        self.logits = fixed(rows, self.vocabulary, dtype=model.dtype)  # of the newest token, end tokens that are forbidden at -inf
        self.ends = fixed(self.vocabulary, dtype=torch.bool)
        self.least = fixed(dtype=torch.long)
        self.places = fixed(cache_tokens, dtype=torch.long)
        self.places.copy_(torch.arange(cache_tokens, device=device))
        self.cache, self.cached = one_length_cache(model, cache_tokens, self.place)
        self.by_position = "position_ids" in _parameters(model.forward)
        self.products = sums_for_rows() if sums else contextlib.nullcontext()
        self.set_ends = self.graph = None
        self.next = self.step

    def step(self):
        """From `token` to the token after it; compiled as a whole."""
        positions = {"position_ids": self.position} if self.by_position else {}
        with self.products:
            outputs = self.model(
                input_ids=self.token,
                attention_mask=self.real * (self.places <= self.place),
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
                return_dict=True,
                **positions,
            )
        self.take(outputs.logits[:, -1])

    def take(self, logits):
        """Make the next token from the logits [rows, vocabulary] after `token`."""
        forbidden = self.ends & (self.place + 1 < self.least)
        allowed = logits.masked_fill(forbidden, float("-inf"))
        token = largest(allowed)
        self.logits.copy_(allowed)
        self.place.add_(1)
        self.position.add_(1)
        self.token.copy_(token)
        self.ids.index_copy_(1, self.place.view(1), token)

    def prepare(self, compiler, options, capture):
        """Compile the step on the next calls; `capture` says that the kit records the compiled step as one CUDA graph, `options` are Inductor's.

        Returns the function that records the graph; call it once a prompt lies in the cache, with room for four more tokens.
        """
        import torch

        compiled = torch.compile(self.step, fullgraph=True, dynamic=False, backend=compiler, options=options)

        def marked():
            # Where torch records the graphs itself, each step is a run of its own.
            torch.compiler.cudagraph_mark_step_begin()
            compiled()

        self.next = compiled if capture else marked

        def record():
            if not capture:
                return
            # Compiling, tuning and the libraries' workspaces come first: a recording allows none of them.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.no_grad(), torch.cuda.stream(stream):
                for _ in range(3):
                    compiled()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                compiled()
            self.graph, self.next = graph, graph.replay

        return record

    def generate(self, input_ids, attention_mask=None, **arguments):
        """The new tokens [rows, new tokens], as transformers' `generate` makes them; raises ValueError for arguments that the loop cannot follow."""
        import torch

        reason = why_not(self.model, arguments)
        if reason:
            raise ValueError("the loop cannot follow {}".format(reason))
        asked = asked_for(self.model, input_ids.shape[1], arguments)
        processors, streamer = arguments.get("logits_processor") or [], arguments.get("streamer")
        prompt_tokens, made = input_ids.shape[1], 1
        if streamer is not None:
            streamer.put(input_ids.cpu())
        with torch.no_grad():
            self.read(input_ids, attention_mask, asked)
            self.tell(asked, prompt_tokens, made, processors, streamer)
            while made < asked.new_tokens and not self.over(asked, prompt_tokens, made, bool(processors or streamer)):
                self.next()
                made += 1
                self.tell(asked, prompt_tokens, made, processors, streamer)
            if streamer is not None:
                streamer.end()
            return self.answer(asked, prompt_tokens, made)

    def read(self, input_ids, attention_mask, asked):
        """Read the prompt [rows, tokens] and make the first token, by the model as it is, with the inputs that `generate` gives it."""
        prompt_tokens = input_ids.shape[1]
        mask = self.mask_of(input_ids, asked) if attention_mask is None else attention_mask.long()
        self.forbid(asked)
        self.cache.reset()
        self.cached.filled = False
        self.real.fill_(1)
        self.real[:, :prompt_tokens] = mask
        self.ids[:, :prompt_tokens] = input_ids
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)
        given = dict(past_key_values=self.cache, attention_mask=mask, use_cache=True, logits_to_keep=1, is_first_iteration=True)
        if self.by_position:
            given["position_ids"] = positions
        inputs = self.model.prepare_inputs_for_generation(input_ids, **given)
        logits = self.model(**dict(inputs, return_dict=True)).logits[:, -1]
        self.cached.filled = True
        self.place.fill_(prompt_tokens - 1)
        self.position.copy_(positions[:, -1:])
        self.take(logits)

    def mask_of(self, input_ids, asked):
        """The mask that transformers finds where none is given: padding tokens in the prompt are padding unless they also end answers."""
        import torch

        def tensor(ids):
            return torch.tensor(ids, device=input_ids.device)

        special = types.SimpleNamespace(
            _pad_token_tensor=None if asked.pad is None else tensor(asked.pad),
            _eos_token_tensor=tensor(asked.all_ends) if asked.all_ends else None,
        )
        return self.model._prepare_attention_mask_for_generation(input_ids, special, {})

    def forbid(self, asked):
        """Set the end tokens and the length before which they are forbidden, where the call before had others."""
        if self.set_ends == (asked.ends, asked.least):
            return
        self.ends.fill_(False)
        if asked.ends:
            self.ends[asked.ends] = True
        self.least.fill_(asked.least)
        self.set_ends = (asked.ends, asked.least)

    def tell(self, asked, prompt_tokens, made, processors, streamer):
        """Hand the newest token's logits to the processors, which may choose another token, and the token to the streamer."""
        import torch

        if processors:
            before = torch.cat([self.ids[:, :prompt_tokens], self.padded(asked, prompt_tokens, made - 1)], dim=1)
            # A copy in float32, as transformers gives it: the next step writes these logits anew.
            scores = processors(before, self.logits.to(torch.float32, copy=True))
            self.token.copy_(scores.argmax(dim=-1, keepdim=True))
            self.ids[:, prompt_tokens + made - 1] = self.token[:, 0]
        if streamer is not None:
            streamer.put(self.padded(asked, prompt_tokens, made)[:, -1].cpu())

    def over(self, asked, prompt_tokens, made, each):
        """Have all rows ended? Looking makes the host wait, so it looks every LOOKS_EVERY tokens, or with `each`, where it waits anyway, each time."""
        if not asked.may_end or not (each or made % LOOKS_EVERY == 0):
            return False
        return bool(self.ended(prompt_tokens, made)[:, -1].all())

    def ended(self, prompt_tokens, made):
        """For each new token: has its row ended with it or before it? [rows, made]"""
        return self.ends[self.ids[:, prompt_tokens : prompt_tokens + made]].cumsum(1) > 0

    def padded(self, asked, prompt_tokens, made):
        """The first new tokens [rows, made], with padding after the end of each row's answer."""
        tokens = self.ids[:, prompt_tokens : prompt_tokens + made].clone()
        if asked.may_end and made > 1:
            tokens[:, 1:].masked_fill_(self.ended(prompt_tokens, made)[:, :-1], asked.pad)
        return tokens

    def answer(self, asked, prompt_tokens, made):
        """The padded tokens up to the one with which the last row ended."""
        tokens = self.padded(asked, prompt_tokens, made)
        if not asked.may_end:
            return tokens
        going = ~self.ended(prompt_tokens, made).all(dim=0)
        return tokens[:, : min(made, int(going.sum()) + 1)]

    def forget(self):
        """Give back the memory of the graph and the cache."""
        self.graph = self.next = self.cache = None


def _parameters(function):
    import inspect

    return inspect.signature(function).parameters
