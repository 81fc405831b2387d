"""What stands in a result.json beyond bench.job's own contract, as types that msgspec checks.

A key without a default has to be there. Keys that a shape does not name are let through, below the first level: an older report reads
a newer kit's results as far as it knows them. On the first level of a record, its job and its guest's result no key may be new:
these levels change with the schema.
"""

from typing import Annotated, Any, Literal

import msgspec

from bench.job import InvalidDocument
from scripts import names
from scripts.names import NAME, RUN_ID

#: The digits alone; the store checks that there is such a moment.
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z"

#: {expression: what a text has to be, in words}, for errors.
IN_WORDS = {NAME: names.WORDS, RUN_ID: "an id that ends in -<number>", MOMENT: 'a moment as "2026-11-21T04:10:00Z"'}

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
RunId = Annotated[str, msgspec.Meta(pattern=RUN_ID)]
Moment = Annotated[str, msgspec.Meta(pattern=MOMENT)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
#: Times, sizes and errors; door.py holds every number of a file below 1e18.
Amount = Annotated[float, msgspec.Meta(ge=0)]
#: A measured time in ms or µs; a shorter one is damage and overflows in ratios.
Time = Annotated[float, msgspec.Meta(ge=1e-9)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(gt=0)]

#: The most numbers of new tokens of a job, and regions and samples of the form `fusion`. Tables and plots compare each with the others, so a result of
#: thousands would keep a report busy for minutes; the committed results have at most 2, 32 and 9.
MOST_SERIES, MOST_REGIONS, MOST_SAMPLES = 100, 500, 100


class Shape(msgspec.Struct):
    """A JSON object; None stands for a key that is absent or null."""


class ContainerImage(Shape):
    """`id` is the digest of the image's configuration, the same with each engine; `sif_sha256` is that of Apptainer's file, `squashfs_sha256` of pyxis'."""

    tag: str
    id: str | None = None
    digest: str | None = None
    pins_id: str | None = None
    stand_in: bool | None = None
    sif_sha256: str | None = None
    squashfs_sha256: str | None = None


class Machine(Shape):
    cpu: str | None = None
    cpu_count: Count | None = None
    memory_total_bytes: Bytes | None = None


class Driver(Shape):
    driver: str | None = None
    cuda_driver: str | None = None


class Gpu(Shape):
    index: Count
    uuid: str
    name: str
    memory_total_bytes: Bytes
    compute_capability: str
    memory_bytes_per_s: AtLeastOne | None = None
    nvlinks: Count | None = None


class GpuMemory(Shape):
    """The sampler's summary of a GPU; a peak is None where it gave no sample."""

    uuid: str
    peak_used_bytes: Bytes | None = None


class Conditions(Shape):
    """scripts/machine/conditions.py says what it holds."""

    marks: list[str] | None = None
    disturbed: list[str] | None = None


class EnergyOfGpu(Shape):
    """scripts/machine/energy.py says what it holds."""

    uuid: str
    code: str
    seconds: Amount | None = None
    joules: Amount | None = None
    updates: Count | None = None
    power_joules: Amount | None = None
    idle_w: Amount | None = None


class Energy(Shape):
    """Of the calls of one run: `calls` longer ones beside the timed calls, else the timed calls."""

    new_tokens: AtLeastOne
    gpus: list[EnergyOfGpu]
    calls: AtLeastOne | None = None


class BusyOfGpu(Shape):
    """scripts/machine/busy.py says what it holds."""

    uuid: str
    code: str
    samples: Count | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Busy(Shape):
    """Of the calls that Energy is of."""

    new_tokens: AtLeastOne
    gpus: list[BusyOfGpu]
    calls: AtLeastOne | None = None


class Host(Shape):
    """What the host saw of a run; scripts/run/host_facts.py writes it.

    started_at   UTC; `began` is the same in seconds since the epoch
    wall_s       of the job's process or container
    container_s  making the container and removing it, or starting and ending the process
    judge_s      of the job that judges the tokens, after it
    prepare_s    before it: choosing GPUs, checks, and building or writing what was not there
    differences  from the pins, a line each
    shared_with  how many other jobs of the same command may have run beside it (JOBS)
    rules_version  of the verdicts when the result was stored (scripts/results/rules_version.py)
    """

    engine: Literal["docker", "podman", "apptainer", "pyxis", "host"]
    started_at: Moment
    wall_s: Amount | None = None
    began: Amount | None = None
    prepare_s: Amount | None = None
    container_s: Amount | None = None
    judge_s: Amount | None = None
    rules_version: AtLeastOne | None = None
    commit: str | None = None
    dirty: bool | None = None
    pins_id: str | None = None
    image: ContainerImage | None = None
    differences: list[str] | None = None
    machine: Machine | None = None
    driver: Driver | None = None
    gpus: list[Gpu] | None = None
    gpu_memory: list[GpuMemory] | None = None
    conditions: Conditions | None = None
    shared_with: Count | None = None
    energy: list[Energy] | None = None
    busy: list[Busy] | None = None


class Model(Shape):
    """`recipe` is that of random weights; jobs of recipe 1 name none."""

    weights: Name
    scale: Name
    name: str | None = None
    architecture: Name | None = None
    shape: Name | None = None
    seed: int | None = None
    recipe: AtLeastOne | None = None
    revision: str | None = None
    weights_sha256: str | None = None
    converted_by: str | None = None
    path: str | None = None


class Load(Shape):
    dtype: Name | None = None


class Prompt(Shape):
    text: str | None = None
    texts: list[str] | None = None
    tokens: AtLeastOne | None = None
    batch_size: AtLeastOne | None = None


class Run(Shape):
    new_tokens: AtLeastOne
    arguments: dict[str, Any] | None = None


class Options(Shape):
    """Of the options of all forms those that the report reads."""

    profiler: Name | None = None
    items: AtLeastOne | None = None
    rows: AtLeastOne | None = None
    tokens_times_ranks: bool | None = None
    arrivals_per_s: Rate | None = None


class Job(Shape):
    """A job as the host reads it back; bench.job.Job is what it becomes."""

    id: str
    kind: Name
    article: Name
    case: Name
    variant: Name
    backend: Name
    stack: Name
    device: Name
    device_count: AtLeastOne
    model: Model
    load: Load
    prompt: Prompt
    runs: Annotated[list[Run], msgspec.Meta(max_length=MOST_SERIES)]
    warmup_runs: Count
    timed_runs: AtLeastOne
    reference: str | None = None
    tolerance: Amount | None = None
    form: Name = "generate"
    options: Options = msgspec.field(default_factory=Options)


class Measurement(Shape):
    new_tokens: AtLeastOne
    timed_ms: list[Time]
    warmup_ms: list[Time] = []
    cold_ms: Time | None = None
    timed_at: tuple[Amount, Amount] | None = None


class DeviceMemory(Shape):
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes


class Memory(Shape):
    devices: list[DeviceMemory] | None = None
    peak_rss_bytes: Bytes | None = None
    processes: AtLeastOne | None = None


class Regret(Shape):
    """In standard deviations of a step's logits."""

    p90: Amount
    max: Amount


class AllowedRegret(Shape):
    regret_p90: Amount
    regret_max: Amount


class Judged(Shape):
    """What the judge says of the timed calls' tokens (bench/checking/judge.py)."""

    passed: bool
    reason: str
    regret: Regret | None = None
    allowed: AllowedRegret | None = None


class Check(Shape):
    passed: bool
    reason: str | None = None
    logits_relative_error: Amount | None = None
    tolerance: Amount | None = None
    greedy_common_prefix_tokens: Count | None = None
    greedy_tokens: Count | None = None
    judged: Judged | None = None


class LaunchTimes(Shape):
    before: Amount | None = None
    after: Amount | None = None


class TokensOfCalls(Shape):
    new_tokens: AtLeastOne
    timed_tokens: list[Count]


class Workload(Shape):
    items: AtLeastOne
    new_tokens: AtLeastOne
    prompt_tokens: AtLeastOne
    padded_prompt_tokens: AtLeastOne
    decode_rows: Count
    seconds: Time
    resumed: bool


class Latency(Shape):
    """Of the items of a workload that arrived over time (bench/forms/arrivals.py), or the reason why no time is told.

    The first results have no `each_ms`.
    """

    arrivals_per_s: Rate
    items: AtLeastOne
    median_ms: Time | None = None
    p95_ms: Time | None = None
    p99_ms: Time | None = None
    longest_ms: Time | None = None
    offered_s: Time | None = None
    finished_s: Time | None = None
    each_ms: list[Time] | None = None
    reason: str | None = None


class PaddingSide(Shape):
    """Text by text; where all tokens are the same there is no first that differs."""

    first_different_token: list[Count | None]
    logits_relative_error: list[Amount]


class Padding(Shape):
    new_tokens: AtLeastOne
    prompt_tokens: list[Count]
    left: PaddingSide
    right: PaddingSide


class TorchMemory(Shape):
    allocated_bytes: Bytes | None = None
    peak_allocated_bytes: Bytes | None = None
    reserved_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None


class MemoryAround(Shape):
    before: list[TorchMemory] | None = None
    after: list[TorchMemory] | None = None


class Cycles(Shape):
    sequences: AtLeastOne
    counted_tokens: AtLeastOne
    real_tokens: Count
    ranks: AtLeastOne
    padded_logits_relative_error: Amount | None = None
    memory: MemoryAround | None = None


class Region(Shape):
    region: str
    implementation: str
    batch_size: AtLeastOne
    us: Annotated[list[Time], msgspec.Meta(max_length=MOST_SAMPLES)]
    reason: str
    device_us: Amount | None = None
    relative_error: Amount | None = None


class Schedule(Shape):
    schedule: str
    stages: AtLeastOne
    micro_batches: AtLeastOne
    micro_batch_size: AtLeastOne
    wall_ms: list[Time]
    busy_ms: list[list[Amount]]
    identical: Count


class Kernels(Shape):
    name: str
    count: Count
    ms: Amount


class DeviceProfile(Shape):
    busy_ms: Amount | None = None
    kernels: Count | None = None


class Profile(Shape):
    profiler: str
    new_tokens: AtLeastOne
    wall_ms: Time
    profiled_wall_ms: Time
    kernels: Count | None = None
    devices: dict[str, DeviceProfile] | None = None
    top: list[Kernels] | None = None


class Cache(Shape):
    cache: str
    most_sequences: Count
    searched_to_the_end: bool
    batch_size: AtLeastOne | None = None
    first_ms: list[Time] | None = None
    all_ms: list[Time] | None = None
    new_tokens: AtLeastOne | None = None
    identical: Count | None = None


class KvOffload(Shape):
    context_tokens: Count
    caches: list[Cache]
    memory_limit_bytes: Bytes | None = None


class RoofOfGpu(Shape):
    """A GPU's own rates, as times of products that read so many bytes or make so many floating-point operations."""

    read_bytes: AtLeastOne
    read_us: Annotated[list[Time], msgspec.Meta(min_length=1)]
    matrix_flop: AtLeastOne
    matrix_us: Annotated[list[Time], msgspec.Meta(min_length=1)]


class Roof(Shape):
    """`reason`: why a GPU was not measured."""

    devices: list[RoofOfGpu] = []
    reason: str | None = None


class Products(Shape):
    """Of one decoding step of so many rows, or the reason why there is none."""

    rows: AtLeastOne | None = None
    weight_bytes: AtLeastOne | None = None
    step_us: Annotated[list[Time], msgspec.Meta(min_length=1)] | None = None
    reason: str | None = None


class TokenTimes(Shape):
    """Call by call, or the reason why there is none."""

    new_tokens: AtLeastOne | None = None
    first_ms: Annotated[list[Time], msgspec.Meta(min_length=1)] | None = None
    between_ms: list[list[Amount]] | None = None
    reason: str | None = None


class Longer(Shape):
    """Calls of a run beside its timed ones, for the GPU's slow counters, or the reason why there are none."""

    new_tokens: AtLeastOne
    calls: AtLeastOne | None = None
    at: tuple[Amount, Amount] | None = None
    reason: str | None = None


class Wrote(Shape):
    """(token id, the text that it adds) of the first new tokens: of the system, and of the reference on the same prompt."""

    system: list[tuple[Count, str]]
    reference: list[tuple[Count, str]] | None = None


class Kernel(Shape):
    """What a calibration timed: so many products of square matrices, or "none"."""

    kernel: str
    size: AtLeastOne | None = None
    products: AtLeastOne | None = None
    dtype: str | None = None


class Pipeline(Shape):
    """How many answers a call of the pipeline object makes to one text, and how many tokens the longest answer of each timed call of the last run has."""

    sequences: AtLeastOne | None = None
    tokens_by_call: list[Count] | None = None


class Figures(Shape):
    """What the forms of bench/forms give, as far as the report has tables for it."""

    calls: list[TokensOfCalls] | None = None
    workload: Workload | None = None
    latency: Latency | None = None
    padding: Padding | None = None
    cycles: Cycles | None = None
    pipeline: Pipeline | None = None
    fusion: Annotated[list[Region], msgspec.Meta(max_length=MOST_REGIONS)] | None = None
    schedules: list[Schedule] | None = None
    new_tokens: Count | None = None
    prompt_tokens: Count | None = None
    padded_prompt_tokens: Count | None = None
    profile: Profile | None = None
    kv_offload: KvOffload | None = None
    roof: Roof | None = None
    products: Products | None = None
    token_times: TokenTimes | None = None
    longer: list[Longer] | None = None
    wrote: Wrote | None = None
    kernel: Kernel | None = None


class Torch(Shape):
    version: str | None = None


class Environment(Shape):
    python: str | None = None
    torch: Torch | None = None
    packages: dict[str, str] | None = None
    between_gpus: dict[str, str] | None = None


class Used(Shape):
    """What a backend says of the loaded model; each says more than the report reads."""

    dtype: str | None = None
    parameters_per_device: dict[str, Any] | None = None


class Guest(Shape):
    """A guest's answer as the host reads it; bench.job.Result is what it becomes."""

    id: str
    status: Name
    measurements: Annotated[list[Measurement], msgspec.Meta(max_length=MOST_SERIES)] = []
    memory: Memory = msgspec.field(default_factory=Memory)
    used: Used = msgspec.field(default_factory=Used)
    compat: dict[str, Any] = {}
    environment: Environment = msgspec.field(default_factory=Environment)
    phases: dict[str, tuple[float, float]] = {}
    reason: str = ""
    load_s: Amount | None = None
    prompt_tokens: Count | None = None
    batch_size: AtLeastOne | None = None
    check: Check | None = None
    launch_us: LaunchTimes = msgspec.field(default_factory=LaunchTimes)
    figures: Figures = msgspec.field(default_factory=Figures)


class Record(Shape):
    """The whole of a result.json but for `job` and `guest`, whose first level bench.job checks too."""

    id: RunId
    status: Name
    schema: int
    job: Job
    host: Host
    guest: Guest | None = None
    reason: str = ""


def check(fields: object, shape: type[Shape], file: str = "result.json") -> None:
    """Raise InvalidDocument, which names the field and what is allowed, where parsed data does not have the shape."""
    try:
        msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        words, at, place = str(error).rpartition(" - at ")
        words, place = (words, place) if at else (place, "")
        for pattern, allowed in IN_WORDS.items():
            words = words.replace(f"`str` matching regex {pattern!r}", allowed)
        field = place.strip("`").removeprefix("$").lstrip(".")
        raise InvalidDocument(f"damaged {file}: {field or 'the whole'}: {words}"[:400]) from None
