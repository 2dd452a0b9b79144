"""A spread-out choice of rows: what to measure first, and what carries a process of many launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def standardised(rows: Floats) -> tuple[Floats, Floats]:
    """(q,) centre and width of each column; a column of equal values has width 1."""
    width = rows.std(axis=0)
    return rows.mean(axis=0), np.where(width > 1e-9 * np.abs(rows).max(axis=0, initial=1.0), width, 1.0)


def spread_rows(rows: Floats, count: int, seed: int | None = None) -> NDArray[np.int64]:
    """Indices of `count` rows, in the order of choice, each the farthest from those before it (Gonzalez 1985).

    The first is the one nearest to the centre, or with a seed one drawn at random. Of equal distances the row that
    comes first counts; distances are rounded, so that every platform chooses the same.
    """
    centre, width = standardised(rows)
    scaled = np.round((rows - centre) / width, 9)
    if seed is None:
        chosen = [int(np.argmin(np.round((scaled**2).sum(axis=1), 9)))]
    else:
        chosen = [int(np.random.default_rng(seed).integers(len(rows)))]
    nearest = np.full(len(rows), np.inf)
    while len(chosen) < min(count, len(rows)):
        distance = np.round(((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1), 9)
        nearest = np.minimum(nearest, distance)
        nearest[chosen[-1]] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return np.array(chosen[:count], dtype=np.int64)
