"""The fastest system for each model and GPU, for one text and for each batch up to LARGEST; long prompts apart.

Rows of different groups are never compared. Of the groups that measured a model in one batch size, a line shows the first by this order:

    1. its calls make further tokens
    2. it compares several systems
    3. verdicts rest on its weights
    4. its fastest row has enough undisturbed runs
    5. its fastest row is the fastest of all

A faster row of another group is named beside the line; if it has too few runs, so is the fastest with enough. A batch whose tokens take longer than
those of a smaller one has no line, because the faster systems did not run in it. A system that did not run in a batch and is faster in a smaller one
is named beside the line. Rows with several answers to one text are left out.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.models import weights
from scripts import pins, stats
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, lines, link, prose
from scripts.report.verdict_marks import SIGNS
from scripts.units import counted
from scripts.verdicts import limits, lookup, rates, token_times
from scripts.verdicts.parts import NOT_TESTED
from scripts.verdicts.row import Row, gpus
from scripts.verdicts.row_groups import Group

#: The batch size that the articles' tables end with.
LARGEST = 128
#: Prompts of so many tokens or more are long: reading them takes a good part of a call.
LONG_PROMPT = 1024

HEADING = Markdown("## Which system is the fastest?")
LEAD = Markdown("For each model, GPU and batch size, the fastest system of one setting (same packages, variant, weights, kind of machine).")
TIMES = Markdown(
    f"- *batch*: the sequences of a call, at most {LARGEST}. A batch whose tokens take longer than those of a smaller one has no line.\n"
    "- *prompt + new tokens*: of one sequence, the prompt with its padding.\n"
    "- *ms/token*: the time of a whole call, prefill included, over the new tokens of all its sequences."
)
SHARE = "% of nominal memory bandwidth"
SHARE_NOTE = Markdown(
    f"- *{SHARE}*: the time to read a decode step's data at the GPU's nominal bandwidth, over the time of the step; 100 % is the limit. "
    "The linked page has the GB of a step, so the limit of another GPU, and the time of the matrix products alone (*Distance to the limit*)."
)
#: Between the names of a cell.
OR = " or "
OR_NOTE = Markdown(f"- Two names in a cell: {stats.LEAST_RUNS} runs cannot tell them apart.")
NEXT = "times as fast as the second (95 % interval)"
NEXT_NOTE = Markdown(f"- *the second*: the second fastest system of the setting. Rows of fewer than {stats.LEAST_RUNS} runs have no interval.")
FASTEST = "fastest system"
ELSEWHERE = "faster in another setting"
ELSEWHERE_NOTE = Markdown(
    f"- *{ELSEWHERE}*, ms/token: a line shows a setting that compares several systems, if there is one, even where a row of another setting is faster. That "
    f"row stands here: the fastest with {stats.LEAST_RUNS} runs, then the fastest of all. Unless prompts have {LONG_PROMPT} tokens or more, its prompts may be "
    "shorter. *In batch …*: a system that did not run in the line's batch and is faster in a smaller one than the line's (in brackets)."
)
#: Engines of today that a reader will look for.
NOT_MEASURED = ("SGLang", "TensorRT-LLM")
SYSTEMS = Markdown(
    "- Systems (what a case changes in one, such as its attention, stands under *Its rows* on its article's page; "
    "the reference is plain transformers in float32):"
)
NOTE = Markdown(
    "- *systems compared*: those of the setting, on GPUs of one model, not always the same ones. Lines do not compare GPU models. "
    f"Engines without a backend of the kit, such as {' and '.join(NOT_MEASURED)}, are in no line.\n"
    f"- {SIGNS[NOT_TESTED]}: the fastest row, or that of the second system, has fewer than {stats.LEAST_RUNS} runs."
)
RECIPE_1 = "recipe 1"
RECIPE_1_NOTE = Markdown(f"- *{RECIPE_1}*: random weights with which the output check sees too little for a verdict; rows with later weights go first.")


@dataclass(frozen=True)
class Timed:
    """A row with a right output, by ms per new token of its longest calls."""

    group: Group
    row: Row
    ms: float

    @property
    def prompt_tokens(self) -> int:
        """Of one sequence, with its padding."""
        return limits.prompt_tokens(self.row)

    @property
    def has_long_prompt(self) -> bool:
        return self.prompt_tokens >= LONG_PROMPT

    @property
    def question(self) -> tuple[str, str]:
        """What the rows of one line of the table share: GPU and model. Models of one shape count as one."""
        return self.group.key.model, _config(self.row.shape)


@dataclass(frozen=True)
class Line:
    """A model on a GPU in a batch: the rows of one setting that are `compared`, those that are faster in other settings, and else a row that is faster in
    a smaller batch, with the row that it beats there.
    """

    model: str
    gpu: str
    compared: Sequence[Timed]
    faster: Sequence[Timed]
    in_smaller: Sequence[Timed]
    prompt_tokens: int

    @property
    def best(self) -> Timed:
        return _best(self.compared)

    @property
    def batch_size(self) -> int:
        return self.best.row.batch_size

    @property
    def elsewhere(self) -> Markdown:
        return _in_smaller(*self.in_smaller) if self.in_smaller else Markdown("; ").join(map(_row_elsewhere, self.faster))

    @property
    def named(self) -> Sequence[Timed]:
        """The rows whose systems the line names."""
        return [*_firsts(self.compared), *_next(self.compared), *self.faster, *self.in_smaller]


def section(groups: Sequence[Group]) -> Markdown:
    """A line for each model, GPU and batch; empty where no row of full size ran on a GPU."""
    timed = [one for group in groups if not group.cannot_judge() for one in _timed(group)]
    found = [line for question in {one.question for one in timed} for line in _lines([one for one in timed if one.question == question])]
    ordered = sorted(found, key=lambda line: (line.model, line.gpu, line.best.has_long_prompt, line.batch_size))
    shown = table(_columns(ordered), ordered)
    notes = {
        TIMES: True,
        SHARE_NOTE: SHARE in shown,
        OR_NOTE: OR in shown,
        NEXT_NOTE: NEXT in shown,
        ELSEWHERE_NOTE: ELSEWHERE in shown,
        NOTE: True,
        RECIPE_1_NOTE: RECIPE_1 in shown,
        _systems_note(ordered): True,
        cells.DISTURBED_NOTE: cells.DISTURBED in shown,
    }
    return blocks(HEADING, LEAD, shown, lines(*(note for note, is_needed in notes.items() if is_needed))) if found else Markdown()


def _systems_note(ordered: Sequence[Line]) -> Markdown:
    """A line for each backend with the systems that the table names: a system's name does not tell what it is."""
    backends, found = pins.load().backends, dict[str, set[str]]()
    for one in (one for line in ordered for one in line.named):
        found.setdefault(one.row.record.job.backend, set()).add(one.row.case)
    told = [(", ".join(sorted(cases)), prose(backends[name]["summary"]) if name in backends else name) for name, cases in sorted(found.items())]
    return lines(SYSTEMS, *(Markdown("    - {}: {}").format(*one) for one in told))


