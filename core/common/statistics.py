"""Constants of the normal distribution, and the robust standard deviation that follows from one of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

Z_95 = 1.959964
"""Standard deviations to either side of the mean that hold 95 % of a normal distribution."""
MAD_TO_STD = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation (Rousseeuw & Croux 1993)."""


def robust_std(deviations: ArrayLike) -> float:
    """Standard deviation of (n,) deviations from a centre, n ≥ 1, by the median of their absolute values."""
    return MAD_TO_STD * float(np.median(np.abs(deviations)))
