"""What stood behind the numbers: environment of each group, how numbers are measured, the runs themselves."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from scripts import stats
from scripts.articles import Article
from scripts.report import rerun_command, tables
from scripts.report.tables import NONE, text
from scripts.results import Record, Skipped
from scripts.verdicts.row_groups import GIB, Group, Row

#: The libraries whose versions stand in the table, beside Python and torch, where an environment has them.
LIBRARIES = ("transformers", "accelerate", "tensor-parallel", "bitsandbytes", "deepspeed", "bminf", "numpy")

METHOD = f"""
- **Time.** A timed call is one `generate`, from after all devices are idle to after they are idle again, on a monotonic clock in the
  measured process. The first call after loading is the cold call and counts nowhere else; warm-up calls are kept and not counted. Over
  several processes the slowest counts for each call. The number of new tokens is asserted, padding is never counted.
- **Mean ± std** is the mean and the *population* standard deviation of the timed calls, **p95** numpy's linear 95th percentile: what the
  articles print.
- **95 % interval** is a percentile bootstrap of the mean ({stats.RESAMPLES} resamples, fixed seeds), of a ratio one of the two means
  resampled independently. It tells how well *one run's* mean is known; how far runs lie apart is the column of repeated runs. Fewer than
  {stats.LEAST_SAMPLES} timed calls carry no interval.
- **Outliers** are samples whose 0.6745 · |x − median| / MAD is above {stats.OUTLIER_SCORE}. They are counted and never dropped.
- **Drift**: by how much the second half of the timed calls took longer than the first.
- **Further token**: (mean of the calls of N new tokens − mean of the calls of 1) / (N − 1).
- **Which GPUs**: each letter is one GPU of the group. Where two rows have none in common, a verdict on them says *on different GPUs*: their hosts may differ.
- **The host starts an operator in**: µs from one small operator to the next, started from Python without waiting, before a run's first call and after its
  last. Short calls wait for the host: where these numbers differ between rows, or within one, so do their hosts. Results of before this was taken do not tell.
- **Memory**: the peak of each GPU as the host's NVML saw it by UUID, sampled during the whole run (everything on the GPU is in it); torch's
  own allocated and reserved peaks; the peak resident set of the guest, summed over its processes. Of several GPUs the fullest counts.
- **Output check**: relative error of the logits at the last prompt position, |x − ref| / |ref| in the 2-norm, against plain transformers
  in float32 on the same weights and prompt; a tolerance for each dtype. Where a form leaves the tokens of its timed calls, a float32 model reads
  them as well: how far below its best choice each lies, in standard deviations of that step's logits, beside plain transformers in the row's
  dtype (docs/output-check.md). A row whose check fails keeps its numbers, marked, and supports no claim.
- **Verdicts**: *A is faster than B* is reproduced where the whole 95 % interval of mean(B) / mean(A) lies above 1, and, where the claim is
  about a size, the ratio is within the factor that the article's file states. Claims are judged within one group of rows: one stack,
  GPU model, kind of host (short calls wait for its processor), set of weights, scale and variant. Rows of a CPU or of a tiny model judge no claim
  about an article's GPUs.
- **Repeated runs**: of the runs of one case with the same pins the median one counts, by the mean of its shortest calls, and of an even number the later
  of the two in the middle; if the latest did not end well, that is what counts. All are told, and a run that exists is never overwritten.
""".strip().splitlines()


def _distinct(rows: Iterable[Row], fact: Callable[[Record], object]) -> str:
    """The different values of a fact over a group's rows."""
    values = list(dict.fromkeys(str(value) for row in rows if (value := fact(row.record))))
    return text(", ".join(sorted(values))) or NONE


def _commit(record: Record) -> str:
    commit = record.host.get("commit")
    return f"{commit[:12]}{' with uncommitted changes' if record.host.get('dirty') else ''}" if commit else ""


def _driver(record: Record) -> str:
    driver = record.host.get("driver") or {}
    return f"{driver.get('driver')} (CUDA {driver.get('cuda_driver')})" if driver.get("driver") else ""


def _machine(record: Record) -> str:
    machine = record.host.get("machine") or {}
    facts = [machine.get("cpu"), f"{machine.get('cpu_count')} cores" if machine.get("cpu_count") else "", _gib(machine.get("memory_total_bytes"))]
    return ", ".join(fact for fact in facts if fact)


def _gib(size_bytes: int | None) -> str:
    return f"{size_bytes / GIB:.0f} GiB" if size_bytes else ""


