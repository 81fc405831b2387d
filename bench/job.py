"""Job and Result: the host's request to the guest, and the guest's answer, both as JSON files.

Host and guest both import this contract, so it uses only the standard library and runs under Python 3.8.

History of SCHEMA:
    1  (2026-11)  first version
    2  (2026-11)  a job's `load` holds only what its backend reads: no prose, so a reworded comment does not make it another job

A document of schema 1 is read as schema 2 would have written it.
"""

import array
import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import typing

SCHEMA = 2

#: {form: the name it had in earlier documents}. A document that has the earlier name is read as if it had the present one. A fingerprint
#: takes the earlier name, so that the runs which were stored under it keep their ids and count as repeats of today's.
_EARLIER_FORM_NAMES = {
    "padded-sentences": "cycles",
    "pipeline-parallel": "pipeline-schedule",
    "transformers-pipeline": "pipeline",
    "transformers-pipeline-sequences": "pipeline-sequences",
}
_FORM_NAMES = {earlier: form for form, earlier in _EARLIER_FORM_NAMES.items()}

#: {backend: keys of `load` that documents of schema 1 may have and that this backend did not read}; under "" the keys that no backend read.
_NEVER_READ = {"": ("dtype_origin", "load_in_8bit"), "transformers": ("device_map",)}

#: {form: the `device_map` that its first jobs named}. Fingerprints of jobs on one device take it, whatever map the job names.
_FIRST_DEVICE_MAPS = {"padded-sentences": "balanced_low_0"}

#: Every way a job can end; each is a row of the report.
STATUSES = ("ok", "oom", "timeout", "unsupported", "failed")

#: The kinds of jobs: time a backend, compute the right answer with plain transformers, judge the tokens of timed calls (bench/checking/judge.py),
#: write random weights, convert weights in pickles, or profile one call.
KINDS = ("measure", "reference", "judge", "weights", "convert", "profile")

#: The kinds that call no model.
WITHOUT_RUNS = ("weights", "convert")


#: The prefix of the name of a file that is not whole yet.
PARTIAL = ".partial-"

T = typing.TypeVar("T")


class InvalidDocument(ValueError):
    """A job or a result breaks the contract; the message names the field and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One task in one image.

    model       name, architecture (bloom|gptj|llama), shape (a name in bench/models/weights.py), weights (hub|random),
                scale (full|tiny), seed, recipe (of random weights; absent in jobs of recipe 1), revision
                (of real weights the commit, or folder-… where they are known by their digest alone), weights_sha256 (of real
                weights, over all their files), converted_by (of real weights that came in pickles: what made safetensors of them),
                path (where the guest finds the checkpoint)
    load        dtype (float32|float16|bfloat16|int8) and the arguments that the article gave to the loading calls of its backend
    prompt      text, tokens (a length to cut or repeat to; null keeps the text as it is), batch_size, texts (of forms with several)
    runs        a list of {new_tokens, arguments}: `arguments` go to `generate` as the article wrote them; `up_to` is true where an
                answer may end sooner
    reference   path of the right answer (a job of kind "reference" writes it), or null
    tolerance   largest relative error of the last-position logits at which the output counts as right, or null
    form        how the model is called: a module of bench/forms
    options     further arguments of the form; each form lists those that it takes
    """

    id: str
    kind: str
    article: str
    case: str
    variant: str
    backend: str
    stack: str
    device: str
    device_count: int
    model: typing.Dict[str, typing.Any]
    load: typing.Dict[str, typing.Any]
    prompt: typing.Dict[str, typing.Any]
    runs: typing.List[typing.Dict[str, typing.Any]]
    warmup_runs: int
    timed_runs: int
    reference: "str | None" = None
    tolerance: "float | None" = None
    form: str = "generate"
    options: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def batch_size(self) -> int:
        """The sequences of a call; an earlier document may name none, which is one."""
        return self.prompt.get("batch_size") or 1

    @property
    def model_without_path(self) -> "typing.Dict[str, typing.Any]":
        """The fields that decide the weights: the path differs between machines."""
        return {key: value for key, value in self.model.items() if key != "path"}

    @property
    def most_new_tokens(self) -> int:
        """The new tokens of a sequence in the longest run."""
        return max(run["new_tokens"] for run in self.runs)

    @property
    def answers(self) -> int:
        """The sequences of a step in the last run. Its arguments may ask for several per prompt; a stored job may hold any value there."""
        asked = (self.runs[-1].get("arguments") or {}).get("num_return_sequences")
        return self.batch_size * (asked if isinstance(asked, int) and asked > 0 else 1)

    def fingerprint(self) -> str:
        """12 hex digits over everything that decides what is measured; ids and paths do not.

        Old results keep their fingerprints: a field that was added later counts only where it is used, and the schema always counts as 1.
        """
        # Not dataclasses.asdict, which makes deep copies: a report asks thousands of jobs.
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in ("id", "reference")}
        for name, unused in (("form", "generate"), ("options", {})):
            if fields[name] == unused:
                del fields[name]
        if "form" in fields:
            fields["form"] = _EARLIER_FORM_NAMES.get(self.form, self.form)
        fields.update(schema=1, load=self.deciding_load(), model=self.model_without_path)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

    def deciding_load(self) -> "typing.Dict[str, typing.Any]":
        """`load` as fingerprints take it. On one device every `device_map` puts the whole model there, so forms of _FIRST_DEVICE_MAPS keep that map."""
        if self.device_count > 1 or "device_map" not in self.load:
            return self.load
        return dict(self.load, device_map=_FIRST_DEVICE_MAPS.get(self.form, self.load["device_map"]))


