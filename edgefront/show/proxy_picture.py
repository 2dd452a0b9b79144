"""A plot of a study of proxies: rank correlation and common ratio by the share of best models; one row per table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgefront.core.proxies.study import ProxyStudy, Study
from edgefront.show.picture import STYLE, check_ending, save, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (
    "#0f766e",
    "#b45309",
    "#4338ca",
    "#be123c",
    "#0369a1",
    "#4d7c0f",
    "#7e22ce",
    "#64748b",
    "#a16207",
    "#1e293b",
)
_HEAT = 4
"""From this number of tables on, they become the rows of one heat map, as in LTS's Figure 19."""


def draw_study(studies: Mapping[str, Study], path: Path, *, title: str = "") -> None:
    """Draws studies, by the name of their table, into a PNG, SVG or PDF file; `InvalidInput` for another file
    extension.
    """
    check_ending(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        if len(studies) >= _HEAT:
            figure, axes = pyplot.subplots(
                figsize=(3 + 1.3 * _most(studies), 1.5 + 0.4 * len(studies)), layout="constrained"
            )
            _heat(axes, studies)
        else:
            figure, grid = pyplot.subplots(
                len(studies), 2, figsize=(11, 0.6 + 3.9 * len(studies)), squeeze=False, layout="constrained"
            )
            for row, (name, study) in zip(grid, studies.items(), strict=True):
                _panel(row[0], study, "spearman", f"Spearman's ρ with {study.quality}")
                _panel(row[1], study, "common_ratio", "common ratio")
                row[0].set_title(name or f"{study.models} models")
                row[1].legend(loc="lower left")
        set_title(figure, title)
        save(figure, path)
        pyplot.close(figure)


def _panel(axes: Axes, study: Study, field: str, label: str) -> None:
    for proxy, colour in zip(study.proxies, _COLOURS * 2, strict=False):
        parts = [part for part in proxy.slices if getattr(part, field) is not None]
        shown = [getattr(part, field) for part in parts]
        places = [_place(part.percent, proxy) for part in parts]
        axes.plot(places, shown, color=colour, marker="o", markersize=5, linewidth=1.4, label=proxy.proxy)
        if field == "spearman":
            band = [
                (_place(part.percent, proxy), part.low or 0.0, part.high or 0.0)
                for part in parts
                if part.low is not None
            ]
            if band:
                x, low, high = zip(*band, strict=True)
                axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    shares = [part.percent for part in study.proxies[0].slices]
    axes.set_xticks(range(len(shares)), ["all" if share == 100 else f"best {share} %" for share in shares])
    axes.set_ylabel(label)
    axes.set_ylim(top=1.03)


def _place(percent: int, proxy: ProxyStudy) -> int:
    return [part.percent for part in proxy.slices].index(percent)


def _heat(axes: Axes, studies: Mapping[str, Study]) -> None:
    """Spearman's ρ over all models: a row for each table, a column for each proxy."""
    names = [proxy.proxy for proxy in next(iter(studies.values())).proxies]
    cells = [[_over_all(proxy) for proxy in study.proxies] for study in studies.values()]
    axes.imshow(
        [[0.0 if value is None else value for value in row] for row in cells],
        cmap="BrBG",
        vmin=-1,
        vmax=1,
        aspect="auto",
    )
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            dark = value is not None and abs(value) > 0.6
            axes.text(
                x,
                y,
                "–" if value is None else f"{value:.2f}",
                ha="center",
                va="center",
                color="white" if dark else None,
            )
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.set_yticks(range(len(studies)), list(studies))
    axes.grid(visible=False)


def _over_all(proxy: ProxyStudy) -> float | None:
    return next((part.spearman for part in proxy.slices if part.percent == 100), None)


def _most(studies: Mapping[str, Study]) -> int:
    return max(len(study.proxies) for study in studies.values())