def _gpus(record: Record) -> list[str]:
    return [
        f"{gpu['index']}: {gpu['name']}, {_gib(gpu['memory_total_bytes'])}, compute capability {gpu['compute_capability']}, {gpu['uuid']}"
        for gpu in record.host.get("gpus") or []
    ]


def _versions_table(group: Group) -> list[str]:
    packages = [(row.guest.environment.get("packages") or {}) if row.guest else {} for row in group.rows]
    libraries = [name for name in LIBRARIES if any(name in found for found in packages)]
    rows = []
    for row, found in zip(group.rows, packages, strict=True):
        environment = row.guest.environment if row.guest else {}
        torch = (environment.get("torch") or {}).get("version") or found.get("torch")
        versions = [environment.get("python"), torch, *[found.get(name) for name in libraries]]
        rows.append([text(row.name), str(row.count), *[text(version or NONE) for version in versions]])
    return tables.table(["case", tables.devices_word(group), "Python", "torch", *libraries], rows)


def _images_table(group: Group) -> list[str]:
    rows = []
    for row in group.rows:
        image = row.record.host.get("image") or {}
        identity = image.get("digest") or image.get("id") or ""
        tag = f"`{image['tag']}`" if image.get("tag") else "none, on the host"
        stand_in = NONE if not image else "yes" if image.get("stand_in") else "no"
        pins_id = image.get("pins_id") or row.record.host.get("pins_id")
        codes = [f"`{code}`" if code else NONE for code in (identity[:19], pins_id)]
        rows.append([text(row.name), str(row.count), row.record.host["engine"], tag, *codes, stand_in])
    headers = ["case", tables.devices_word(group), "engine", "image", "id or digest", "pins", "image or its base a stand-in"]
    return tables.table(headers, rows, left=len(headers))


def _deviations(group: Group) -> list[str]:
    lines = [f"- {text(row.name)} on {row.count}: {'; '.join(text(one) for one in row.deviations())}" for row in group.rows if row.deviations()]
    return [f"{tables.MARK} Not exactly the pinned environment:", "", *lines, ""] if lines else []


def _used(group: Group) -> list[str]:
    """What each backend really did and which version branches ran, folded away."""
    lines = []
    for row in group.rows:
        if row.guest and (row.guest.used or row.guest.compat):
            facts = json.dumps({"used": row.guest.used, "branches": row.guest.compat}, sort_keys=True, ensure_ascii=False)
            lines.append(f"- {text(row.name)} on {row.count}: `{facts.replace('`', ' ').replace('|', ' ')}`")
    return ["<details><summary>What each backend really did</summary>", "", *lines, "", "</details>", ""] if lines else []


def _again(group: Group, article: Article | None) -> list[str]:
    """The line that runs each row again, folded away."""
    lines = [f"- {text(row.name)} on {row.count}: {again}" for row in group.rows if (again := rerun_command.shown(row.record, article))]
    if not lines:
        return []
    return ["<details><summary>How to run each row again</summary>", "", *lines, "", "</details>", ""]


def environment(group: Group, article: Article | None = None) -> list[str]:
    """The section of a group: machine, driver, versions, images, deviations from the pins."""
    gpus = list(dict.fromkeys(gpu for row in group.rows for gpu in _gpus(row.record)))
    lines = [tables.anchor(f"environment-{group.slug}"), "", f"### Environment of {text(group.key.article)}: {text(group.heading)}", ""]
    lines += [f"- Processor: {_distinct(group.rows, _machine)}"]
    lines += [f"- GPU {text(gpu)}" for gpu in sorted(gpus)]
    lines += [f"- Driver: {_distinct(group.rows, _driver)}"] if gpus else []
    lines += [f"- Commit of the kit: {_distinct(group.rows, _commit)}", ""]
    return [*lines, *_versions_table(group), *_images_table(group), *_deviations(group), *_used(group), *_again(group, article)]


def runs_table(records: Sequence[Record], runs_link: str) -> list[str]:
    """Every run with a link to its raw result; `runs_link` leads from the report to the runs folder."""
    rows = [
        [f"[{text(record.id)}]({runs_link}/{record.id}/result.json)", record.status, text(record.host["started_at"]), f"{record.host.get('wall_s') or 0:.1f}"]
        for record in sorted(records, key=lambda one: one.id)
    ]
    return tables.table(["run", "status", "started, UTC", "wall time, s"], rows, left=3)


def skipped_list(skipped: Sequence[Skipped]) -> list[str]:
    """What lies under the runs folder and is no result, by name."""
    return [*[f"- {text(Path(one.path).name)}: {text(one.reason)}" for one in skipped], ""]
