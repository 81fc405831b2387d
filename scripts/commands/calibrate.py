"""calibrate: how steady this machine is, and what the kit itself takes."""

import dataclasses
import sys

import click
from click.core import ParameterSource

from scripts import articles, results, stats
from scripts.commands.measure import hiding, measuring
from scripts.errors import KitError, UsageError
from scripts.machine import cores
from scripts.results import marks
from scripts.run import cost, outcome, plan, rounds, several
from scripts.run.engines import demo_environments
from scripts.run.options import OF_SLURM, Options, typed_with_make
from scripts.run.runner import Planned
from scripts.units import counted
from scripts.verdicts import calibration, row_groups
from scripts.verdicts.calibration import EMPTY, KERNEL, Calibration
from scripts.verdicts.row import CALIBRATION


@hiding("article", "cases", "claims", "items", "weights", "model_path", "plan", "scheduler", *OF_SLURM)
@click.command
@measuring
def calibrate(slug: str, asked: Options) -> int:
    """Time an empty call and a fixed kernel, in five fresh processes each; print the noise floor of this machine.

    With JOBS=n the kernel then runs n times at once; how much longer it takes shows what other jobs cost here.
    """
    _refuse_other_cases(asked)
    # The engine `host` brings this stack along, so the user need not type one.
    own = demo_environments.STACK if asked.engine == "host" and asked.stack == "article" and not asked.python_host else asked.stack
    repeats = asked.repeats if asked.repeats > 1 else stats.LEAST_RUNS
    asked = dataclasses.replace(asked, article=CALIBRATION, weights="random", stack=own, repeats=repeats)
    _refuse_what_does_not_measure_here(asked)
    planned = plan.plan(articles.find(CALIBRATION).backends, asked, every=True)
    kernel = [case for case in planned if case.case.name == KERNEL]
    several.cores_of_one(kernel * asked.jobs, asked)  # raises for too many JOBS before anything runs
    measured = rounds.run_all(planned, dataclasses.replace(asked, jobs=1), keep_going=True)
    failed = max((outcome.exit_code(record.status) for record in measured), default=1)
    lines = report_lines([record for record in results.load_all(asked.runs)[0] if record.job.article == CALIBRATION])
    if not lines:
        raise KitError("no run of the calibration ended well; its reason stands above, and its log beside its result")
    if asked.jobs > 1:
        code, of_others = beside_others(kernel, asked)
        failed, lines = max(failed, code), lines + of_others
    print(*lines, sep="\n")
    print(results.where_shown(asked.runs), file=sys.stderr)
    return failed


def _refuse_what_does_not_measure_here(asked: Options) -> None:
    """Raise UsageError for PLAN=1 and SCHEDULER=slurm; the error shows the command of `article` that plans, or submits, these very rows."""
    for pair, typed in (("PLAN=1", asked.plan), ("SCHEDULER=slurm", asked.scheduler == "slurm")):
        if typed:
            again = f"make article-{CALIBRATION}{typed_with_make(asked, ('article',))}"
            raise UsageError(f"{pair} is typed with calibrate, allowed only with bench and article; try {again}")


def _refuse_other_cases(asked: Options) -> None:
    typed_weights = asked.weights if click.get_current_context().get_parameter_source("weights") != ParameterSource.DEFAULT else "random"
    for name, value, only in (("WEIGHTS", typed_weights, "random"), ("MODEL_PATH", str(asked.model_path or ""), "")):
        if value != only:
            raise UsageError(f"{name} is {value!r} with calibrate, which loads no model; leave {name} out")
    for name, names in (("CASES", asked.cases), ("CLAIMS", asked.claims)):
        if names:
            raise UsageError(f"{name} is {','.join(names)!r} with calibrate, which runs all cases of {CALIBRATION}; leave {name} out")
    if asked.article not in ("", CALIBRATION):
        raise UsageError(f"ARTICLE is {asked.article!r} with calibrate, allowed is {CALIBRATION!r}; leave ARTICLE out")


def beside_others(kernel: list[Planned], asked: Options) -> tuple[int, list[str]]:
    """Run the kernel alone, then JOBS times at once, on as many cores each: (exit code, lines to print). The runs lie beside the other results."""
    apart = dataclasses.replace(asked, folder=asked.runs.parent / f"beside-{asked.jobs}" / "runs")
    with cores.kept_on(several.cores_of_one(kernel * asked.jobs, apart)):
        rounds.run_all(kernel, dataclasses.replace(apart, jobs=1), keep_going=True)
    code = several.perform(kernel * asked.jobs, dataclasses.replace(apart, force=True))
    nothing = [f"JOBS is {asked.jobs}, and this machine has room for one job at a time, so no job ran beside another"]
    return code, lines_of_others(results.load_all(apart.runs)[0]) or nothing


def lines_of_others(records: list[results.Record]) -> list[str]:
    """How many times as long the kernel takes beside others as alone, for each engine, stack and device."""
    lines = []
    for calibrated in calibration.of_groups(row_groups.build(records, articles.without_mistakes())):
        for others, ratio in calibrated.longer_beside().items():
            words = f"beside {counted(others, 'other job')} the kernel took {stats.in_words(ratio, least=2)} times as long as alone"
            lines += [calibrated.group.heading, f"  {words} ({len(calibrated.beside)} and {calibrated.runs} runs)"]
    return lines


def report_lines(records: list[results.Record]) -> list[str]:
    """What the runs of a calibration say of their machines, a block for each engine, stack and device."""
    groups = row_groups.build(records, articles.without_mistakes())
    empty = {calibrated.group.slug: calibrated for calibrated in calibration.of_groups(groups, EMPTY)}
    lines = []
    for calibrated in calibration.of_groups(groups, KERNEL):
        lines += [calibrated.group.heading, f"  fixed kernel       {_spread(calibrated)}", f"  noise floor        {_floor(calibrated)}"]
        if nothing := empty.get(calibrated.group.slug):
            lines += [f"  the kit's clock    {_spread(nothing)}", f"  the kit around it  {_around(nothing)}"]
    return lines


def _spread(calibrated: Calibration) -> str:
    spread = f"median {calibrated.median_ms:.4g} ms, MAD {stats.percent(calibrated.mad_share)} %, p99 {calibrated.p99_ms:.4g} ms"
    return f"{spread} ({len(calibrated.calls_ms)} calls of {calibrated.runs} runs)"


def _floor(calibrated: Calibration) -> str:
    if calibrated.noise_floor is None:
        undisturbed = sum(not marks.disturbed_by(run) for run in calibrated.alone)
        return f"not known: {counted(undisturbed, 'undisturbed run')}, {stats.LEAST_RUNS} are needed; type REPEATS={2 * stats.LEAST_RUNS}"
    disturbed = sum(bool(marks.disturbed_by(run)) for run in calibrated.row.ok_runs)
    beside = f"; {disturbed} of {len(calibrated.row.ok_runs)} runs are marked, so the machine is not quiet" if disturbed else ""
    return f"{stats.percent(calibrated.noise_floor)} %: rows of {calibrated.runs} runs that lie nearer to each other cannot be told apart{beside}"


def _around(nothing: Calibration) -> str:
    parts = cost.beside_calls(nothing.row.record)
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())
