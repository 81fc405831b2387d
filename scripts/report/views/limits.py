"""How far each row is from the limit of its GPUs: bytes that a token must read, operations that a prompt needs, the products alone."""

from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, lines
from scripts.report.view import View
from scripts.units import GB
from scripts.verdicts import limits
from scripts.verdicts.limits import Distance, Rates
from scripts.verdicts.row_groups import Group

TOKENS = Markdown(
    "What a token must read from memory, and how long the reading takes. *Roof*: the rate at which the run's own GPU read after the calls. Readings of one GPU "
    "differ by up to a third, so compare rows by the share of the nominal rate."
)
PROMPTS = Markdown("What a prompt must compute, and how long the computing takes.")


def section(group: Group, article: Article | None) -> Markdown:
    of_rows = [(row, limits.steps(row)) for row in group.rows]
    steps = [distance for _, distance in of_rows if distance]
    prompts = [distance for row in group.rows if (distance := limits.prompt(row))]
    parts = [(TOKENS, table(_step_columns(group, steps), steps)), (PROMPTS, table(_prompt_columns(group, prompts), prompts))]
    told = ((reason, row) for row, distance in of_rows for reason in _reasons((distance.run if distance else row).figures))
    reasons = [Markdown("- {}: no {}: {}").format(", ".join(rows), words, reason) for (words, reason), rows in cells.alike(told).items()]
    return blocks(*(part for words, of_table in parts if of_table for part in (words, of_table)), lines(*reasons))


def _reasons(figures: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """(the probe, the reason) for each probe that a run was asked for and does not have."""
    names = {"roof": "roof", "products": "products alone", "token_times": "times of tokens"}
    return [(words, figures[name]["reason"]) for name, words in names.items() if (figures.get(name) or {}).get("reason")]


def _first(group: Group) -> list[Column[Distance]]:
    return [
        Column("case", lambda distance: cells.case(distance.row), words=True),
        Column(cells.devices(group), lambda distance: distance.row.count),
        Column("GPUs that count", lambda distance: distance.row.count - distance.row.empty_devices, when=any(row.empty_devices for row in group.rows)),
        Column("dtype", lambda distance: distance.row.dtype, words=True),
    ]


def _step_columns(group: Group, steps: list[Distance]) -> list[Column[Distance]]:
    probed = any(distance.measured.bytes_per_s for distance in steps)
    alone = any(distance.products_ms for distance in steps)
    return [
        *_first(group),
        Column("ms a token, run of the median step", lambda distance: cells.significant(distance.ms) + ("" if distance.further else " with the prompt")),
        Column("weights + cache to read, GB", lambda distance: f"{distance.weight_bytes / GB:.2f} + {distance.cache_bytes / GB:.2f}"),
        Column("reading takes, ms: roof", lambda distance: cells.significant(distance.reading_ms(distance.measured)), when=probed),
        Column("reading takes, ms: nominal", lambda distance: cells.significant(distance.reading_ms(distance.nominal))),
        Column("share of the roof (MBU), %", lambda distance: cells.percent(distance.bandwidth_share(distance.measured)), when=probed),
        Column("share of the nominal rate, %", lambda distance: cells.percent(distance.bandwidth_share(distance.nominal))),
        Column("share of the matrix rate (MFU), %", _matrix_share),
        Column("products alone, ms", lambda distance: cells.significant(distance.products_ms), when=alone),
        Column("ms a token / products alone", _over_products, when=alone),
    ]


def _prompt_columns(group: Group, prompts: list[Distance]) -> list[Column[Distance]]:
    probed = any(distance.measured.flop_per_s for distance in prompts)
    return [
        *_first(group),
        Column("prompt and one token, ms, run of the median prompt", lambda distance: cells.significant(distance.ms)),
        Column("operations, TFLOP", lambda distance: cells.significant(distance.flop / 1e12)),
        Column("computing takes, ms: matrix rate", lambda distance: cells.significant(distance.computing_ms(distance.measured)), when=probed),
        Column("computing takes, ms: nominal", lambda distance: cells.significant(distance.computing_ms(distance.nominal))),
        Column("share of the matrix rate (MFU), %", lambda distance: cells.percent(distance.matrix_share(distance.measured)), when=probed),
        Column("share of the nominal rate, %", lambda distance: cells.percent(distance.matrix_share(distance.nominal))),
        Column("share of the memory's rate (MBU), %", lambda distance: cells.percent(distance.bandwidth_share(_best(distance)))),
    ]


def _best(distance: Distance) -> Rates:
    """The measured rates where there are any."""
    return distance.measured if distance.measured.bytes_per_s else distance.nominal


def _matrix_share(distance: Distance) -> str:
    return cells.percent(distance.matrix_share(_best(distance)))


def _over_products(distance: Distance) -> str:
    return f"{distance.ms / distance.products_ms:.2f}" if distance.products_ms else NONE


VIEW = View("limits", section, summary="Distance to the limit: bytes and operations a token needs, share of the roof")
