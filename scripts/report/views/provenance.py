"""What stood behind the numbers: the environment of each group, and the runs themselves."""

import collections
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scripts import pins, stats, surroundings
from scripts.articles import Article
from scripts.report import cells, rerun_command
from scripts.report.cells import MARK, NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, anchor, blocks, code, folded, lines, link
from scripts.report.views import around, article_setting
from scripts.results import Record, Skipped
from scripts.units import counted
from scripts.verdicts import row_groups, run_facts
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

#: The libraries whose versions stand in the table, beside Python and torch, where an environment has them; `libraries` adds that of a new backend.
LIBRARIES = ("transformers", "accelerate", "tensor-parallel", "bitsandbytes", "deepspeed", "bminf", "vllm", "numpy")


def libraries(backends: Iterable[str]) -> list[str]:
    """LIBRARIES, then the first package of each of these backends' own pins, which is the library that the backend is for.

    Only the backends of the rows count: a library of another backend may be in the images of these rows too, by chance, and a new backend
    would change pages of committed results.
    """
    known = pins.load().backends
    tables = [known[name] for name in dict.fromkeys(backends) if name in known]
    own = (next(iter(table.get(stack, {}).get("pins", {})), "") for table in tables for stack in table["stacks"])
    return [name for name in dict.fromkeys((*LIBRARIES, *own)) if name]


def _distinct(rows: Iterable[Row], fact: Callable[[Record], object]) -> str:
    """The different values of a fact over all runs of a group's rows."""
    values = {str(value) for row in rows for run in row.runs if (value := fact(run))}
    return ", ".join(sorted(values)) or NONE


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
    return f"{cells.gib(size_bytes, 0)} GiB" if size_bytes else ""


def _gpus(group: Group) -> list[str]:
    """The GPUs of all runs, by the letters of the table “which GPUs”."""
    letters = around.gpu_letters(group)
    every = {gpu["uuid"]: gpu for row in group.rows for run in row.runs for gpu in run.host.get("gpus") or []}
    return [
        f"{letter}: {gpu['name']}, {_gib(gpu['memory_total_bytes'])}, compute capability {gpu['compute_capability']}, {_links(gpu)}{uuid}"
        for uuid, letter in letters.items()
        if (gpu := every.get(uuid))
    ]


def _links(gpu: Mapping[str, Any]) -> str:
    return f"{gpu['nvlinks']} NVLinks, " if gpu.get("nvlinks") else ""


def _between_gpus(record: Record) -> str:
    """The variables by which the machine and the kit told NCCL and its like how GPUs exchange data."""
    told = (record.guest.environment.get("between_gpus") or {}) if record.guest and record.job.device_count > 1 else {}
    return " ".join(f"{name}={value}" for name, value in sorted(told.items()) if name != surroundings.NO_SETTING)


def _told_between(group: Group) -> dict[str, list[str]]:
    """{variables: the cases that had them}."""
    cases_of: dict[str, dict[str, None]] = {}
    for row in group.rows:
        for told in filter(None, map(_between_gpus, row.runs)):
            cases_of.setdefault(told, {})[row.case] = None
    return {told: list(cases) for told, cases in sorted(cases_of.items())}


def _version(name: str) -> Column[Row]:
    return Column(name, lambda row: row.packages.get(name) or NONE)


def _torch(row: Row) -> object:
    return (row.environment.get("torch") or {}).get("version") or row.packages.get("torch") or NONE


def _versions(group: Group) -> Markdown:
    columns = [
        Column[Row]("case", lambda row: row.name, words=True),
        Column[Row](cells.devices(group), lambda row: row.count),
        Column[Row]("Python", lambda row: row.environment.get("python") or NONE),
        Column[Row]("torch", _torch),
        *(_version(name) for name in libraries(row.record.job.backend for row in group.rows) if any(name in row.packages for row in group.rows)),
    ]
    return table(columns, group.rows)


def _image(row: Row) -> dict[str, object]:
    return row.record.host.get("image") or {}


def _image_tag(row: Row) -> Markdown | str:
    """A dash for a container whose result tells no image."""
    if tag := _image(row).get("tag"):
        return code(tag)
    return "none, on the host" if row.record.host["engine"] == "host" else NONE


def _image_id(run: Record) -> str:
    """The digest or id, cut to what tells images apart. Images of one set of pins differ where local stand-ins for their base differ."""
    image = run.host.get("image") or {}
    return str(image.get("digest") or image.get("id") or "")[:19]


def _image_ids(row: Row) -> list[str]:
    """The images of all runs, oldest first."""
    return [one for one in dict.fromkeys(map(_image_id, row.runs)) if one]


