"""The shape of an article's file (bench/articles/*.toml): every key that the code reads, at any depth, and no other."""

from typing import Annotated, Any

import msgspec

from scripts.names import NAME
from scripts.toml_tables import Table

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
ByBatchSize = dict[Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,8}\Z")], Positive]

#: scripts/articles/batch_sweep.py says what a sweep is.
BatchSizes = list[int] | dict[str, Any]


class Model(Table):
    """`parameters` is given for a model on the hub, not for a tiny model of the demo."""

    name: str
    architecture: Name
    shape: Name
    parameters: AtLeastOne | None = None


class Hardware(Table):
    gpu: str
    gpus: AtLeastOne


class OwnPrompt(Table):
    """The keys of a case that replace those of its article's prompt."""

    text: str | None = None
    texts: list[str] | None = None
    tokens: AtLeastOne | None = None
    batch_size: AtLeastOne | None = None


class Prompt(Table):
    text: str
    batch_size: AtLeastOne
    tokens: AtLeastOne | None = None
    texts: list[str] = []


class OwnProtocol(Table):
    warmup_runs: Count | None = None
    timed_runs: AtLeastOne | None = None


class Protocol(Table):
    warmup_runs: Count
    timed_runs: AtLeastOne


class Run(Table):
    """`arguments` go to `generate` as the article wrote them, with the library's names."""

    new_tokens: AtLeastOne
    arguments: dict[str, Any]
    tiny_new_tokens: AtLeastOne | None = None
    up_to: bool = False


class Variant(Table):
    note: str = ""
    dtype: Name | None = None
    runs: list[Run] = []
    options: dict[str, Any] = {}
    batch_sizes: BatchSizes | None = None


class InVariant(Table):
    load: dict[str, Any] = {}
    runs: list[Run] | None = None


class Published(Table):
    """A new metric is a line here and a view in scripts/report."""

    mean_ms: Positive | None = None
    std_ms: Positive | None = None
    p95_ms: Positive | None = None
    ms_per_token: ByBatchSize | None = None
    minutes_per_10000_items: Positive | None = None
    speed_up_layernorm_qkv_bias: ByBatchSize | None = None
    speed_up_attention: ByBatchSize | None = None
    speed_up_bias_residual: ByBatchSize | None = None
    speed_up_layernorm_ff_gelu: ByBatchSize | None = None


class Case(Table):
    """scripts/articles/model.py explains each key; the backend and the form define the keys of `load` and `options`."""

    name: Name
    backend: Name
    gpus: AtLeastOne
    load: dict[str, Any]
    model: Name | None = None
    note: str = ""
    published: Published | None = None
    form: Name = "generate"
    options: dict[str, Any] = {}
    batch_sizes: BatchSizes | None = None
    prompt: OwnPrompt = msgspec.field(default_factory=OwnPrompt)
    runs: list[Run] | None = None
    protocol: OwnProtocol = msgspec.field(default_factory=OwnProtocol)
    variants: list[Name] | None = None
    in_variant: dict[Name, InVariant] = {}


class Relation(Table):
    """All keys of all kinds of relations (scripts/verdicts); each kind takes some of them."""

    part: str | None = None
    faster: Name | None = None
    slower: Name | None = None
    fastest: Name | None = None
    slowest: Name | None = None
    than: list[Name] | None = None
    case: Name | None = None
    single: Name | None = None
    batched: Name | None = None
    gains_more_than: Name | None = None
    batch_size: AtLeastOne | None = None
    batch_sizes: list[AtLeastOne] | None = None
    from_batch: AtLeastOne | None = None
    to_batch: AtLeastOne | None = None
    size: Positive | None = None
    ratio: Positive | None = None
    ratios: list[Positive] | None = None
    at_least: Positive | None = None
    at_most: Positive | None = None
    gain_at_least: Positive | None = None
    gain_below: Positive | None = None
    share_of_linear: Positive | None = None
    peak_memory_below_bytes: AtLeastOne | None = None
    check_passes: bool | None = None
    rate_grows_with_batch: bool | None = None
    left_padding_needed: bool | None = None


class Claim(Table):
    id: Name
    text: str
    relations: Annotated[list[Relation], msgspec.Meta(min_length=1)]
    new_tokens: AtLeastOne | None = None
    headline: bool = False
    on_one_gpu: str = ""  # what a reader has to know of a verdict on one GPU, where the article used more


class Article(Table):
    slug: Name
    title: str
    stack: Name
    model: Model
    prompt: Prompt
    protocol: Protocol
    variants: dict[Name, Variant]
    cases: list[Case]
    date: str = ""
    measured: str = ""
    caveat: str = ""
    original: str = ""
    references: list[str] = []
    hardware: Hardware | None = None
    models: dict[Name, Model] = {}
    options: dict[str, Any] = {}
    claims: list[Claim] = []


class Tolerance(Table):
    """The bounds of a dtype in bench/tolerances.toml."""

    value: Positive
    regret_p90: Positive
    regret_max: Positive
    logits_error: Positive
    reason: str


Tolerances = dict[Name, Tolerance]
