"""Which of many rows lie farthest apart: architectures to measure first, launches that carry a process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_DIGITS = 9


def standardised(rows: Floats) -> tuple[Floats, Floats]:
    """(q,) centre and width of each column; a column of equal values has width 1."""
    width = rows.std(axis=0)
    return rows.mean(axis=0), np.where(width > 1e-9 * np.abs(rows).max(axis=0, initial=1.0), width, 1.0)


def farthest(rows: Floats, count: int) -> Indices:
    """Indices of `count` rows, each the farthest from those before it (Gonzalez 1985), from the most central one on.

    Of equal distances the row that comes first counts.
    """
    scaled = _scaled(rows)
    chosen = [int(np.argmin(np.round((scaled**2).sum(axis=1), _DIGITS)))]
    nearest = np.full(len(rows), np.inf)
    while len(chosen) < min(count, len(rows)):
        distance = np.round(((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1), _DIGITS)
        nearest = np.minimum(nearest, distance)
        nearest[chosen[-1]] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return np.array(chosen, dtype=np.int64)


def _scaled(rows: Floats) -> Floats:
    """Standardised and rounded, so that every platform makes the same choice."""
    centre, width = standardised(rows)
    return np.asarray(np.round((rows - centre) / width, _DIGITS))