@dataclasses.dataclass
class Result:
    """A guest's answer. Times in ms and s, sizes in bytes; raw samples only, statistics are computed on reading.

    load_s          from the first loading call to a model that is ready on its devices
    prompt_tokens   of one sequence, as the model saw it
    measurements    a list of {new_tokens, cold_ms, warmup_ms: [...], timed_ms: [...], timed_at: [began, ended]}; over several ranks each
                    sample is the slowest rank's. `cold_ms` is the first call of the model after loading, or null: only small
                    operators ran before it (launch_us). `timed_at` is the window of the timed calls in seconds since the epoch; older results have none
    memory          {devices: [{device, peak_allocated_bytes, peak_reserved_bytes}], peak_rss_bytes} and, for an engine in processes of its own,
                    `processes`: how many processes peak_rss_bytes sums up; older results of such engines have the first process's alone
    check           {logits_relative_error, tolerance, greedy_common_prefix_tokens, greedy_tokens, passed, reason}, and, where the
                    tokens of the timed calls were judged, `judged`: what bench/checking/judge.py says of them
    launch_us       {before, after}: time in which the host starts one small operator, before the first call and after the last
    used            what the backend really used: dtype, device map, slicing configuration, library file, layer class…
    figures         {name: data}: further raw measurements of the form; each form lists its own. Of every form that times the job's runs:
                    `roof` and `products` (bench/measuring/roof.py), `token_times` (bench/measuring/token_times.py), `longer` (bench/measuring/longer.py)
    compat          {branch name: side taken} for every library-version branch that ran
    environment     python, platform, packages, torch, devices, device_nodes, between_gpus (variables of NCCL and its like)
    phases          {name: [began, ended]} in seconds since the epoch, so that the host can assign its memory samples
    """

    id: str
    status: str
    reason: str = ""
    load_s: "float | None" = None
    prompt_tokens: "int | None" = None
    batch_size: "int | None" = None
    measurements: typing.List[typing.Dict[str, typing.Any]] = dataclasses.field(default_factory=list)
    memory: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    check: "dict[str, typing.Any] | None" = None
    launch_us: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    used: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    figures: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    compat: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    environment: typing.Dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    phases: typing.Dict[str, typing.List[float]] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA


