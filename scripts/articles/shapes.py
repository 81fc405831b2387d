"""The tables of an article's file (bench/articles/*.toml): every key that the code reads, at any depth, and no other.

The tables stay dicts: a key that a file leaves out is also missing in tables merged from them, and in jobs, whose fingerprints depend on their keys.
"""

from typing import Annotated, Any, Required, TypedDict

import msgspec

from scripts.names import NAME, SIZE

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]  # no number of an article is infinite
ByBatchSize = dict[Annotated[str, msgspec.Meta(pattern=SIZE)], Positive]

#: scripts/articles/batch_sweep.py says what a sweep is.
BatchSizes = list[int] | dict[str, Any]


class Model(TypedDict, total=False):
    """`parameters` is given for a model on the hub, not for a tiny model of the demo."""

    name: Required[str]
    architecture: Required[Name]
    shape: Required[Name]
    parameters: AtLeastOne


class Hardware(TypedDict):
    gpu: str
    gpus: AtLeastOne


class OwnPrompt(TypedDict, total=False):
    """The keys of a case that replace those of its article's prompt."""

    text: str
    texts: list[str]
    tokens: AtLeastOne
    batch_size: AtLeastOne


class Prompt(TypedDict, total=False):
    text: Required[str]
    batch_size: Required[AtLeastOne]
    tokens: AtLeastOne
    texts: list[str]


class OwnProtocol(TypedDict, total=False):
    warmup_runs: Count
    timed_runs: AtLeastOne


class Protocol(TypedDict):
    warmup_runs: Count
    timed_runs: AtLeastOne


class Run(TypedDict, total=False):
    """`arguments` go to `generate` as the article wrote them, with the library's names."""

    new_tokens: Required[AtLeastOne]
    arguments: Required[dict[str, Any]]
    tiny_new_tokens: AtLeastOne
    up_to: bool


class Variant(TypedDict, total=False):
    note: str
    dtype: Name
    runs: list[Run]
    options: dict[str, Any]
    batch_sizes: BatchSizes


class InVariant(TypedDict, total=False):
    load: dict[str, Any]
    runs: list[Run]


class Published(TypedDict, total=False):
    """A new metric needs a line here and a view in scripts/report."""

    mean_ms: Positive
    std_ms: Positive
    p95_ms: Positive
    ms_per_token: ByBatchSize
    minutes_per_10000_items: Positive
    speed_up_layernorm_qkv_bias: ByBatchSize
    speed_up_attention: ByBatchSize
    speed_up_bias_residual: ByBatchSize
    speed_up_layernorm_ff_gelu: ByBatchSize


class Relation(TypedDict, total=False):
    """All keys of all kinds of relations (scripts/verdicts); each kind takes some of them."""

    part: str
    faster: Name
    slower: Name
    fastest: Name
    slowest: Name
    than: list[Name]
    case: Name
    single: Name
    batched: Name
    gains_more_than: Name
    batch_size: AtLeastOne
    batch_sizes: list[AtLeastOne]
    from_batch: AtLeastOne
    to_batch: AtLeastOne
    size: Positive
    ratio: Positive
    ratios: list[Positive]
    at_least: Positive
    at_most: Positive
    gain_at_least: Positive
    gain_below: Positive
    share_of_linear: Positive
    peak_memory_below_bytes: AtLeastOne
    check_passes: bool
    rate_grows_with_batch: bool
    left_padding_needed: bool


class Claim(TypedDict, total=False):
    id: Required[Name]
    text: Required[str]
    relations: Required[Annotated[list[Relation], msgspec.Meta(min_length=1)]]
    new_tokens: AtLeastOne
    headline: bool
    on_one_gpu: str  # what a reader has to know of a verdict on one GPU, where the article used more


class Tolerance(TypedDict):
    """The bounds of a dtype in bench/tolerances.toml."""

    value: Positive
    regret_p90: Positive
    regret_max: Positive
    logits_error: Positive
    reason: str


Tolerances = dict[Name, Tolerance]
