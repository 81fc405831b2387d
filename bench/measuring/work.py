"""What a model has to read and to compute for its tokens: matrix products, bytes of weights and cache, floating-point operations.

Everything follows from config.json, so the guest's probes and the host's report count alike. Only what no implementation can leave out is
counted: each weight matrix and its bias once a step, the keys and values of the tokens so far, and the products with them. Norms, rotary
positions and the rows of the embedding are below 0.1 % and left out. docs/method.md has the formulas and their sources.
"""

import typing

#: Bytes of a value. With int8 weights the output matrix, the biases and the cache stay in 16 bits.
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


class Matrix(typing.NamedTuple):
    """A weight matrix [outputs, inputs] that each of `layers` layers has once."""

    name: str
    outputs: int
    inputs: int
    bias: bool
    layers: int

    @property
    def parameters(self) -> int:
        """Of all layers, biases included."""
        return self.layers * self.outputs * (self.inputs + self.bias)

    @property
    def flop(self) -> int:
        """Floating-point operations of the products of one token with the matrix in all layers: a multiplication and an addition each."""
        return 2 * self.layers * self.outputs * self.inputs


class Model(typing.NamedTuple):
    """`matrices` are those of the layers; `output` makes the logits. `width` is that of all query heads together, `cache_width` that of all key heads."""

    matrices: typing.List[Matrix]
    output: Matrix
    layers: int
    width: int
    cache_width: int


def model_of(config: "typing.Mapping[str, typing.Any]") -> Model:
    """The products of a model by its config.json; raises ValueError for a model type that is not listed here."""
    kind = config["model_type"]
    if kind == "bloom":
        hidden, layers = config["hidden_size"], config["n_layer"]
        shapes = [
            ("query_key_value", 3 * hidden, hidden, True),
            ("dense", hidden, hidden, True),
            ("dense_h_to_4h", 4 * hidden, hidden, True),
            ("dense_4h_to_h", hidden, 4 * hidden, True),
        ]
        return _model(shapes, layers, hidden, hidden, config["vocab_size"], False)
    if kind == "gptj":
        hidden, layers = config["n_embd"], config["n_layer"]
        inner = config.get("n_inner") or 4 * hidden
        shapes = [(name, hidden, hidden, False) for name in ("q_proj", "k_proj", "v_proj", "out_proj")]
        shapes += [("fc_in", inner, hidden, True), ("fc_out", hidden, inner, True)]
        return _model(shapes, layers, hidden, hidden, config["vocab_size"], True)
    if kind == "llama":
        hidden, layers, inner = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
        keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        shapes = [("q_proj", hidden, hidden, False), ("k_proj", keys, hidden, False), ("v_proj", keys, hidden, False), ("o_proj", hidden, hidden, False)]
        shapes += [("gate_proj", inner, hidden, False), ("up_proj", inner, hidden, False), ("down_proj", hidden, inner, False)]
        return _model(shapes, layers, hidden, keys, config["vocab_size"], False)
    raise ValueError("model_type is {!r}, allowed are bloom, gptj, llama: add its matrices to bench/measuring/work.py".format(kind))


def _model(shapes: "typing.List[typing.Tuple[str, int, int, bool]]", layers: int, hidden: int, keys: int, vocabulary: int, output_bias: bool) -> Model:
    matrices = [Matrix(name, outputs, inputs, bias, layers) for name, outputs, inputs, bias in shapes]
    return Model(matrices, Matrix("lm_head", vocabulary, hidden, output_bias, 1), layers, hidden, keys)


def weight_bytes(model: Model, dtype: str) -> int:
    """Bytes of the weights that a step reads, whatever its batch size; raises ValueError for a dtype that is not in VALUE_BYTES."""
    value_bytes = _value_bytes(dtype)
    wide_bytes = max(2, value_bytes)
    layers = sum(matrix.layers * matrix.outputs * (matrix.inputs * value_bytes + matrix.bias * wide_bytes) for matrix in model.matrices)
    return layers + model.output.parameters * wide_bytes


def cache_bytes(model: Model, dtype: str, rows: int, context_tokens: float) -> float:
    """Bytes of keys and values that a step of `rows` sequences reads, each with so many tokens so far."""
    return 2.0 * model.layers * model.cache_width * max(2, _value_bytes(dtype)) * rows * context_tokens


def step_flop(model: Model, rows: int, context_tokens: float) -> float:
    """Floating-point operations of a step that makes one token for each of `rows` sequences."""
    products = sum(matrix.flop for matrix in model.matrices) + model.output.flop
    return rows * (products + 4.0 * model.layers * model.width * context_tokens)


def prompt_flop(model: Model, rows: int, tokens: int) -> float:
    """Floating-point operations that read `rows` prompts of so many tokens: a token attends to those before it, and only the last makes logits."""
    products = sum(matrix.flop for matrix in model.matrices)
    return rows * (tokens * products + model.output.flop + 2.0 * model.layers * model.width * tokens**2)


def _value_bytes(dtype: str) -> int:
    if dtype not in VALUE_BYTES:
        raise ValueError("dtype is {!r}, allowed are {}".format(dtype, ", ".join(VALUE_BYTES)))
    return VALUE_BYTES[dtype]
