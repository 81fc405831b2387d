"""report, compare: write pages from the stored results."""

import sys
from pathlib import Path

import click

from scripts import results, surroundings
from scripts.commands import values
from scripts.commands.values import RUNS, option
from scripts.errors import KitError, UsageError
from scripts.report import compared_runs, compared_verdicts, comparison, document
from scripts.verdicts import row_groups

OUT = option("OUT", values.folder(), "the folder of the report; by default the one that holds runs/, or for another name of RUNS <name>-report beside it")


@click.command
@RUNS
@OUT
@option("FORMAT", values.choice("md", "html"), "html writes a site too", "md")
@option("COST_PER_GPU_HOUR", values.text(), "a price, in any currency: tables of energy then tell what a million tokens cost", "")
@click.option("--check", is_flag=True, help="write nothing; fail where the report, a plot or a number in a page differs from the results")
@click.option("--rows", is_flag=True, help="a page for each row too, as in a site and a bundle")
def report(runs: Path | None, out: Path | None, format: str, cost_per_gpu_hour: str, check: bool, rows: bool) -> None:
    """Write REPORT.md and its plots from a folder of results."""
    surroundings.use_price("" if check else cost_per_gpu_hour)
    if check:
        document.check_pages()
        return
    surroundings.current().cost_per_gpu_hour  # noqa: B018  a wrong price is told before anything is read
    if runs:
        results.must_hold_runs(runs)
    shown = runs or results.RUNS
    folder = out or results.report_of(shown)
    if format == "html":
        from scripts.share import runs_place, site  # its libraries serve nothing else

        runs_place.within(folder, shown)  # refused before anything is written
        site.refuse_foreign(folder)
    path = document.write(shown, folder, with_rows=rows)
    if not runs and results.any_run(results.TRIALS):
        print(f"trials are not in this report; {results.where_shown(results.TRIALS)}", file=sys.stderr)
    if format == "html":
        print(site.build(path.parent, shown))


@click.command
@option("A", values.text(), "a run, a folder of results, or a git revision", "")
@option("B", values.text(), "the other run, folder or revision", "")
@option("ACROSS", values.text(), "compare rows that differ in these alone: stack, device, host, engine, weights", "")
@option("THRESHOLD", values.text(), "fail where a row of B is slower by more than this many per cent, with its whole interval", "")
@option("ALL_ROWS", values.switch(), "1 lists the rows that one side alone has, however many they are", False)
@RUNS
def compare(a: str, b: str, across: str, threshold: str, all_rows: bool, runs: Path | None) -> int:
    """Compare two runs, folders or git revisions side by side."""
    for name, typed in (("A", a), ("B", b)):
        if not typed:
            raise UsageError(f"{name} is missing; try make compare A=HEAD~1 B=reports/runs")
    differing, percent = comparison.across_of(across), comparison.threshold_of(threshold)
    before, after = (compared_runs.of(name, typed, runs or results.RUNS) for name, typed in (("A", a), ("B", b)))
    if len(before) == len(after) == 1:  # two single runs are compared whatever they differ in
        differing = list(comparison.ACROSS)
    known = comparison.articles_told()
    of_a, of_b = (row_groups.build(side, known) for side in (before, after))
    differences = comparison.compare(of_a, of_b, differing)
    verdicts = compared_verdicts.table(compared_verdicts.pairs(of_a, of_b, known))
    matching = comparison.across_that_match(of_a, of_b) if comparison.is_without_a_pair(differences) else []
    print(comparison.markdown(differences, all_rows, verdicts, matching))
    if percent is not None and not any(difference.is_judged for difference in differences):
        why = "no row of both may judge, as the column “why” says; five runs of each may: REPEATS=5"
        if comparison.is_without_a_pair(differences):
            why = f"no row of {a} has a comparable row in {b}; try ACROSS=stack, device, host, engine or weights"
        raise KitError(f"THRESHOLD={threshold} judged nothing: {why}")
    return int(percent is not None and any(difference.is_slower_by(percent) for difference in differences))
