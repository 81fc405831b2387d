"""What an article describes without measuring it, each with a number of the kit's own: tables from Result.figures."""

from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import tables
from scripts.report.tables import NONE, text
from scripts.verdicts.row_groups import GIB, Group, Row, apart

REGION_NAMES = {
    "layernorm_qkv_bias": "LayerNorm + QKV + bias",
    "attention": "attention",
    "bias_residual": "bias + residual",
    "layernorm_ff_gelu": "LayerNorm + FF + GELU",
}

#: Backends that cut each layer over their devices.
CUTTING = ("deepspeed", "tensor-parallel")


def section(group: Group, article: Article | None) -> list[str]:
    """All tables that this group's rows give, under one heading; [] where there are none."""
    parts = [*fusion(group, article), *schedules(group), *kv_offload(group), *scaling(group, article)]
    return ["#### What it is made of", "", *parts] if parts else []


def _with(group: Group, figure: str) -> list[tuple[Row, object]]:
    return [(row, row.figures[figure]) for row in group.rows if row.status == "ok" and row.figures.get(figure)]


# ---------------------------------------------------------------------------------------------- fusion
def fusion(group: Group, article: Article | None) -> list[str]:
    """Each region in each batch size: µs of PyTorch's operators and of another way, how many times as fast, beside the article's."""
    lines = []
    for row, found in _with(group, "fusion"):
        case = article.case(row.case) if article else None
        eager = {(one["region"], one["batch_size"]): one for one in found if one["implementation"] == "eager"}
        for one in found:
            if one["implementation"] != "eager":
                published = case.published_at(f"speed_up_{one['region']}", one["batch_size"]) if case and not group.cannot_judge() else None
                lines.append(_fusion_line(one, eager.get((one["region"], one["batch_size"])), published))
    if not lines:
        return []
    lines.sort(key=lambda line: line[0])
    headers = ["region", "fused by", "batch", "PyTorch, µs", "fused, µs", "times as fast (95 % interval)", "published"]
    headers += ["GPU busy: PyTorch / fused, µs", "error of fused against float32, %"]
    notes = "One new token of one layer. Times of one call among many that follow one another, so with the host's part; *GPU busy* is the kernels alone. "
    notes += "The article names a batch size for none of its numbers; they stand beside a batch of one."
    return ["**Fused operators**", "", *tables.table(headers, [line[1:] for line in lines], left=2), notes, ""]


def _fusion_line(one: dict, eager: dict | None, published: float | None) -> list:
    place = list(REGION_NAMES).index(one["region"]) if one["region"] in REGION_NAMES else len(REGION_NAMES)
    key = (place, one["implementation"], one["batch_size"])
    head = [key, REGION_NAMES.get(one["region"], text(one["region"])), text(one["implementation"]), str(one["batch_size"])]
    told = NONE if published is None else f"{published:g}"
    if not one["us"] or not eager or not eager["us"]:
        return [*head, NONE, text(one["reason"]) or NONE, NONE, told, NONE, NONE]
    times = [stats.significant(stats.summarise(samples).mean) for samples in (eager["us"], one["us"])]
    busy = [NONE if which.get("device_us") is None else stats.significant(which["device_us"]) for which in (eager, one)]
    error = one.get("relative_error")
    return [
        *head,
        *times,
        stats.in_words(stats.ratio(eager["us"], one["us"]), least=2),
        told,
        NONE if busy == [NONE, NONE] else " / ".join(busy),
        "not finite" if error is None else stats.percent(error),
    ]


# ---------------------------------------------------------------------------------------------- pipeline schedules
def schedules(group: Group) -> list[str]:
    """Tokens a second, the share of the time that stages wait, and whether the output is the same, for each schedule."""
    lines = []
    for row, found in _with(group, "schedules"):
        new_tokens = row.figures.get("new_tokens") or 0
        for one in found:
            made = one["micro_batches"] * one["micro_batch_size"] * new_tokens
            rates = [made / wall_ms * 1000 for wall_ms in one["wall_ms"] if wall_ms > 0]
            if not rates:
                continue
            lines.append(
                [
                    text(row.name),
                    str(one["stages"]),
                    text(one["schedule"]),
                    f"{one['micro_batches']} × {one['micro_batch_size']}",
                    f"{stats.significant(stats.summarise(rates).mean)} ({stats.significant(min(rates))} to {stats.significant(max(rates))})",
                    " / ".join(f"{100 * share:.0f}" for share in idle_shares(one)) or NONE,
                    f"{one['identical']} of {one['micro_batches'] * one['micro_batch_size']}",
                ]
            )
    if not lines:
        return []
    headers = ["case", "stages", "schedule", "micro-batches × sequences", "tokens/s (slowest to fastest run)"]
    headers += ["idle share of each stage, %", "sequences as in turn"]
    notes = "*naive*: all sequences as one batch, stage after stage; *in turn*: micro-batches, one in the pipeline at a time; *rolling*: as many as stages. "
    notes += "A stage is idle while it has no work; a step's waiting for the host to start its kernels counts as work."
    return ["**Pipeline schedules**", "", *tables.table(headers, lines, left=1), notes, ""]


