"""Dominance and hypervolume: arrays in, arrays out.

A point is (proxy, latency_ms, memory_bytes): a higher proxy is better, and lower values of the others. A point
dominates another if it is nowhere worse and somewhere better; so equal points do not dominate each other, and all of
them are on the frontier. Non-dominated sets and hypervolumes are moocore's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]
Mask = NDArray[np.bool_]

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
    return _hypervolume(_normalised(checked, reference))


def checked_points(points: Any) -> Points:
    """Points as an array (n, 3) of finite numbers; ValueError if they are not."""
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"points have the shape (n, 3): proxy, latency_ms, memory_bytes; not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite")
    return array


def _normalised(points: Points, reference: Mapping[str, float]) -> Points:
    """Points with the reference at (0, 1, 1) and the ideal corner at (1, 0, 0)."""
    low, scale = reference["proxy"], reference["proxy_scale"]
    return np.column_stack(
        [
            (points[:, 0] - low) / (scale - low),
            points[:, 1] / reference["latency_ms"],
            points[:, 2] / reference["memory_bytes"],
        ]
    )


def _hypervolume(normalised: Points) -> float:
    return float(moocore.hypervolume(normalised, ref=(0.0, 1.0, 1.0), maximise=_MAXIMISE))