def _images(group: Group) -> Markdown:
    columns = [
        Column[Row]("case", lambda row: row.name, words=True),
        Column[Row](cells.devices(group), lambda row: row.count, words=True),
        Column[Row]("engine", lambda row: row.record.host["engine"], words=True),
        Column[Row]("image", _image_tag, words=True),
        Column[Row]("id or digest", lambda row: Markdown(", ").join(code(one) for one in _image_ids(row)) or NONE, words=True),
        Column[Row]("pins", lambda row: code(_image(row).get("pins_id") or row.record.host.get("pins_id") or "") or NONE, words=True),
        Column[Row]("image or its base is a stand-in", lambda row: NONE if not _image(row) else "yes" if row.is_on_stand_in else "no", words=True),
    ]
    return table(columns, group.rows)


def _deviations(group: Group) -> Markdown:
    differing = [row for row in group.rows if row.differences]
    items = [Markdown("- {}: {}").format(cells.on(row), Markdown("; ").join(row.differences)) for row in differing]
    return blocks(Markdown("{} Not exactly the pinned environment:").format(MARK), lines(*items)) if items else Markdown()


def _used(group: Group) -> Markdown:
    """What each backend really did and which version branches ran."""
    items = []
    for row in group.rows:
        if row.guest and (row.guest.used or row.guest.compat):
            facts = json.dumps({"used": row.guest.used, "branches": row.guest.compat}, sort_keys=True, ensure_ascii=False)
            items.append(Markdown("- {}: {}").format(cells.on(row), code(facts.replace("|", " "))))
    return folded("What each backend really did", lines(*items))


def _again(group: Group, article: Article | None) -> Markdown:
    """The command of a run of each row."""
    items = (Markdown("- {}: {}").format(cells.on(row), again) for row in group.rows if (again := rerun_command.shown(row.record, article)))
    return folded("How to run each row again, into a folder of your own (REPEATS=5 makes the five runs of a verdict)", lines(*items))


class _Alike(NamedTuple):
    """Runs of a row on the same GPUs, at the same commit, from the same image."""

    row: Row
    gpus: str
    commit: str
    image: str
    runs: list[Record]


def _alike(group: Group) -> list[_Alike]:
    letters = around.gpu_letters(group)
    every: dict[tuple[object, ...], _Alike] = {}
    for row in group.rows:
        for run in row.runs:
            gpus = " ".join(sorted(letters[uuid] for uuid in run_facts.gpu_uuids_of(run)))
            key = (cells.on(row), run.id_without_number, gpus, _commit(run), _image_id(run))
            every.setdefault(key, _Alike(row, gpus, _commit(run), _image_id(run), [])).runs.append(run)
    return list(every.values())


def _amiss(row: Row, run: Record) -> str:
    """ "wrong output": what is amiss with a run of a row; "" where nothing is."""
    if run.status != "ok":
        return run.status
    amiss = {"wrong output": run in row.wrong_runs, "disturbed": run not in row.undisturbed()}
    return ", ".join(word for word, holds in amiss.items() if holds)


def _runs_of(group: Group, runs_link: str) -> Markdown:
    """The runs behind the numbers of each row, for citing them: ids, GPUs, days, commit and image, with a link to each raw result."""
    alike = _alike(group)

    def named(row: Row, run: Record, name: str) -> Markdown:
        place = link(name, f"{runs_link}/{run.id}/result.json")
        return Markdown("{} ({})").format(place, amiss) if (amiss := _amiss(row, run)) else place

    def ids(line: _Alike) -> Markdown:
        first, *further = line.runs
        return Markdown(", ").join([named(line.row, first, first.id), *(named(line.row, run, run.id[len(run.id_without_number) :]) for run in further)])

    columns = [
        Column[_Alike]("row", lambda line: cells.on(line.row), words=True),
        Column[_Alike]("runs", ids, words=True),
        Column[_Alike]("GPUs", lambda line: line.gpus, any(line.gpus for line in alike), words=True),
        Column[_Alike]("days, UTC", lambda line: _days(line.runs), words=True),
        Column[_Alike]("commit of the kit", lambda line: line.commit or NONE, words=True),
        Column[_Alike]("image", lambda line: code(line.image) or NONE, any(line.image for line in alike), words=True),
    ]
    words = Markdown("Cite a number with the ids of its row's runs. A line names its first run in full and each further one by the end of its id.")
    return blocks(
        anchor(f"runs-of-{group.slug}"),
        folded("Which runs each row comes from: ids, raw results, GPUs, days, commits, images", blocks(words, table(columns, alike))),
    )


