"""Student's t without a statistics library, which would add 140 MB to a device that needs nothing else of it.

Degrees of freedom are whole numbers here, for which the distribution has a closed form.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_MAX_EXACT_DEGREES = 200


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t with `degrees` degrees of freedom stays below with this probability.

    Relative error below 1e-9. Abramowitz & Stegun (1964): 26.7.3 and 26.7.4 (closed form for whole degrees, solved
    by bisection) up to 200 degrees, 26.7.5 (expansion around the normal quantile) beyond.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, not {probability}")
    if degrees < 1:
        raise ValueError(f"degrees of freedom are at least 1, not {degrees}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees > _MAX_EXACT_DEGREES:
        return _expanded(probability, degrees)
    within = 2 * probability - 1  # P(|T| < t)
    low, high = 0.0, math.pi / 2  # the angle whose tangent is t/√degrees
    for _ in range(80):
        middle = (low + high) / 2
        if _inside(middle, degrees) < within:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _inside(angle: float, degrees: int) -> float:
    """P(|T| < t) for t = √degrees · tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    square = cosine * cosine
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= square * (2 * k) / (2 * k + 1)
        return 2 / math.pi * (angle + sine * total)
    term, total = 1.0, 0.0
    for k in range(1, degrees // 2 + 1):
        total += term
        term *= square * (2 * k - 1) / (2 * k)
    return sine * total


def _expanded(probability: float, degrees: int) -> float:
    z = NormalDist().inv_cdf(probability)
    n = float(degrees)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4
