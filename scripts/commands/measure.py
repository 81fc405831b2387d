"""bench, article, profile: run cases of an article and store their results."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bench.job import write_whole
from scripts import articles, pins, results
from scripts.commands import values
from scripts.commands.values import MODELS, RUNS, Verb, option
from scripts.errors import KitError, UsageError
from scripts.images import build
from scripts.machine import allocation, gpus, locks, permissions, signals
from scripts.models import store
from scripts.names import nearest
from scripts.run import engines, outcome, outlook, plan, rounds, runner, several
from scripts.run.engines import host, nsight
from scripts.run.options import OF_SLURM, OPTION_NAMES, UNUSED, Options, typed_with_make
from scripts.run.slurm import follow, site

PROFILER = option("PROFILER", values.choice("torch", "nsys"), "the profiler", "torch")

#: The options of what is measured and how often, on any machine; in the order of --help, as are those of OF_MACHINE.
OF_ROWS = (
    option("GPUS", values.count(most=1024), "number of free GPUs; by default as many as in the article"),
    option("ARTICLE", values.text(), "the article whose cases run: a name in bench/articles", ""),
    option("CASES", values.names(), "only these cases of the article", ()),
    option("CLAIMS", values.names(), "only the rows that these claims of the article compare", ()),
    option("VARIANT", values.choice(*articles.VARIANTS), "the article's own arguments, or the same arguments for every row"),
    option("STACK", values.text(), "library versions: a stack of docker/pins.toml, or the article's own", "article"),
    option("BATCH_SIZES", values.numbers("different whole numbers", "1,8,64", least=1), "batch sizes, in place of the article's"),
    option("ITEMS", values.count(example=10_000), "number of texts of a workload"),
    option("TIMED_RUNS", values.count(most=10_000, example=10), "timed calls, in place of the article's"),
    option(
        "REPEATS", values.count(most=1000, example=5), "runs of each row, a fresh process each, in alternating order; stored runs count; 5 with calibrate", 1
    ),
    option("WEIGHTS", values.choice("hub", "random"), "the model's own weights, or seeded random ones", "hub"),
    option("SCALE", values.choice("full", "tiny"), "the model's full size, or a tiny one of its shape", "full"),
    option("DEVICE", values.choice("cuda", "cpu"), "the device that the model runs on", "cuda"),
    option("FORCE", values.switch(), "1 repeats stored runs", False),
    option("TIMEOUT_S", values.count(most=7 * 86400, example=3600), "time limit of a job, in seconds", 3600),
)

#: The options of how this machine, or a cluster, runs it.
OF_MACHINE = (
    option("GPU_IDS", values.numbers("different GPU numbers", "0,3", most=1023), "the GPUs, by their numbers in nvidia-smi"),
    option("ENGINE", values.choice(*UNUSED), "run jobs in containers of Docker, Podman, Apptainer or pyxis, or in an interpreter of this machine", "docker"),
    option("PYTHON_HOST", values.text(), "the interpreter of ENGINE=host; the kit replaces {backend} in the path by the backend's name", ""),
    option("WHEELS", values.folder(), "build images from the files of this folder, without a package index"),
    option("JOBS", values.count(most=64), "number of cases at once, each on GPUs or cores of its own; their runs are marked and judge nothing", 1),
    option("PLAN", values.switch(), "1 prints the rows, their runs and the expected time, and starts nothing", False),
    option("ALLOW_BUSY", values.switch(), "1 takes GPUs that others use", False),
    option("GPU_MODE", values.choice("auto", "cdi", "nvidia"), "how Docker is asked for GPUs", "auto"),
    option("KIT_MEMLOCK", values.switch(), "1 lets a container lock any amount of memory", False),
    option("SCHEDULER", values.choice("local", "slurm"), "run here, or as jobs of SLURM", "local"),
    option("PARTITION", values.text(), "SLURM's partition; slurm.toml may set the partition and the next four options", ""),
    option("ACCOUNT", values.text(), "SLURM's account", ""),
    option("QOS", values.text(), "SLURM's quality of service", ""),
    option("TIME", values.text(), "the limit of a task of SLURM, for example 04:00:00", ""),
    option("CONSTRAINT", values.text(), "the features of nodes that SLURM may choose", ""),
    MODELS,
    option("MODEL_PATH", values.folder(), "a folder with the model's own weights; the kit checks them and does not copy them"),
    RUNS,
    click.option("--receipt", type=values.folder(), hidden=True),
    click.option("--shared-with", type=values.count(most=64), hidden=True),
)

CHOICES = (*OF_ROWS, *OF_MACHINE)


def options_of(typed: Mapping[str, Any]) -> Options:
    """The Options of what was typed, by the names of CHOICES; raises UsageError for two values that contradict each other."""
    fields = {option: name for name, option in OPTION_NAMES.items()}
    names = {field.name for field in dataclasses.fields(Options)}
    chosen = {fields.get(name, name): value for name, value in typed.items() if value is not None}
    return Options(**{name: value for name, value in chosen.items() if name in names})


def measuring(command: Callable[[str, Options], int]) -> Verb:
    """Give a verb the options of a measurement, as one Options."""

    def with_options(**typed: Any) -> int:
        asked = options_of(typed)
        with signals.raised():  # so that containers and locks are let go
            _refuse_missing(asked)
            _heed_allocation(asked)
            return command(typed.get("backend") or typed.get("slug") or "", asked)

    with_options.__doc__ = command.__doc__
    return with_choices(with_options, CHOICES)


def with_choices(verb: Verb, choices: Sequence[Callable[[Verb], Verb]]) -> Verb:
    """Give a verb these options, which --help lists in their order."""
    for choice in reversed(choices):
        verb = choice(verb)
    return verb


def hiding(*names: str) -> Callable[[click.Command], click.Command]:
    """Leave options out of a verb's --help, because the verb refuses them; their errors say what to type instead."""

    def hidden(verb: click.Command) -> click.Command:
        for taken in verb.params:
            if isinstance(taken, click.Option) and taken.name in names:
                taken.hidden = True
        return verb

    return hidden


