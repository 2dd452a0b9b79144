"""The covariance of the Gaussian processes: of quality laws, and of what costs leave unexplained of a latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def matern52(first: Floats, second: Floats, length: float = 1.0) -> Floats:
    """Matérn 5/2 correlations (n, m) of rows (n, q) and (m, q) (Rasmussen & Williams 2006, eq. 4.17).

    `length` is the length scale, in the unit of the columns; for one a column, divide the columns by theirs.
    """
    square = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(5 * np.maximum(square, 0.0)) / length
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
