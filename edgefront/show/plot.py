"""A plot of a job: quality against latency, peak memory as the size of a point, a panel for each target."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from edgefront.core.units import MB
from edgefront.resources.jobs import Chart
from edgefront.show.published import choice_rows
from edgefront.show.tables import header_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from edgefront.core.wire.recommendations import ChoicesView, ChoiceView

    Rows = NDArray[np.bool_]

FRONTIER, BASELINE, OTHER, INK, _GRID = "#0f766e", "#b45309", "#94a3b8", "#1e293b", "#e2e8f0"
CHOSEN = "#be123c"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": OTHER,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
}
_AREAS = (16.0, 200.0)
"""Areas of the points with the least and the most peak memory, in square points."""


class Plot(Figure):
    """A matplotlib figure that a notebook shows as a picture, also where it is not drawn inline."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110, facecolor="white")
        return file.getvalue()


def plot(charts: Sequence[Chart], *, title: str = "") -> Plot:
    """Predicted perplexity, or the proxy where nothing is predicted, against measured latency."""
    with rc_context(_STYLE):
        figure = Plot(figsize=(6.4 * len(charts), 4.8), layout="constrained")
        row = figure.subplots(1, len(charts), squeeze=False)[0]
        for axes, chart in zip(row, charts, strict=True):
            _panel(axes, chart)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def plot_choices(view: ChoicesView) -> Plot:
    """Published score against measured latency of the choices of a frontier, a colour for each runtime and format."""
    rows = [choice for _, choice in choice_rows(view)]
    kinds: dict[str, list[ChoiceView]] = {}
    for choice in rows:
        kinds.setdefault(f"{choice.runtime} {choice.weights}", []).append(choice)
    with rc_context(_STYLE):
        figure = Plot(figsize=(6.4, 4.8), layout="constrained")
        axes = figure.subplots()
        axes.set_xlabel("median latency (ms), less is better")
        axes.set_ylabel(f"{view.score.partition(':')[2]}, more is better")
        sizes = [choice.candidate.memory_bytes or 0 for choice in rows] or [0]
        ends = (float(min(sizes)), float(max(sizes)))
        for number, (kind, choices) in enumerate(kinds.items()):
            areas = _areas(np.array([choice.candidate.memory_bytes or np.nan for choice in choices]), ends)
            times = [choice.candidate.latency_ms or np.nan for choice in choices]
            scores = [choice.score for choice in choices]
            axes.scatter(times, scores, s=areas, color=f"C{number}", edgecolors="white", linewidths=0.8, label=kind)
        if (best := view.recommended) is not None:
            at = [best.candidate.latency_ms or np.nan], [best.score]
            axes.scatter(*at, s=160, marker="*", color=CHOSEN, edgecolors="white", linewidths=0.8, label="recommended")
        _finish(axes, view.limits.latency_ms, ends if rows else None)
    return figure


def _panel(axes: Axes, chart: Chart) -> None:
    view, columns = chart.recommendation, chart.columns
    of_group = np.array(chart.points.groups)[columns["group"]] if chart.points.rows else np.array([], dtype=str)
    quality = "perplexity" if "perplexity" in columns else "proxy"
    axes.set_title(view.target, loc="left")
    axes.set_xlabel("median latency (ms), less is better")
    axes.set_ylabel(
        f"{header_of([chart.points.relative_to])}, less is better\n{chart.points.label}".strip()
        if quality == "perplexity"
        else f"{view.proxy.replace('_', ' ')}, more is better"
    )
    if chart.points.memory_bytes is None:
        axes.text(0.5, 0.5, "nothing is measured yet", transform=axes.transAxes, ha="center")
        return
    areas = _areas(columns["memory_bytes"], chart.points.memory_bytes)
    x, y = columns["latency_ms"], columns[quality]
    drawn = np.isfinite(x) & np.isfinite(y)

    def points(
        rows: Rows, color: str, label: str, *, marker: str = "o", factor: float = 1.0, hollow: bool = False
    ) -> None:
        kept = rows & drawn
        if kept.any():
            faces, edges = ("none", color) if hollow else (color, "white")
            style: dict[str, Any] = {"facecolors": faces, "edgecolors": edges, "linewidths": 0.8, "alpha": 0.85}
            axes.scatter(x[kept], y[kept], s=areas[kept] * factor, marker=marker, label=label, zorder=3, **style)

    points(of_group == "outside", OTHER, "searched, out of bounds", hollow=True)
    points(of_group == "dominated", OTHER, "searched")
    baseline = of_group == "baseline"
    line = np.flatnonzero(baseline & drawn)
    line = line[np.argsort(columns["decoder_parameters"][line])]
    axes.plot(x[line], y[line], color=BASELINE, linestyle=(0, (4, 2)), linewidth=1.2, zorder=2)
    points(baseline, BASELINE, "my model" if view.own_model else "the stock model, by layers", marker="s")
    _intervals(axes, columns, quality, (of_group == "frontier") & drawn)
    points(of_group == "frontier", FRONTIER, "frontier")
    if view.recommended is not None:
        best = np.array([point_id == view.recommended.id for point_id in chart.points.ids])
        points(best, CHOSEN, "recommended", marker="*", factor=2.5)
    _finish(axes, view.limits.latency_ms, chart.points.memory_bytes)


def _intervals(axes: Axes, columns: dict[str, Any], quality: str, rows: Rows) -> None:
    """Draws the 95 % intervals of the latency and of the predicted perplexity."""
    if not rows.any():
        return
    x, y = columns["latency_ms"][rows], columns[quality][rows]
    widths = columns.get("latency_half_width_ms")
    ends = [columns.get(f"perplexity_{end}") for end in ("low", "high")]
    low, high = ends if quality == "perplexity" else (None, None)
    axes.errorbar(
        x,
        y,
        xerr=None if widths is None else np.nan_to_num(widths[rows]),
        yerr=None if low is None or high is None else np.nan_to_num([y - low[rows], high[rows] - y]).clip(0),
        fmt="none",
        ecolor=FRONTIER,
        elinewidth=0.8,
        capsize=2,
        zorder=2,
    )


def _finish(axes: Axes, limit_ms: float | None, memory_bytes: tuple[float, float] | None) -> None:
    """The line of the limit, and the legend where anything is drawn."""
    axes.set_xlim(left=0)
    if limit_ms is not None:
        axes.axvline(limit_ms, color=INK, linewidth=1, linestyle=":", label=f"limit: {limit_ms:g} ms")
    if memory_bytes is not None:
        least, most = (value / MB for value in memory_bytes)
        legend = axes.legend(loc="best", fontsize=9, title=f"size: peak memory, {least:.0f} to {most:.0f} MB")
        legend.get_title().set_fontsize(9)
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):
                handle.set_sizes([60])


def _areas(memory: NDArray[np.float64], ends: tuple[float, float]) -> NDArray[np.float64]:
    least, most = ends
    share = (np.nan_to_num(memory, nan=least) - least) / max(most - least, 1.0)
    smallest, largest = _AREAS
    return smallest + (largest - smallest) * share.clip(0, 1)
