"""A plot of frontiers: latency and peak memory against decoder parameters, with the baseline; one row per target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.core.errors import InvalidInput
from edgefront.core.files import whole_file
from edgefront.core.states import CandidateRole
from edgefront.core.units import MB
from edgefront.core.wire.candidates import CandidateView, FrontierView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRONTIER, BASELINE, OTHER, INK, _GRID = "#0f766e", "#b45309", "#94a3b8", "#1e293b", "#e2e8f0"
CHOSEN = "#be123c"
_ENDINGS = ("png", "svg", "pdf")
STYLE = {
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


def draw(
    frontiers: Sequence[FrontierView],
    path: Path,
    *,
    others: Mapping[str, Iterable[CandidateView]] | None = None,
    title: str = "",
) -> None:
    """Draws the frontiers into a PNG, SVG or PDF file.

    `others` are, by target id, the candidates that are shown faintly behind their frontier.
    """
    with panels(len(frontiers), 2, (11, 0.6 + 3.9 * len(frontiers)), path, title) as grid:
        for row, view in zip(grid, frontiers, strict=True):
            behind = [
                point
                for point in (others or {}).get(view.target_id, ())
                if point.latency_ms is not None and not point.on_frontier and point.role == CandidateRole.SEARCH
            ]
            _panel(row[0], view, behind, "latency_ms", 1.0, "median latency (ms)")
            _panel(row[1], view, behind, "memory_bytes", MB, "peak memory (MB)")
            row[0].set_title(view.target, loc="left")
            row[0].legend(loc="upper left")


@contextmanager
def panels(rows: int, columns: int, inches: tuple[float, float], path: Path, title: str) -> Iterator[Any]:
    """A grid of empty axes, (rows, columns), which are drawn into the PNG, SVG or PDF file at the end."""
    check_ending(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, grid = pyplot.subplots(rows, columns, figsize=inches, squeeze=False, layout="constrained")
        yield grid
        set_title(figure, title)
        save(figure, path)
        pyplot.close(figure)


def set_title(figure: Figure, title: str) -> None:
    """Above all panels of a figure; none where it is empty."""
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")


def save(figure: Figure, path: Path) -> None:
    """Writes a figure in the format that its ending names."""
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".").lower(), dpi=160, facecolor="white")


def check_ending(path: Path) -> None:
    """Raises `InvalidInput` unless the name is that of an image file."""
    if path.suffix.lstrip(".").lower() not in _ENDINGS:
        allowed = "a file that ends in ." + ", .".join(_ENDINGS)
        raise InvalidInput(f"{path} is not an image file: use {allowed}", field="picture", allowed=allowed)


def _panel(
    axes: Axes, view: FrontierView, behind: Sequence[CandidateView], field: str, unit: float, label: str
) -> None:
    baseline = sorted((point for point in view.baseline if point.latency_ms), key=_size)
    points = sorted(view.points, key=_size)
    axes.plot(
        *_columns(baseline, field, unit),
        color=BASELINE,
        linestyle=(0, (4, 2)),
        linewidth=1.4,
        marker="s",
        markersize=5,
        label=_baseline_name(view),
        zorder=2,
    )
    if behind:
        axes.scatter(
            *_columns(behind, field, unit), color=OTHER, s=14, alpha=0.7, linewidths=0, label="searched", zorder=1
        )
    axes.scatter(
        *_columns(points, field, unit),
        color=FRONTIER,
        s=42,
        edgecolors="white",
        linewidths=0.8,
        label="frontier",
        zorder=4,
    )
    if field == "latency_ms":
        with_interval = [point for point in points if point.latency_half_width_ms is not None]
        x, y = _columns(with_interval, field, unit)
        widths = [point.latency_half_width_ms or 0.0 for point in with_interval]
        axes.errorbar(x, y, yerr=widths, fmt="none", ecolor=FRONTIER, elinewidth=1, capsize=2, zorder=3)
    axes.set_xlabel("decoder parameters (millions), more is better")
    axes.set_ylabel(f"{label}, less is better")
    # Axis limits ignore the intervals, because a very wide one would compress everything else.
    highest = max((getattr(point, field) / unit for point in (*points, *baseline, *behind)), default=1.0)
    axes.set_xlim(left=0)
    axes.set_ylim(0, highest * 1.15)


def _baseline_name(view: FrontierView) -> str:
    return "my model" if view.own_model else "baseline: the stock model, by layers"


def _columns(points: Iterable[CandidateView], field: str, unit: float) -> tuple[list[float], list[float]]:
    kept = list(points)
    y: list[Any] = [getattr(point, field) / unit for point in kept]
    return [point.decoder_parameters / 1e6 for point in kept], y


def _size(point: CandidateView) -> int:
    return point.decoder_parameters