def _refuse_missing(asked: Options) -> None:
    """Raise UsageError for a typed place that is not there, before the machine is asked for anything.

    A plan may be of another machine, and the nodes of a cluster see places of their own.
    """
    if asked.plan or asked.scheduler == "slurm":
        return
    if asked.model_path:
        store.refuse_no_folder(asked.model_path)
    if asked.wheels:
        build.refuse_no_wheels(asked.wheels, "current" if asked.stack == "article" else asked.stack)
    if asked.python_host and "{backend}" not in asked.python_host:
        host.must_have_torch(Path(asked.python_host), UsageError)


def _heed_allocation(asked: Options) -> None:
    """Say which GPUs this process was given; raises PreflightError in a job over several nodes."""
    if asked.scheduler == "slurm":
        return  # this is not the machine that measures
    allocation.refuse_several_nodes()
    if asked.receipt and allocation.is_of_an_array():  # beside tasks on other nodes; the jobs of JOBS=n have receipts too, and one node
        locks.refuse_local(asked.runs)
        locks.refuse_local(asked.models)
    limits = ""
    if asked.device == "cuda":
        with contextlib.suppress(KitError):  # the first case reports it
            limits = gpus.limits()
    if limits:
        print(f"note: {limits}", file=sys.stderr)


@click.command
@click.argument("backend")
@measuring
def bench(backend: str, asked: Options) -> int:
    """Run the cases of a backend, or of all, in their pinned images."""
    backends = list(pins.load().backends) if backend == "all" else [backend]
    return _measure(backends, asked, every=False)


@hiding("article")
@click.command
@click.argument("slug")
@measuring
def article(slug: str, asked: Options) -> int:
    """Run all cases of an article in all variants."""
    if asked.article not in ("", slug):
        raise UsageError(f"ARTICLE is {asked.article!r} with article-{slug}, allowed is {slug!r}; try make article-{asked.article}")
    known = articles.slugs()
    if slug not in known:
        raise UsageError(f"there is no article {slug!r}, allowed are {', '.join(known)}; try make article-{nearest(slug, known)}")
    return _measure(articles.find(slug).backends, dataclasses.replace(asked, article=slug), every=True)


def _refuse_what_cannot_start(planned: Sequence[runner.Planned], asked: Options) -> None:
    """Raise the errors that the command itself would raise at once on any machine: PLAN=1 shows no plan that cannot start."""
    for one in planned:
        engines.refuse_without_image(one.image, asked)
    if there := permissions.in_the_way(asked.runs):
        raise UsageError(f"RUNS is {str(asked.runs)!r}, and {there}, allowed is a folder that can be written; try RUNS=/another/folder")
    if asked.scheduler == "slurm":
        site.resources(asked)


def _say_how_many_runs_a_verdict_needs(asked: Options) -> None:
    """Print a note where REPEATS is too small for typed claims that these runs may judge; not in a task of several, which may be one of the repeats."""
    if asked.claims and not asked.receipt and (asked.scale, asked.device, asked.jobs) == ("full", "cuda", 1):
        from scripts.stats import LEAST_RUNS  # which imports numpy

        if asked.repeats < LEAST_RUNS:
            print(f"note: a verdict needs {LEAST_RUNS} runs of each row, REPEATS is {asked.repeats}; try REPEATS={LEAST_RUNS}", file=sys.stderr)


def _refuse_claims_that_cannot_be_judged(planned: Sequence[runner.Planned]) -> None:
    """Raise KitError for a mistake in a claim's relations; otherwise only the report would find it, once everything is measured."""
    if claiming := {one.article.slug: one.article for one in planned if one.article.claims}:
        from scripts.verdicts import rules  # which imports numpy

        for article in claiming.values():
            rules.check(article)


def refuse_other_locks(planned: Sequence[runner.Planned], asked: Options) -> None:
    """Raise KitError for pins that were not locked. PYTHON_HOST has packages of its own and is not refused: the result names each difference."""
    if not asked.python_host:
        for backend, stack in dict.fromkeys((one.case.backend, one.stack) for one in planned):
            pins.load().image(backend, stack).refuse_other_lock()