def _lines(of_model: Sequence[Timed]) -> Iterator[Line]:
    models, gpu = _models(of_model), of_model[0].question[0]
    for is_long in (False, True):
        fastest_ms = math.inf
        asked = [one for one in of_model if one.has_long_prompt == is_long]
        for size in sorted({one.row.batch_size for one in asked if one.row.batch_size <= LARGEST}):
            leading = _leading([one for one in asked if one.row.batch_size == size])
            if _best(leading).ms < fastest_ms:
                fastest_ms = _best(leading).ms
                same_size = [one for one in of_model if one.row.batch_size == size and one.has_long_prompt >= is_long]
                faster = _faster_elsewhere(leading, same_size)
                in_smaller = [] if faster else _faster_in_smaller(leading, asked)
                # of padded prompts, earlier results have the tokens of the first prompt only
                prompts = [one.prompt_tokens for one in same_size if _asks_alike(one, leading[0])]
                yield Line(models, gpu, leading, faster, in_smaller, max(prompts))


def _asks_alike(one: Timed, other: Timed) -> bool:
    """Are both rows of one article, with short prompts or with long ones?"""
    return one.group.key.article == other.group.key.article and one.has_long_prompt == other.has_long_prompt


def _columns(lines: Sequence[Line]) -> list[Column[Line]]:
    firsts = {(line.model, line.gpu): line for line in reversed(lines)}

    def is_first(line: Line) -> bool:
        """Model and GPU are written only in the first of their lines."""
        return firsts[line.model, line.gpu] is line

    return [
        Column("model", lambda line: line.model if is_first(line) else "", words=True),
        Column("GPU", lambda line: line.gpu if is_first(line) else "", words=True),
        Column("batch", lambda line: line.batch_size),
        Column("prompt + new tokens", lambda line: f"{line.prompt_tokens} + {line.best.row.new_tokens[-1]}"),
        Column(FASTEST, lambda line: _names(line.compared), words=True),
        Column("ms/token", lambda line: _time(line.best)),
        Column("GPUs", lambda line: line.best.row.count),
        Column("runs", lambda line: _runs_of(line.best)),
        Column(ELSEWHERE, lambda line: line.elsewhere or NONE, when=any(line.elsewhere for line in lines), words=True),
        Column("systems compared", lambda line: _systems(line.compared)),
        Column(NEXT, lambda line: _lead(line.compared) or NONE, when=any(_lead(line.compared) for line in lines), words=True),
        Column(SHARE, lambda line: _share_of_limit(line.best.row) or NONE, when=any(_share_of_limit(line.best.row) for line in lines)),
    ]