def environment(group: Group, article: Article | None = None, runs_link: str = "runs") -> Markdown:
    """The environment page of a group: machine, driver, versions, images, deviations from the pins, commands, runs; `runs_link` leads to the runs."""
    gpus, told_between = _gpus(group), _told_between(group)
    facts = [
        Markdown("- Processor: {}").format(_distinct(group.rows, _machine)),
        *(Markdown("- GPU {}").format(gpu) for gpu in gpus),
        *([Markdown("- Driver: {}").format(_distinct(group.rows, _driver))] if gpus else []),
        *(Markdown("- Variables of NCCL and its like, on several GPUs: {} ({})").format(code(told), ", ".join(cases)) for told, cases in told_between.items()),
        Markdown("- Commit of the kit: {}").format(_distinct(group.rows, _commit)),
    ]
    heading = Markdown("# Environment of {}: {}").format(group.key.article, group.heading)
    back = link("The rows", f"#{group.slug}")
    between_gpus = dict.fromkeys(word for told in told_between for word in told.split())
    apart = article_setting.section(group, article, list(between_gpus))
    of_rows = Markdown("## What these rows had") if apart else Markdown()
    tables = (_versions(group), _images(group), _deviations(group), _used(group), _again(group, article), _runs_of(group, runs_link))
    return blocks(anchor(f"environment-{group.slug}"), heading, back, apart, of_rows, lines(*facts), *tables)


def _means(record: Record) -> str:
    """ "27.2 (1); 2640 (128)"."""
    timed = run_facts.series(record) if record.status == "ok" else {}
    return "; ".join(f"{stats.significant(statistics.fmean(timed[count]))} ({count})" for count in sorted(timed)) or NONE


def rows_tables(groups: Sequence[Group], records: Sequence[Record]) -> Markdown:
    """The rows of each setting: how their runs ended, and on how many sets of GPUs and which days the good runs ran; then the measuring runs in no row."""
    columns = [
        Column[Row]("row", cells.on, words=True),
        Column[Row]("good runs", lambda row: len(row.good_runs)),
        Column[Row]("wrong output", lambda row: len(row.wrong_runs) or NONE),
        Column[Row]("disturbed", lambda row: len(row.ok_runs) - len(row.undisturbed()) or NONE),
        Column[Row]("failed", lambda row: len(row.failed_runs) or NONE),
        Column[Row]("out of memory, out of time, unsupported", lambda row: len(row.runs) - len(row.ok_runs) - len(row.failed_runs) or NONE),
        Column[Row]("sets of GPUs", lambda row: len({frozenset(run_facts.gpu_uuids_of(run)) for run in row.good_runs}) or NONE),
        Column[Row]("days, UTC", lambda row: _days(row.good_runs or row.runs), words=True),
    ]
    tables = (blocks(Markdown("### {}: {}").format(group.key.article, link(group.heading, f"#{group.slug}")), table(columns, group.rows)) for group in groups)
    return blocks(*tables, _of_earlier_jobs(groups, records))


def _days(runs: Sequence[Record]) -> str:
    """ "2026-11-24, 2026-11-26"."""
    return ", ".join(sorted({run.host["started_at"][:10] for run in runs}))


def _of_earlier_jobs(groups: Sequence[Group], records: Sequence[Record]) -> Markdown:
    """The measuring runs in no row, because a later run of their case measured another job."""
    in_rows = {run.id for run in row_groups.runs_of(groups)}
    earlier = collections.Counter(run.id_without_number for run in records if run.job.kind == "measure" and run.id not in in_rows)
    items = [Markdown("- {}: {}").format(name, counted(count, "run")) for name, count in sorted(earlier.items())]
    words = Markdown(
        "### Runs of earlier jobs\n\nThese runs are in no row: a later run of the same case measured another job, for example with other settings."
    )
    return blocks(words, lines(*items)) if items else Markdown()


def runs_table(records: Sequence[Record], runs_link: str) -> Markdown:
    """Every run with a link to its raw result; `runs_link` leads from the report to the runs folder."""
    columns = [
        Column[Record]("run", lambda record: link(record.id, f"{runs_link}/{record.id}/result.json"), words=True),
        Column[Record]("status", lambda record: record.status, words=True),
        Column[Record]("started, UTC", lambda record: record.host["started_at"], words=True),
        Column[Record]("commit", _commit, words=True),
        Column[Record]("mean call, ms (new tokens)", _means, words=True),
        Column[Record]("wall time, s", lambda record: cells.decimal(record.host.get("wall_s"), 1)),
    ]
    return table(columns, sorted(records, key=lambda record: record.id))


def skipped_list(skipped: Sequence[Skipped]) -> Markdown:
    """The paths under the runs folder that are no results, each with the reason."""
    return lines(*(Markdown("- {}: {}").format(skip.path.name, skip.reason) for skip in skipped))