def _measure(backends: list[str], asked: Options, every: bool) -> int:
    planned = plan.plan(backends, asked, every)
    plan.tell_kept_sizes(planned, asked)
    _refuse_claims_that_cannot_be_judged(planned)
    refuse_other_locks(planned, asked)
    _say_how_many_runs_a_verdict_needs(asked)
    if asked.plan:
        return _show_plan(planned, asked)
    if asked.scheduler == "slurm":
        return follow.perform(planned, asked)
    with contextlib.suppress(KitError):  # the row that needs the missing answer reports the error
        print(outlook.summary(list(outlook.rows_of(planned, asked))), file=sys.stderr)
    if asked.jobs > 1:
        code = several.perform(planned, asked)
        print(results.where_shown(asked.runs))
        return code
    return _one_after_another(planned, asked)


def _show_plan(planned: list[runner.Planned], asked: Options) -> int:
    _refuse_what_cannot_start(planned, asked)
    in_slurm = asked.scheduler == "slurm"
    at_once = follow.lines(follow.tasks_of(planned, asked)) if in_slurm else several.lines(planned, asked) if asked.jobs > 1 else ()
    print(*outlook.lines(planned, asked), *at_once, sep="\n")
    return 0


def _one_after_another(planned: list[runner.Planned], asked: Options) -> int:
    """Run the cases and return the exit code of the worst run; the statuses go into the receipt for a command that waits for this one."""
    records = rounds.run_all(planned, asked, keep_going=len(planned) > 1)
    if asked.receipt:
        write_whole(asked.receipt, json.dumps({record.id: record.status for record in records}))
    if records:
        print(results.where_shown(asked.runs))
    return max((outcome.exit_code(record.status) for record in records), default=0)


#: The fields of Options that a verb for one call of a case refuses.
OF_SEVERAL_CALLS = ("plan", "jobs", "claims", "items", "repeats", "scheduler", *OF_SLURM)


def refuse_more_than_one_call(asked: Options, verb: str, planning: str, here: str, does: str) -> None:
    """Raise UsageError for an option that a verb for one call of a case would ignore. The error shows the targets `planning` and `here`, with what else
    was typed."""
    again = f"make {here}{typed_with_make(asked, OF_SEVERAL_CALLS)}"
    if asked.plan:
        of_rows = f"make {planning}{typed_with_make(asked, ('profiler', *OF_SEVERAL_CALLS))} PLAN=1"
        raise UsageError(f"PLAN is 1 with {verb}, allowed only with bench and article; try {again}, which starts, or {of_rows}")
    if asked.jobs > 1:
        raise UsageError(f"JOBS is {asked.jobs} with {verb}, allowed only with bench and article; leave JOBS out")
    if asked.scheduler == "slurm":
        raise UsageError(f"SCHEDULER is slurm with {verb}, allowed only with bench and article; try salloc, and {again} within it")
    if asked.claims:
        raise UsageError(f"CLAIMS is {','.join(asked.claims)!r} with {verb}, which {does} one call of each case; try CASES instead")
    if asked.items:
        raise UsageError(f"ITEMS is {asked.items} with {verb}, which {does} one call; leave ITEMS out")
    if asked.repeats > 1:
        raise UsageError(f"REPEATS is {asked.repeats} with {verb}, which {does} one call; leave REPEATS out")


@hiding(*OF_SEVERAL_CALLS)
@click.command
@click.argument("backend")
@PROFILER
@measuring
def profile(backend: str, asked: Options) -> int:
    """Profile one call of each case of a backend."""
    plan.refuse_unknown_backends([backend], "profile")
    refuse_more_than_one_call(asked, "profile", f"bench-{backend}", f"profile-{backend}", "profiles")
    planned = plan.plan([backend], asked, every=False, verb="profile")
    sizes = asked.batch_sizes or [None]
    profiled = [dataclasses.replace(case, profiler=asked.profiler, batch_size=size) for case in planned for size in sizes]
    worst = max((_profile(case, asked) for case in profiled), default=0)
    print(results.where_shown(asked.runs))
    return worst


def _profile_line(record: results.Record) -> str:
    """The outcome of a profile, as one line for the terminal."""
    figures = record.figures.get("profile")
    if record.status != "ok" or not figures:
        return f"{record.status}: {record.reason}"
    return f"{figures['new_tokens']} new tokens in {figures['wall_ms']:.2f} ms, {figures['profiled_wall_ms']:.2f} ms under {figures['profiler']}"


def _profile(planned: runner.Planned, asked: Options) -> int:
    """Profile a case, print the outcome and the files, and return the exit code."""
    print(planned.title, file=sys.stderr, flush=True)
    record = runner.perform(planned, asked)
    folder: Path = asked.runs / record.id
    log = [line for line in [outcome.log_line(record, asked.runs)] if line]
    kept = [str(path) for path in (folder / name for name in nsight.KEPT) if path.exists()]
    print("\n  ".join([f"  {_profile_line(record)}", *log, *kept, str(folder / "result.json")]), flush=True)
    return outcome.exit_code(record.status)
