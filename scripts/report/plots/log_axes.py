"""The look of the pictures over the batch size: two logarithmic axes with plain numbers on them."""

from matplotlib.axes import Axes

from scripts.report.plots.bars import GRID, plain_numbers


def style(axes: Axes, across: str, up: str, base: int = 10, number_between: bool = False) -> None:
    """Label both axes. `base` is of the steps across; `number_between`: also the marks between the powers have their numbers."""
    axes.set_xscale("log", base=base)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis, number_between)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
