"""Draws a supernet search: layers from left to right, and the probability of each block in them (PAR §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from edgefront.core.errors import Unavailable
from edgefront.core.supernet.settings import CHOICES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Sequence[float]]
"""Probabilities: one row a layer, one number for each of `CHOICES`."""

_LOCK = Lock()  # matplotlib's style is global to the process
_COLOURS = dict(zip(CHOICES, ("#0f766e", "#e0a458", "#e2e8f0"), strict=True))
_INK, _EDGE = "#1e293b", "#94a3b8"
_NAMES = {"attention": "attention", "feed_forward": "feed-forward", "identity": "identity"}
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": _EDGE,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def draw(
    panels: Sequence[tuple[str, Rows, Sequence[tuple[int, Rows]]]],
    *,
    title: str = "",
    ending: Literal["png", "svg"] = "png",
) -> bytes:
    """One row of pictures for each search: its name, its probabilities, and the same over time (step, probabilities).

    The left panel shows the probabilities as stacked bars, the right one that of attention in each layer, step by
    step. Raises `Unavailable` where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise Unavailable("pictures need matplotlib: install edgefront-lm[demo], or take the JSON") from error
    from matplotlib.figure import Figure

    with _LOCK, matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11, 0.7 + 2.5 * len(panels)), layout="constrained")
        grid = figure.subplots(len(panels), 2, squeeze=False, width_ratios=(3, 2))
        for row, (name, rows, history) in zip(grid, panels, strict=True):
            _bars(row[0], rows)
            row[0].set_title(name)
            _over_time(row[1], history or [(0, rows)])
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(CHOICES))
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        out = BytesIO()
        figure.savefig(out, format=ending, dpi=140, facecolor="white")
    return out.getvalue()


def _bars(axes: Axes, rows: Rows) -> None:
    layers = range(1, len(rows) + 1)
    bottom = [0.0] * len(rows)
    for index, choice in enumerate(CHOICES):
        heights = [row[index] for row in rows]
        axes.bar(layers, heights, bottom=bottom, width=0.85, color=_COLOURS[choice], label=_NAMES[choice], linewidth=0)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_ylim(0, 1)
    axes.set_xlim(0.4, len(rows) + 0.6)
    axes.set_xticks(_ticks(len(rows)))
    axes.set_xlabel("layer")
    axes.set_ylabel("probability of each block")


def _over_time(axes: Axes, history: Sequence[tuple[int, Rows]]) -> None:
    steps = [step for step, _ in history]
    grid: list[Any] = [[rows[layer][0] for _, rows in history] for layer in range(len(history[0][1]))]
    edges = [min(0, steps[0] - 1), *steps]  # a column spans the steps since the previous one
    layers = [layer + 0.5 for layer in range(len(grid) + 1)]
    mesh = axes.pcolormesh(edges, layers, grid, vmin=0, vmax=1, cmap="YlGnBu", rasterized=True)
    bar = axes.figure.colorbar(mesh, ax=axes, pad=0.02)
    bar.outline.set_visible(False)
    axes.set_yticks(_ticks(len(grid)))
    axes.set_title("attention over the steps", fontweight="normal")
    axes.set_xlabel("step")
    axes.set_ylabel("layer")


def _ticks(layers: int) -> list[int]:
    every = 1 if layers <= 12 else 4
    return sorted({1, *range(every, layers + 1, every)})