def idle_shares(one: dict) -> list[float]:
    """The share of the wall time in which each stage had no work, over all runs."""
    wall_ms = sum(one["wall_ms"])
    stages = list(zip(*one["busy_ms"], strict=False))
    return [max(0.0, 1 - sum(busy) / wall_ms) for busy in stages] if wall_ms > 0 else []


# ---------------------------------------------------------------------------------------------- offloaded cache
def kv_offload(group: Group) -> list[str]:
    """How many sequences of a context fit with each cache, and what a further token costs in the largest batch that fits without."""
    lines = [_cache_line(row, found, one) for row, found in _with(group, "kv_offload") for one in found["caches"]]
    if not lines:
        return []
    headers = ["case", "cache", "GPU memory allowed, GiB", "context, tokens", "most sequences", "sequences × context"]
    headers += ["timed with sequences", "further token, ms (95 % interval)", "sequences as with the default"]
    return ["**Key-value cache in host memory**", "", *tables.table(headers, lines, left=2)]


def _cache_line(row: Row, found: dict, one: dict) -> list[str]:
    """One cache of a row's figure."""
    limit, batch_size, per_token = found.get("memory_limit_bytes"), one.get("batch_size"), NONE
    if one.get("first_ms") and one.get("all_ms") and (one.get("new_tokens") or 0) > 1:
        per_token = stats.in_words(stats.per_token(one["first_ms"], one["all_ms"], one["new_tokens"] - 1))
    return [
        text(row.name),
        text(one["cache"]),
        NONE if limit is None else f"{limit / GIB:.0f}",
        str(found["context_tokens"]),
        f"{one['most_sequences']}" + (" or more" if one["searched_to_the_end"] else ""),
        str(one["most_sequences"] * found["context_tokens"]),
        NONE if batch_size is None else str(batch_size),
        per_token,
        NONE if one.get("identical") is None else f"{one['identical']} of {batch_size}",
    ]


# ---------------------------------------------------------------------------------------------- tensor parallelism
def scaling(group: Group, article: Article | None) -> list[str]:
    """Latency and efficiency over numbers of devices, for cases that cut each layer and ran on more than one number of them."""
    if article is None or not any(case.form == "cycles" for case in article.cases):
        return []
    by_question: dict[tuple, list[Row]] = {}
    for row in group.rows:
        if row.status == "ok" and row.new_tokens and row.record.job.backend in CUTTING:
            by_question.setdefault((row.case, row.batch_size, row.new_tokens[-1]), []).append(row)
    lines = []
    for (case, batch_size, new_tokens), rows in by_question.items():
        lines += _scaling_lines(case, batch_size, new_tokens, rows)
    if not lines:
        return []
    headers = ["case", "batch", "new tokens", tables.devices_word(group), "mean, ms", "times as fast as the fewest (95 % interval)", "efficiency, %"]
    notes = "Efficiency: how many times as fast, over how many times as many devices."
    return ["**Tensor parallelism**", "", *tables.table(headers, lines), notes, ""]


def _scaling_lines(case: str, batch_size: int, new_tokens: int, rows: Sequence[Row]) -> list[list[str]]:
    fewest = min(rows, key=lambda row: row.count)
    lines = []
    for row in sorted(rows, key=lambda one: one.count) if len(rows) > 1 else []:
        ratio = stats.ratio(fewest.timed_ms(new_tokens), row.timed_ms(new_tokens))
        times = NONE if row is fewest else stats.in_words(ratio, least=2) + (", different GPUs" if apart(row, fewest) else "")
        efficiency = 100 * ratio.value * fewest.count / row.count
        head = [text(case), str(batch_size), str(new_tokens), str(row.count)]
        lines.append([*head, tables.mean_std(stats.summarise(row.timed_ms(new_tokens))), times, f"{efficiency:.0f}"])
    return lines
