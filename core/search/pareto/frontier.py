"""Dominance and hypervolume of points, with moocore.

A point is (proxy, latency_ms, memory_bytes): the proxy is maximised, the others are minimised. A point dominates
another if it is nowhere worse and somewhere better. Equal points do not dominate each other: all are on the frontier.

`Dominance` is ε-dominance by boxes (Laumanns et al. 2002), with ε the relative error of measurement:

1. The logarithm of each objective is divided into boxes of width ln(1 + ε), at fixed places.
2. Of each box one point stays: the nearest to the box's best corner; of equally near ones the lowest digest.
3. The frontier is the non-dominated set of the boxes.

The frontier does not depend on the order of the points or on former points. Each point is within a factor 1 + ε of a
member in every objective.
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
"""Upper bound of ε: with a larger one, clearly different models would count as equal."""
_BELOW_ALL = 750.0
"""A number above minus the logarithm of any positive float."""
_HIGHER_IS_BETTER = (1.0, -1.0, -1.0)


def nondominated(points: ArrayLike) -> Mask:
    """Mask of the non-dominated points (n, 3), with all of equal points. ValueError if one is not finite."""
    return _nondominated(checked_points(points) * _HIGHER_IS_BETTER)


def _nondominated(values: NDArray[np.float64]) -> Mask:
    """The same of (n, k) values that are all maximised."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(values, maximise=True, keep_weakly=True), dtype=bool)


def hypervolume(points: ArrayLike, reference: Mapping[str, float]) -> float:
    """Volume that the points (n, 3) dominate, in units of the box between ideal and reference point.

    Args:
        points: dominated points and those beyond the reference point add nothing.
        reference: `proxy`, `latency_ms` and `memory_bytes` of the reference point; the ideal point is (`proxy_scale`,
            0, 0). A proxy above `proxy_scale` can make the volume exceed 1.
    """
    checked = checked_points(points)
    if not len(checked):
        return 0.0
    # Reference point (0, 1, 1), ideal point (1, 0, 0).
    low, scale = reference["proxy"], reference["proxy_scale"]
    normalised = np.column_stack(
        [
            (checked[:, 0] - low) / (scale - low),
            checked[:, 1] / reference["latency_ms"],
            checked[:, 2] / reference["memory_bytes"],
        ]
    )
    return float(moocore.hypervolume(normalised, ref=(0.0, 1.0, 1.0), maximise=(True, False, False)))


def checked_points(points: Any) -> Points:
    """Points as a finite array (n, 3); ValueError otherwise."""
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"points have the shape (n, 3): proxy, latency_ms, memory_bytes; not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite")
    return array


@dataclass(frozen=True)
class Dominance:
    """ε-dominance between points."""

    epsilon: float = 0.0
    """Relative error. With 0 every difference counts, and all of equal points are on the frontier."""
    logarithmic: bool = False
    """Whether the proxy is already a logarithm."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < MAX_EPSILON:
            raise ValueError(f"epsilon is at least 0 and below {MAX_EPSILON}, not {self.epsilon}")

    def frontier(
        self, points: Sequence[Sequence[float]], digests: Sequence[str], exact: Sequence[Sequence[float]] = ()
    ) -> Mask:
        """Mask of the points (n, 3) on the frontier.

        `digests` break ties in a box. `exact` (n, k) are further objectives, which are maximised and in which every
        difference counts. ValueError if a point is not finite or, with an ε, a latency or memory is not positive.
        """
        checked = checked_points(points)
        further = np.asarray(exact, dtype=np.float64).reshape(len(checked), -1 if len(exact) else 0)
        if self.epsilon == 0 or not len(checked):
            return _nondominated(np.column_stack([further, checked * _HIGHER_IS_BETTER]))
        places = self._places(checked)
        boxes = np.floor(places)
        rest = boxes + 1.0 - places
        distance = rest[:, 0] ** 2 + rest[:, 1] ** 2 + rest[:, 2] ** 2
        boxes = np.column_stack([further, boxes])
        order = np.lexsort((np.asarray(digests), distance, *boxes.T))
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(boxes[order], axis=0) != 0).any(axis=1)
        leading = order[first]
        mask = np.zeros(len(checked), dtype=bool)
        mask[leading] = _nondominated(boxes[leading])
        return mask

    def _places(self, points: Points) -> Points:
        """Coordinates in units of boxes; higher is better."""
        if (points[:, 1:] <= 0).any():
            raise ValueError("latency and memory must be positive")
        # One by one: the last digit of the logarithm of an array may depend on its length.
        proxies = points[:, 0].tolist()
        if not self.logarithmic:
            # Monotonic in the value, also below 0; its steps are those of the logarithm of the magnitude.
            proxies = [math.copysign(_BELOW_ALL + math.log(abs(each)), each) if each else 0.0 for each in proxies]
        rows = [
            (proxy, -math.log(latency), -math.log(memory))
            for proxy, latency, memory in zip(proxies, points[:, 1].tolist(), points[:, 2].tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.float64) / math.log1p(self.epsilon)
