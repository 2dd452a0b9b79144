"""Colours, style and files of all pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefront.core.errors import InvalidInput
from edgefront.core.files import whole_file

if TYPE_CHECKING:
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
