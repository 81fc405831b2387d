"""What a setting's page says about the noise of its machine, and about claims for which its runs are too noisy."""

from collections.abc import Iterator, Sequence

from scripts import stats
from scripts.report import rerun_command
from scripts.report.cells import percent
from scripts.report.text import Markdown, blocks, lines, link
from scripts.verdicts import calibration
from scripts.verdicts.calibration import Calibration
from scripts.verdicts.judging import Judged
from scripts.verdicts.parts import SIZE_FACTOR, UNDECIDED, Part
from scripts.verdicts.row_groups import Group

#: The most runs that a page suggests: nobody repeats a row more often.
MOST_RUNS = 1000

#: An undecided part whose runs scatter.
TOO_FEW = Markdown("- Claim {}, {}: {} runs are too noisy for it. If ratio and scatter stay, {} would decide it; so may a quieter machine (`make calibrate`).")

#: An undecided part with a ratio over several sets of GPUs: nobody knows how another mixture of them comes out.
MIXTURE = Markdown(
    "- Claim {}, {}: undecided over runs on {} sets of GPUs, whose ratios differ by more than {} times. Five runs of each row on one machine, "
    f"in a folder of their own (`RUNS={rerun_command.OWN_RUNS}`), tell more than more runs of the mixture."
)


def section(group: Group, known: Sequence[Calibration], judged: Sequence[Judged]) -> Markdown:
    """The noise floor of the group's machine where `make calibrate` measured it, and what would decide each undecided part; may be empty."""
    of_machine = calibration.of_machine(known, group)
    return blocks(_floor(of_machine, group) if of_machine else Markdown(), lines(*_too_noisy(judged)))


def _floor(of_machine: Calibration, group: Group) -> Markdown:
    floor, calls = of_machine.noise_floor, len(of_machine.calls_ms)
    median, p99 = stats.significant(of_machine.median_ms), stats.significant(of_machine.p99_ms)
    spread = f"{median} ms, MAD {percent(of_machine.mad_share)} %, 99th percentile {p99} ms, {calls} calls of {of_machine.runs} runs"
    calibrated = link("calibration", f"#{of_machine.group.slug}")
    where = of_machine.machine_of(group)
    if floor is None:
        words = Markdown("A fixed kernel took on {} in the median {} ({}); {} runs tell a noise floor.")
        return words.format(where, spread, calibrated, stats.LEAST_RUNS)
    words = Markdown(
        "**Noise floor of {}: {} %.** Two rows of a fixed kernel, of {} runs each, cannot be told apart below this difference. "
        "Rows that wait for their host scatter more. Median time of the kernel: {} ({})."
    )
    return words.format(where, percent(floor), of_machine.runs, spread, calibrated)


def _too_noisy(judged: Sequence[Judged]) -> Iterator[Markdown]:
    for claim in judged:
        for part in claim.verdict.parts:
            yield from _what_would_decide(claim, part)


def _what_would_decide(claim: Judged, part: Part) -> Iterator[Markdown]:
    if part.word != UNDECIDED or not (part.ratio and part.cases and part.where):
        return
    if part.is_of_a_mixture:
        yield MIXTURE.format(claim.claim["id"], part.name, len(part.on_gpus), SIZE_FACTOR)
        return
    needed = stats.runs_to_decide(part.ratio, part.runs, part.where.ends)
    if needed:
        how = f"about REPEATS={needed}" if needed <= MOST_RUNS else f"only more than {MOST_RUNS:,} runs"
        yield TOO_FEW.format(claim.claim["id"], part.name, part.runs, how)