def _config(shape: str) -> str:
    """The configuration of a shape, equal for models that differ in their weights alone; the name of a shape that the kit does not know."""
    return json.dumps(weights.SHAPES[shape], sort_keys=True) if shape in weights.SHAPES else shape


def _models(timed: Sequence[Timed]) -> str:
    """ "bloom-7b1 and bloomz-7b1 (one shape)"."""
    names = sorted({one.row.shape for one in timed})
    return " and ".join(names) + (" (one shape)" if len(names) > 1 else "")


def _leading(timed: Sequence[Timed]) -> Sequence[Timed]:
    """The rows of the group that a line shows, by the module's order; `timed`: one or more rows of one batch size."""
    by_group: dict[str, list[Timed]] = {}
    for one in timed:
        by_group.setdefault(one.group.slug, []).append(one)

    def rank(timed: Sequence[Timed]) -> tuple[float, ...]:
        best = _best(timed)
        return _decodes(timed), _systems(timed) > 1, _can_judge(timed), _is_tested(best), -best.ms

    return max(by_group.values(), key=rank)


def _faster_in_smaller(compared: Sequence[Timed], timed: Sequence[Timed]) -> Sequence[Timed]:
    """A row of a system that did not run in the line's batch and beats the line's fastest system in a smaller batch above 1, and the row that it beats there;
    [] where there is none. The largest such batch counts.
    """
    best, same = _best(compared), _no_worse(timed, compared)
    ran = {one.row.case for one in same if one.row.batch_size == best.row.batch_size}
    for size in sorted({one.row.batch_size for one in same if 1 < one.row.batch_size < best.row.batch_size}, reverse=True):
        own = [one for one in same if one.row.batch_size == size and one.row.case == best.row.case]
        others = [one for one in same if one.row.batch_size == size and one.row.case not in ran]
        if own and others and (other := _best(others)).ms < (beaten := _best(own)).ms:
            return [other, beaten]
    return []


def _in_smaller(other: Timed, beaten: Timed) -> Markdown:
    """ "in batch 32 vllm-fp16: 0.214, 1 run (ds-inference: 0.534, 3 runs)"."""
    times = _link(other), stats.significant(other.ms), _runs_in_words(other), beaten.row.case, stats.significant(beaten.ms), _runs_in_words(beaten)
    return Markdown("in batch {} {}: {}, {} ({}: {}, {})").format(other.row.batch_size, *times)


def _names(compared: Sequence[Timed]) -> Markdown:
    """ "deepspeed or transformers", where the runs cannot tell the second from the first."""
    best, *alike = _firsts(compared)
    name = link(OR.join([best.row.case, *sorted({one.row.case for one in alike})]), f"#{best.group.slug}")
    are_tested = all(map(_is_tested, (best, *_next(compared))))
    return name if are_tested else Markdown(f"{SIGNS[NOT_TESTED]} ") + name


def _firsts(compared: Sequence[Timed]) -> Sequence[Timed]:
    """The fastest row, and those of other systems that the runs cannot tell from it."""
    best = _best(compared)
    return [best, *(one for one in compared if one.row.case != best.row.case and _alike(one, best))]


def _next(compared: Sequence[Timed]) -> Sequence[Timed]:
    """The fastest row of another system; [] where the setting has one system."""
    others = [one for one in compared if one.row.case != _best(compared).row.case]
    return [_best(others)] if others else []


def _lead(compared: Sequence[Timed]) -> str:
    """ "1.07 (1.03 to 1.11) × vllm, 5 runs": by the times of their calls, which make equally many tokens; "" without a second system."""
    return "; ".join(f"{stats.in_words(_ratio(other, _best(compared)))} × {other.row.case}, {_runs_in_words(other)}" for other in _next(compared))


def _time(one: Timed) -> str:
    return stats.significant(one.ms) + (" with the prompt" if one.row.new_tokens[-1] == 1 else "")


