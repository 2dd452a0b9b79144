"""Plots the models of a job: quality against latency, with peak memory as point size, in one panel per target (device
and runtime).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from edgefront.client.show.frontier_table import header_of
from edgefront.core.common.units import MB
from edgefront.core.schemas.points import PointsHeader
from edgefront.core.schemas.recommendations import RecommendationView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

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
_SMALLEST, _LARGEST = 16.0, 200.0
"""Areas of the points with the least and the most peak memory, in square points."""


class Plot(Figure):
    """A matplotlib figure that notebooks show as a picture, even without inline plotting."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110, facecolor="white")
        return file.getvalue()


@dataclass(frozen=True)
class Chart:
    """The data of a plot of one target (device and runtime) of a job."""

    recommendation: RecommendationView
    """Header with the target's name and limits, the recommended model, and the proxy's name."""
    points: PointsHeader
    columns: dict[str, Any]
    """Name of a column → array (`core.schemas.points`)."""


def plot(charts: Sequence[Chart], *, title: str = "") -> Plot:
    """Plots predicted perplexity (or, if no perplexity is predicted, the proxy) against measured latency."""
    with rc_context(_STYLE):
        figure = Plot(figsize=(6.4 * len(charts), 4.8), layout="constrained")
        row = figure.subplots(1, len(charts), squeeze=False)[0]
        for axes, chart in zip(row, charts, strict=True):
            _panel(axes, chart)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def _panel(axes: Axes, chart: Chart) -> None:
    view, columns = chart.recommendation, chart.columns
    groups = np.array(chart.points.groups)[columns["group"]] if chart.points.rows else np.array([], dtype=str)
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
    least, most = chart.points.memory_bytes
    share = (np.nan_to_num(columns["memory_bytes"], nan=least) - least) / max(most - least, 1.0)
    areas = _SMALLEST + (_LARGEST - _SMALLEST) * share.clip(0, 1)
    x, y = columns["latency_ms"], columns[quality]
    finite = np.isfinite(x) & np.isfinite(y)

    def scatter(
        rows: Rows, color: str, label: str, *, marker: str = "o", factor: float = 1.0, hollow: bool = False
    ) -> None:
        visible = rows & finite
        if visible.any():
            faces, edges = ("none", color) if hollow else (color, "white")
            style: dict[str, Any] = {"facecolors": faces, "edgecolors": edges, "linewidths": 0.8, "alpha": 0.85}
            axes.scatter(
                x[visible], y[visible], s=areas[visible] * factor, marker=marker, label=label, zorder=3, **style
            )

    scatter(groups == "outside", OTHER, "searched, out of bounds", hollow=True)
    scatter(groups == "dominated", OTHER, "searched")
    baseline = groups == "baseline"
    line = np.flatnonzero(baseline & finite)
    line = line[np.argsort(columns["decoder_parameters"][line])]
    axes.plot(x[line], y[line], color=BASELINE, linestyle=(0, (4, 2)), linewidth=1.2, zorder=2)
    scatter(baseline, BASELINE, "my model" if view.own_model else "the baseline, by layers", marker="s")
    _intervals(axes, columns, quality, (groups == "frontier") & finite)
    scatter(groups == "frontier", FRONTIER, "frontier")
    if view.recommended is not None:
        best = np.array([point_id == view.recommended.id for point_id in chart.points.ids])
        scatter(best, CHOSEN, "recommended", marker="*", factor=2.5)
    axes.set_xlim(left=0)
    if (limit_ms := view.limits.latency_ms) is not None:
        axes.axvline(limit_ms, color=INK, linewidth=1, linestyle=":", label=f"limit: {limit_ms:g} ms")
    sizes = f"size: peak memory, {least / MB:.0f} to {most / MB:.0f} MB"
    legend = axes.legend(loc="best", fontsize=9, title=sizes)
    legend.get_title().set_fontsize(9)
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([60])


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
