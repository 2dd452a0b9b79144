"""Dominance that counts only differences larger than ε, the relative error of measurement.

Each objective is cut into boxes of relative width ε, fixed once and for all (additive in the logarithm). A point is on
the frontier if no other lies in a box that is nowhere worse and somewhere better, and none in its own box comes before
it: nearer to the box's best corner, or, equally near, of a lower digest. Members are the maxima of one strict order, so
they depend neither on the order in which points come nor on those that have left; each is non-dominated, and each
other point is within a factor 1 + ε of a member in every objective (Laumanns et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefront.core.pareto.frontier import Mask, Points, checked_points, nondominated

MAX_EPSILON = 0.5
"""Bound of ε: with a larger one, models that clearly differ would count as equal."""
_BELOW_ALL = 750.0
"""A number above minus the logarithm of any positive float."""


@dataclass(frozen=True)
class Dominance:
    """The dominance between points (proxy, latency_ms, memory_bytes), as in `core.pareto.frontier`, for one ε."""

    epsilon: float = 0.0
    """Relative error. With 0 every difference counts, and equal points are all on the frontier."""
    logarithmic: bool = False
    """Whether the proxy is a logarithm already, so that a difference of ε in it is a relative difference of ε."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < MAX_EPSILON:
            raise ValueError(f"epsilon is at least 0 and below {MAX_EPSILON}, not {self.epsilon}")

    @property
    def _width(self) -> float:
        return math.log1p(self.epsilon)

    def frontier(self, points: Sequence[Sequence[float]], digests: Sequence[str]) -> Mask:
        """Which of the points (n, 3) are on the frontier; `digests` decide between points of one box.

        ValueError if a point is not finite or, with an ε, a latency or memory is not positive.
        """
        checked = checked_points(points)
        if self.epsilon == 0 or not len(checked):
            return nondominated(checked)
        places = self._places(checked)
        boxes = np.floor(places)
        rest = boxes + 1.0 - places
        distance = rest[:, 0] ** 2 + rest[:, 1] ** 2 + rest[:, 2] ** 2
        order = np.lexsort((np.asarray(digests), distance, *boxes.T))
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(boxes[order], axis=0) != 0).any(axis=1)
        leading = order[first]
        mask = np.zeros(len(checked), dtype=bool)
        mask[leading] = nondominated(boxes[leading] * (1.0, -1.0, -1.0))
        return mask

    def _places(self, points: Points) -> Points:
        """Coordinates in units of boxes, higher is better in each."""
        if (points[:, 1:] <= 0).any():
            raise ValueError("latency and memory must be positive")
        # Computed one by one: the logarithm of an array may differ in the last digit with its length, and so may a box.
        proxies = points[:, 0].tolist()
        rows = [
            (
                proxy if self.logarithmic else _signed_log(proxy),
                -math.log(latency),
                -math.log(memory),
            )
            for proxy, latency, memory in zip(proxies, points[:, 1].tolist(), points[:, 2].tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.float64) / self._width


def _signed_log(value: float) -> float:
    """Rises with the value, by as much as the logarithm of its magnitude changes."""
    return math.copysign(_BELOW_ALL + math.log(abs(value)), value) if value else 0.0