def _share_of_limit(row: Row) -> str:
    """ "50": the share of the memory's nominal rate, which a row without a probe has too; "" where it is not known."""
    distance = limits.steps(row)
    share = distance.bandwidth_share(distance.nominal) if distance else None
    return stats.percent(share) if share is not None else ""


def _faster_elsewhere(compared: Sequence[Timed], timed: Sequence[Timed]) -> Sequence[Timed]:
    """Of the rows whose calls and weights are no worse: the fastest with enough runs, then the fastest of all; [] where none is faster."""
    faster = [one for one in _no_worse(timed, compared) if one.ms < _best(compared).ms]
    if not faster:
        return []
    fastest, tested = _best(faster), [one for one in faster if _is_tested(one)]
    first = [_best(tested)] if tested and _best(tested) is not fastest else []
    return [*first, fastest]


def _row_elsewhere(one: Timed) -> Markdown:
    """ "vllm: 3.46, 2 GPUs, 5 runs"."""
    return Markdown("{}: {}, {}, {}").format(_link(one), stats.significant(one.ms), gpus(one.row.count), _runs_in_words(one))


def _link(one: Timed) -> Markdown:
    return link(one.row.case, f"#{one.group.slug}")


def _runs_in_words(one: Timed) -> str:
    """ "5 runs"."""
    return cells.runs(counted(_runs(one), "run"), one.row, one.row.new_tokens[-1])


def _no_worse(timed: Sequence[Timed], compared: Sequence[Timed]) -> Sequence[Timed]:
    """The rows whose calls and weights tell as much as those of the compared rows."""
    return [one for one in timed if _decodes([one]) >= _decodes(compared) and _can_judge([one]) >= _can_judge(compared)]


def _alike(one: Timed, best: Timed) -> bool:
    """Do both use as many GPUs, and does the interval of their ratio over runs hold 1? Rows of too few runs have no interval; the table has their number."""
    return one.row.count == best.row.count and _ratio(one, best).holds(1)


def _ratio(one: Timed, best: Timed) -> stats.Estimate:
    """The time of the one row's calls over that of the best row's."""
    above, below = (timed.row.run_means_ms(timed.row.new_tokens[-1]) for timed in (one, best))
    return stats.ratio_over_runs(above, below)


def _runs(one: Timed) -> int:
    """How many of the row's runs count."""
    return len(one.row.runs_of(one.row.new_tokens[-1]))


def _is_tested(one: Timed) -> bool:
    """Has the row enough undisturbed runs?"""
    return len(one.row.undisturbed(one.row.new_tokens[-1])) >= stats.LEAST_RUNS


def _runs_of(best: Timed) -> str:
    """ "5", or "5, recipe 1" where the fastest row has weights of that recipe."""
    return cells.runs(f"{_runs(best)}", best.row, best.row.new_tokens[-1]) + ("" if _can_judge([best]) else f", {RECIPE_1}")


def _best(timed: Sequence[Timed]) -> Timed:
    return min(timed, key=lambda one: one.ms)


def _decodes(timed: Sequence[Timed]) -> bool:
    """Do the calls make further tokens? The time of a prompt and one token is another question."""
    return all(one.row.new_tokens[-1] > 1 for one in timed)


def _can_judge(timed: Sequence[Timed]) -> bool:
    """Do these rows have weights that verdicts rest on?"""
    return all(lookup.weights_can_judge(one.row) for one in timed)


def _systems(timed: Sequence[Timed]) -> int:
    return len({one.row.case for one in timed})


def _timed(group: Group) -> Iterator[Timed]:
    """For each model, the group's rows with the most tokens per call: there the prompt's part is smallest, and short calls are another question."""
    calls = [row for row in group.rows if row.status == "ok" and row.new_tokens and not row.is_workload and row.sequences == row.batch_size]
    right = [row for row in calls if row.output_is_right]
    longest: dict[object, int] = {}
    for row in right:
        longest[row.shape] = max(row.new_tokens[-1], longest.get(row.shape, 0))
    for row in right:
        if row.new_tokens[-1] == longest[row.shape] and not row.is_wrong_when_padded and (ms := _ms_per_token(row)):
            yield Timed(group, row, ms)


def _ms_per_token(row: Row) -> float | None:
    """Counts the tokens that were really made, where the row tells them."""
    corrected = token_times.ms_per_token(row, "corrected")
    if corrected:
        return corrected.value
    per_s = rates.tokens_per_s(row)
    return 1000 / per_s if per_s else row.summary(row.new_tokens[-1]).mean / (row.new_tokens[-1] * row.batch_size)
