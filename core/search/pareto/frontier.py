"""Dominance and hypervolume of points.

A point is (proxy, latency_ms, memory_bytes): a higher proxy is better, and lower values of the others. A point
dominates another if it is nowhere worse and somewhere better; so equal points do not dominate each other, and all of
them are on the frontier. Non-dominated sets and hypervolumes are moocore's.

`Dominance` counts only differences larger than ε, the relative error of measurement. Each objective is cut into boxes
of relative width ε, fixed once and for all (additive in the logarithm). A point is on the frontier if no other lies in
a box that is nowhere worse and somewhere better, and none in its own box comes before it: nearer to the box's best
corner, or, equally near, of a lower digest. Members are the maxima of one strict order, so they depend neither on the
order in which points come nor on those that have left; each is non-dominated, and each other point is within a factor
1 + ε of a member in every objective (Laumanns et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_EPSILON = 0.5
"""Bound of ε: with a larger one, models that clearly differ would count as equal."""
_BELOW_ALL = 750.0
"""A number above minus the logarithm of any positive float."""
_MAXIMISE = (True, False, False)


def nondominated(points: ArrayLike) -> Mask:
    """Which of the points (n, 3) no other dominates; of equal points all. ValueError if one is not finite."""
    checked = checked_points(points)
    if not len(checked):
        return np.zeros(0, dtype=bool)
    mask: Mask = np.asarray(moocore.is_nondominated(checked, maximise=_MAXIMISE, keep_weakly=True), dtype=bool)
    return mask


def hypervolume(points: ArrayLike, reference: Mapping[str, float]) -> float:
    """Volume that the points (n, 3) dominate, in units of the box between the ideal corner and the reference point.

    Args:
        points: dominated ones and those beyond the reference point add nothing.
        reference: `proxy` (the least one), `latency_ms` and `memory_bytes` (the worst ones) are the reference point;
            the ideal corner is (`proxy_scale`, 0, 0). A proxy above `proxy_scale` can make the volume exceed 1.
    """
    checked = checked_points(points)
    if not len(checked):
        return 0.0
    # With the reference at (0, 1, 1) and the ideal corner at (1, 0, 0).
    low, scale = reference["proxy"], reference["proxy_scale"]
    normalised = np.column_stack(
        [
            (checked[:, 0] - low) / (scale - low),
            checked[:, 1] / reference["latency_ms"],
            checked[:, 2] / reference["memory_bytes"],
        ]
    )
    return float(moocore.hypervolume(normalised, ref=(0.0, 1.0, 1.0), maximise=_MAXIMISE))


def checked_points(points: Any) -> Points:
    """Points as an array (n, 3) of finite numbers; ValueError if they are not."""
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"points have the shape (n, 3): proxy, latency_ms, memory_bytes; not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite")
    return array


@dataclass(frozen=True)
class Dominance:
    """The dominance between points for one ε."""

    epsilon: float = 0.0
    """Relative error. With 0 every difference counts, and equal points are all on the frontier."""
    logarithmic: bool = False
    """Whether the proxy is a logarithm already, so that a difference of ε in it is a relative difference of ε."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < MAX_EPSILON:
            raise ValueError(f"epsilon is at least 0 and below {MAX_EPSILON}, not {self.epsilon}")

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
        if not self.logarithmic:
            # Rises with the value, by as much as the logarithm of its magnitude changes.
            proxies = [math.copysign(_BELOW_ALL + math.log(abs(each)), each) if each else 0.0 for each in proxies]
        rows = [
            (proxy, -math.log(latency), -math.log(memory))
            for proxy, latency, memory in zip(proxies, points[:, 1].tolist(), points[:, 2].tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.float64) / math.log1p(self.epsilon)
