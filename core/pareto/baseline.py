"""The layer-scaled baseline: what the search is compared with, and what fixes the reference point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MARGIN = 1.1
"""The reference point lies this factor beyond the worst baseline."""


class Baseline:
    """The measured baselines as curves over decoder parameters, linear between two depths.

    Args:
        points: rows of (decoder_parameters, latency_ms, memory_bytes), in any order; rows of equal parameters are
            averaged. Not empty (ValueError).
    """

    def __init__(self, points: ArrayLike) -> None:
        rows = _rows(points)
        if not len(rows):
            raise ValueError("a baseline needs at least one measured depth")
        self._parameters, place = np.unique(rows[:, 0], return_inverse=True)
        counts = np.bincount(place)
        self._latency = np.bincount(place, weights=rows[:, 1]) / counts
        self._memory = np.bincount(place, weights=rows[:, 2]) / counts

    @property
    def parameters(self) -> tuple[float, float]:
        """The least and the most decoder parameters that were measured."""
        return float(self._parameters[0]), float(self._parameters[-1])

    def at(self, decoder_parameters: float) -> tuple[float, float, bool]:
        """Latency (ms) and peak memory (bytes) of the baseline at these parameters, and whether it is extrapolated.

        Beyond the measured depths the nearest two are continued, but never below what is sure: nothing is free (a
        model below the smallest depth costs at least its share of it) and no deeper model is cheaper than the deepest.
        """
        low, high = self.parameters
        outside = not low <= decoder_parameters <= high
        return self._curve(self._latency, decoder_parameters), self._curve(self._memory, decoder_parameters), outside

    def _curve(self, values: NDArray[np.float64], wanted: float) -> float:
        known = self._parameters
        if known[0] <= wanted <= known[-1]:
            return float(np.interp(wanted, known, values))
        near, far = (0, 1) if wanted < known[0] else (-1, -2)
        slope = (values[near] - values[far]) / (known[near] - known[far]) if len(known) > 1 else 0.0
        continued = values[near] + slope * (wanted - known[near])
        sure = values[0] * max(wanted, 1.0) / known[0] if wanted < known[0] else values[-1]
        return float(max(continued, sure))


def reference(points: ArrayLike, proxies: ArrayLike | None = None) -> dict[str, float]:
    """The reference point that the baselines fix for all generations of a target.

    Args:
        points: rows of (decoder_parameters, latency_ms, memory_bytes) of the measured baselines, not empty.
        proxies: their proxies; the decoder parameters if None.

    Returns:
        `proxy` 0, `proxy_scale` the largest baseline proxy; `latency_ms` and `memory_bytes` a tenth beyond the worst.
    """
    rows = _rows(points)
    if not len(rows):
        raise ValueError("a reference point needs at least one measured baseline")
    scale = rows[:, 0] if proxies is None else np.asarray(proxies, dtype=np.float64)
    return {
        "proxy": 0.0,
        "proxy_scale": float(scale.max()),
        "latency_ms": float(rows[:, 1].max() * MARGIN),
        "memory_bytes": float(rows[:, 2].max() * MARGIN),
    }


def versus(baseline: Baseline, decoder_parameters: float, latency_ms: float, memory_bytes: float) -> dict[str, Any]:
    """A candidate against the baseline at equal decoder parameters: the fields of `core.wire.jobs.Versus`."""
    latency, memory, extrapolated = baseline.at(decoder_parameters)
    return {
        "latency_ms": latency,
        "memory_bytes": memory,
        "speedup": latency / latency_ms,
        "memory_ratio": memory / memory_bytes,
        "extrapolated": extrapolated,
    }


def summary(frontier: ArrayLike, baseline: Baseline) -> str:
    """The claim in one sentence, honest also where the search has not (yet) won.

    Args:
        frontier: rows of (decoder_parameters, latency_ms, memory_bytes). Only those within the baseline's range of
            parameters are compared.
    """
    rows = _rows(frontier)
    compared = [versus(baseline, *map(float, row)) for row in rows]
    compared = [found for found in compared if not found["extrapolated"]]
    if not len(rows):
        return "No frontier yet."
    if not compared:
        return "No frontier point lies within the baseline's range of decoder parameters yet."
    return _sentence(compared, len(rows))


def _sentence(compared: Sequence[Mapping[str, Any]], size: int) -> str:
    speed = np.array([found["speedup"] for found in compared])
    memory = np.array([found["memory_ratio"] for found in compared])
    best = _both(float(speed.max()), float(memory.max()), "up to", "at best")
    median = _both(float(np.median(speed)), float(np.median(memory)), "", "")
    points = f"{len(compared)} of {size} frontier points" if len(compared) < size else f"{size} frontier points"
    points = points.removesuffix("s") if size == 1 else points
    both = int(np.count_nonzero((speed > 1.0) & (memory > 1.0)))
    points += f", {both} both faster and smaller" if len(compared) > 1 else ""
    return (
        f"At equal decoder parameters {best} in peak memory than the layer-scaled baseline; median {median} ({points})."
    )


def _both(speed: float, memory: float, when_better: str, when_not: str) -> str:
    """`up to 1.8× faster and 1.4× smaller`, `up to 1.8× faster but at best 1.1× larger`."""
    first, second = (when_better if ratio >= 1.0 else when_not for ratio in (speed, memory))
    middle = (
        f"and {_ratio(memory, 'smaller', 'larger')}"
        if first == second
        else (f"but {second} {_ratio(memory, 'smaller', 'larger')}")
    )
    return f"{first} {_ratio(speed, 'faster', 'slower')} {middle}".strip()


def _ratio(value: float, better: str, worse: str) -> str:
    """`1.8× faster`, `1.05× slower`."""
    factor, word = (value, better) if value >= 1.0 else (1.0 / value, worse)
    return f"{factor:.1f}× {word}" if factor >= 1.095 else f"{factor:.2f}× {word}"


def _rows(points: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"rows are (decoder_parameters, latency_ms, memory_bytes), not of shape {array.shape}")
    if not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError("decoder parameters, latency and memory must be finite and positive")
    return array
