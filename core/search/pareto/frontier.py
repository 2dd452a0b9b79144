"""Dominance and hypervolume of points, with moocore.

A point is (proxy, latency_ms, memory_bytes). The proxy is maximised; latency and memory are minimised. A point is
dominated if another point is better in one objective and no worse in the others. Equal points do not dominate each
other, so all equal points can be on the frontier.

`Dominance` is ε-dominance by boxes (Laumanns et al. 2002), with ε the relative error of measurement:

1. The logarithm of each objective is divided into boxes of width ln(1 + ε), at fixed places.
2. In each box one point remains: the point nearest to the box's best corner, or with the lowest digest in a tie.
3. The frontier is the non-dominated set of the boxes.

The frontier does not depend on the order of the points or on former points. Each point is within a factor 1 + ε of a
point on the frontier in every objective.
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

_BELOW_ALL = 750.0
"""A number greater than -ln(x) for every positive float x."""
_HIGHER_IS_BETTER = (1.0, -1.0, -1.0)


def nondominated(points: ArrayLike) -> Mask:
    """(n,) mask of the non-dominated points (n, 3), including equal points. Raises ValueError for non-finite points."""
    return _nondominated(checked_points(points) * _HIGHER_IS_BETTER)


def _nondominated(values: NDArray[np.float64]) -> Mask:
    """(n,) mask of the non-dominated rows among n rows of k values. All values are maximised."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(values, maximise=True, keep_weakly=True), dtype=bool)


def hypervolume(points: ArrayLike, reference: Mapping[str, float]) -> float:
    """Volume that the points (n, 3) dominate, divided by the volume of the box between ideal point and reference point.

    Args:
        points: (n, 3) points; dominated points, and points beyond the reference point, add nothing.
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
    """Converts points to a float64 array (n, 3). Raises ValueError if the shape is wrong or a number is not finite."""
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"points must have the shape (n, 3) of proxy, latency_ms, memory_bytes, not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite")
    return array


@dataclass(frozen=True)
class Dominance:
    """ε-dominance between points (see the module's docstring)."""

    epsilon: float = 0.0
    """Relative error of measurement. If 0, every difference counts, and equal points are on the frontier together."""
    logarithmic: bool = False
    """Whether the proxy of each point is already a logarithm."""

    def frontier(
        self, points: Sequence[Sequence[float]], digests: Sequence[str], exact: Sequence[Sequence[float]] = ()
    ) -> Mask:
        """(n,) mask of the points (n, 3) on the frontier.

        `digests` break ties in a box. `exact` (n, k) are k further objectives to maximise; every difference in these
        objectives counts. Raises ValueError if a point is not finite.
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
        """(n, 3) objectives of the points in edge lengths of the ε-boxes; higher is better."""
        # Logarithms one by one, because the final digit of an array's logarithms may depend on the array's length.
        proxies = points[:, 0].tolist()
        if not self.logarithmic:
            # A function that is monotonic, even below 0, with the steps of the logarithm of the magnitude.
            proxies = [math.copysign(_BELOW_ALL + math.log(abs(each)), each) if each else 0.0 for each in proxies]
        rows = [
            (proxy, -math.log(latency), -math.log(memory))
            for proxy, latency, memory in zip(proxies, points[:, 1].tolist(), points[:, 2].tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.float64) / math.log1p(self.epsilon)