def _fields(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidDocument("not JSON: {}".format(error)) from None


def _newest(fields: "dict[str, typing.Any]") -> "dict[str, typing.Any]":
    """The fields of a document in the present schema; those of schema 1 are converted. Raises InvalidDocument for any other schema."""
    schema = fields.get("schema")
    if isinstance(schema, bool) or schema not in (1, SCHEMA):
        raise InvalidDocument("schema is {:.60}, this kit reads 1 and {}".format(repr(schema), SCHEMA))
    fields = dict(fields, schema=SCHEMA)
    load = fields.get("load")
    if schema == 1 and isinstance(load, dict):
        never_read = _NEVER_READ[""] + _NEVER_READ.get(str(fields.get("backend")), ())
        fields["load"] = {name: value for name, value in load.items() if name not in never_read}
    return fields


def _document(kind: "type[T]", fields: object) -> "T":
    if not isinstance(fields, dict):
        raise InvalidDocument("expected a JSON object, found {}".format(type(fields).__name__))
    fields = _newest(fields)
    known = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise InvalidDocument("unknown field {:.60}, allowed are {}".format(repr(unknown[0]), ", ".join(sorted(known))))
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in fields:
            raise InvalidDocument("field {!r} is missing".format(name))
    return kind(**fields)


def _line(words: str) -> str:
    """At most 300 characters in one line: `words` may quote any text of the document."""
    return " ".join(words.split())[:300]


def _expect(condition: object, message: str, *values: object) -> None:
    if not condition:
        raise InvalidDocument(_line(message.format(*values)))


def parse_job(text: str) -> Job:
    """A Job from its JSON text; raises InvalidDocument."""
    return job_of(_fields(text))


def read_job(path: "str | os.PathLike[str]") -> Job:
    """The Job of a file; raises InvalidDocument or OSError."""
    with open(path, encoding="utf-8") as stream:
        return parse_job(stream.read())


def job_of(fields: object) -> Job:
    """A Job from its parsed JSON data; raises InvalidDocument."""
    job = _document(Job, fields)
    _expect(job.kind in KINDS, "kind is {!r}, allowed are {}", job.kind, ", ".join(KINDS))
    _expect(job.device in ("cuda", "cpu"), "device is {!r}, allowed are cuda, cpu", job.device)
    _expect(isinstance(job.device_count, int) and job.device_count >= 1, "device_count is {!r}, allowed is 1 or more", job.device_count)
    _expect(
        job.timed_runs >= 1 and job.warmup_runs >= 0, "timed_runs is {}, warmup_runs is {}; allowed are 1 or more, 0 or more", job.timed_runs, job.warmup_runs
    )
    _expect(job.kind in WITHOUT_RUNS or job.runs, "runs is empty: a job needs at least one number of new tokens")
    _expect(isinstance(job.form, str) and isinstance(job.options, dict), "form is {!r}, options are {!r}; allowed are a name, an object", job.form, job.options)
    for run in job.runs:
        _expect(run.get("new_tokens", 0) >= 1, "new_tokens is {!r}, allowed is 1 or more", run.get("new_tokens"))
    return dataclasses.replace(job, form=_FORM_NAMES[job.form]) if job.form in _FORM_NAMES else job


def parse_result(text: str) -> Result:
    """A Result from its JSON text; raises InvalidDocument."""
    return result_of(_fields(text))


def result_of(fields: object) -> Result:
    """A Result from its parsed JSON data; raises InvalidDocument."""
    result = _document(Result, fields)
    _expect(result.status in STATUSES, "status is {!r}, allowed are {}", result.status, ", ".join(STATUSES))
    _expect(result.status == "ok" or result.reason, "status {} without a reason", result.status)
    for measurement in result.measurements:
        times = list(measurement.get("warmup_ms", [])) + list(measurement.get("timed_ms", []))
        _expect(times and all(isinstance(ms, (int, float)) and ms > 0 for ms in times), "a measurement without positive times: {}", measurement)
    return result


def to_json(document: object) -> str:
    """The text of a Job or Result (any dataclass, or plain data): sorted keys, no NaN, ends with a newline."""
    data = dataclasses.asdict(document) if dataclasses.is_dataclass(document) else document
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_as_list) + "\n"


def _as_list(value: object) -> "list[typing.Any]":
    """The host keeps long lists of numbers as arrays; raises TypeError for anything else that is not JSON data."""
    if isinstance(value, array.array):
        return value.tolist()
    raise TypeError("{} is not JSON data".format(type(value).__name__))


@contextlib.contextmanager
def whole_file(path: "str | os.PathLike[str]") -> "typing.Iterator[typing.BinaryIO]":
    """A binary file that becomes `path` when the block ends, and leaves nothing where the block fails: a temporary file beside it, fsync, rename."""
    path = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_whole(path: "str | os.PathLike[str]", text: str) -> None:
    """Write the whole `text` to `path`, or nothing."""
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))
