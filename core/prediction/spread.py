"""Which architectures to measure first, so that few launches teach most; and which launches carry a process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.prediction.features import descriptors, features

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_DIGITS = 9


def spread(shapes: Shapes, protocol: MeasurementProtocol, count: int, seed: int) -> Indices:
    """Rows of `count` architectures that stand for all of them, the same for the same seed.

    The rows are cut into as many cells of nearly equal size, always across the descriptor in which a cell is widest (a
    k-d tree), and one is drawn from each: far apart as in a grid, but as likely to be usual or extreme as any row, so
    that errors on them tell of errors on the others. `InvalidInput` if there are fewer rows.
    """
    if not 1 <= count <= len(shapes):
        raise InvalidInput(
            f"count must be 1 to {len(shapes)}, the number of architectures, not {count}",
            field="count",
            value=count,
            allowed=f"1 to {len(shapes)}",
        )
    rng = np.random.default_rng(seed)
    scaled = _scaled(descriptors(shapes, features(shapes, protocol)))
    ties = rng.random(len(shapes))
    cells, chosen = [(np.arange(len(shapes)), count)], []
    while cells:
        rows, quota = cells.pop()
        if quota == 1:
            chosen.append(int(rows[rng.integers(len(rows))]))
            continue
        widest = int(np.argmax(np.round(scaled[rows].var(axis=0), _DIGITS)))
        rows = rows[np.lexsort((ties[rows], scaled[rows, widest]))]
        first = quota // 2
        cut = len(rows) * first // quota
        cells += [(rows[:cut], first), (rows[cut:], quota - first)]
    return np.sort(np.array(chosen, dtype=np.int64))


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
