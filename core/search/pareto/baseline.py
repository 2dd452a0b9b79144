"""The baseline: stock models of several depths. Searches are compared with the baseline, and the baseline determines
the reference point of the hypervolume.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.search.pareto.frontier import checked_points
from edgefront.core.search.pareto.options import Estimate, Ratio

MARGIN = 1.1
"""Ratio of the reference point's latency and memory to the worst baseline's."""
SAME_MEMORY = 1.005
"""Maximum ratio of equal peak memories, because launches of one model differ by up to this ratio."""


class Piece(NamedTuple):
    """A segment of a piecewise linear curve over the proxy."""

    last: float
    """The highest proxy of the segment."""
    lines: tuple[tuple[float, float, float], ...]
    """Lines of (proxy, value at this proxy, slope). The curve is the maximum of the lines."""


class Baseline:
    """Latency and memory of the measured stock models (baselines) as curves over the proxy, linear between two depths.

    Args:
        points: rows of (proxy, latency_ms, memory_bytes), in any order; rows of equal proxy are averaged.
        half_widths_ms: half of the 95 % interval of each latency; NaN if unknown, None if all are unknown.
    """

    def __init__(self, points: ArrayLike, half_widths_ms: ArrayLike | None = None) -> None:
        rows = checked_points(points)
        proxies, place = np.unique(rows[:, 0], return_inverse=True)
        counts = np.bincount(place)

        def averaged(values: NDArray[np.float64]) -> list[float]:
            average: list[float] = (np.bincount(place, weights=values) / counts).tolist()
            return average

        # Lists, because the lookup of one value in an array takes ten times as long.
        self._proxies: list[float] = proxies.tolist()
        latency, memory = averaged(rows[:, 1]), averaged(rows[:, 2])
        self._half_widths = averaged(_half_widths(half_widths_ms, len(rows)))
        self.latency_curve, self.memory_curve = _curve(self._proxies, latency), _curve(self._proxies, memory)
        """Curves of latency (ms) and of peak memory (bytes) over the proxy."""

    @property
    def proxies(self) -> tuple[float, float]:
        """The least and the highest proxy of the measured baselines."""
        return self._proxies[0], self._proxies[-1]

    def at(self, proxy: float) -> tuple[float, float, bool]:
        """Latency (ms) and peak memory (bytes) of the baseline at this proxy, and whether both are extrapolated."""
        low, high = self.proxies
        return self._value(self.latency_curve, proxy), self._value(self.memory_curve, proxy), not low <= proxy <= high

    def latency(self, proxy: float) -> Estimate:
        """Latency of the baseline at this proxy, in ms, with an interval interpolated within the measured range."""
        half = float(np.interp(proxy, self._proxies, self._half_widths))
        return Estimate.plus_minus(self.at(proxy)[0], half if math.isfinite(half) else None)

    def _value(self, curve: Sequence[Piece], proxy: float) -> float:
        lines = curve[bisect_left(self._proxies, proxy)].lines
        return max(value + slope * (proxy - at) for at, value, slope in lines)


def _curve(proxies: Sequence[float], values: Sequence[float]) -> list[Piece]:
    """Returns a figure as a curve over the proxy. The curve is linear between measured depths. Beyond the measured
    range, the two nearest depths are extrapolated within two bounds: a smaller model costs at least in proportion to
    the smallest depth (if the proxy counts from 0), and a deeper model costs at least as much as the deepest.
    """
    knots = list(zip(proxies, values, strict=True))
    slopes = [(after - before) / (high - low) for (low, before), (high, after) in pairwise(knots)]
    least, smallest = knots[0]
    bounds = [(least, smallest, 0.0)]
    if least > 0:
        bounds = [(least, smallest, smallest / least), (least, smallest * min(1.0, least / 2) / least, 0.0)]
    return [
        Piece(least, ((least, smallest, slopes[0] if slopes else 0.0), *bounds)),
        *(Piece(high, ((high, value, slope),)) for (high, value), slope in zip(knots[1:], slopes, strict=True)),
        Piece(math.inf, ((*knots[-1], slopes[-1] if slopes else 0.0), (*knots[-1], 0.0))),
    ]


def reference(points: ArrayLike) -> dict[str, float]:
    """Computes the reference point of the hypervolume. All generations of a target have the same reference point.

    Args:
        points: rows of (proxy, latency_ms, memory_bytes) of the measured baselines, not empty.

    Returns:
        `proxy_scale` is the largest proxy of a baseline. `proxy` is 0; if the least proxy is 0 or less, `proxy` is a
        tenth of the range below the least proxy. `latency_ms` and `memory_bytes` are a tenth above the largest.
    """
    rows = checked_points(points)
    low, high = float(rows[:, 0].min()), float(rows[:, 0].max())
    return {
        "proxy": 0.0 if low > 0 else low - (MARGIN - 1.0) * (high - low or abs(low) or 1.0),
        "proxy_scale": high,
        "latency_ms": float(rows[:, 1].max() * MARGIN),
        "memory_bytes": float(rows[:, 2].max() * MARGIN),
    }


def versus(
    baseline: Baseline, proxy: float, latency_ms: float, memory_bytes: float, half_width_ms: float | None = None
) -> dict[str, Any]:
    """Compares a candidate with the baseline at equal proxy. Returns the fields of `core.schemas.candidates.Versus`.

    `half_width_ms` is half of the 95 % interval of the candidate's latency; None if unknown.
    """
    latency, memory, extrapolated = baseline.at(proxy)
    speedup = baseline.latency(proxy).over(Estimate.plus_minus(latency_ms, half_width_ms))
    return {
        "latency_ms": latency,
        "memory_bytes": memory,
        "speedup": speedup.value,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "memory_ratio": memory / memory_bytes,
        "extrapolated": extrapolated,
    }


def summary(
    frontier: ArrayLike,
    baseline: Baseline,
    proxy: str = "decoder_parameters",
    half_widths_ms: ArrayLike | None = None,
    *,
    own: bool = False,
) -> str:
    """Compares a frontier with the baseline in one sentence, and claims only differences that the intervals support.

    Args:
        frontier: rows of (proxy, latency_ms, memory_bytes). Only points within the baseline's range of the proxy are
            compared. If the baseline is the user's model (one point), all points at least as good are compared.
        proxy: name of the proxy.
        half_widths_ms: half of the 95 % interval of each latency; NaN if unknown, None if all are unknown.
        own: whether the baseline is the user's model.
    """
    rows = checked_points(frontier)
    widths = _half_widths(half_widths_ms, len(rows))
    best = baseline.proxies[1]
    ratios, memory = [], []
    for (value, latency, size), width in zip(rows.tolist(), widths.tolist(), strict=True):
        beside = min(value, best) if own else value
        _, same_memory, extrapolated = baseline.at(beside)
        if not extrapolated:
            time = Estimate.plus_minus(latency, width if math.isfinite(width) else None)
            ratios.append(baseline.latency(beside).over(time))
            memory.append(same_memory / size)
    if not len(rows):
        return "No frontier: no searched model was measured within the limits."
    named = in_words(proxy)
    if not ratios:
        if own:
            return f"No frontier point is as good as my model by {named}."
        return f"No frontier point lies within the baseline's range of {named}."
    equal, than = ("equal or better", "my model") if own else ("equal", "the baseline")
    return _sentence(ratios, np.array(memory), len(rows), f"{equal} {named}", than)


def in_words(proxy: str) -> str:
    """The name of a proxy for use in a sentence, such as `decoder parameters` or `grad_norm`."""
    names = {"quality_law": "predicted perplexity"}
    return proxy.replace("_", " ") if proxy.endswith("_parameters") else names.get(proxy, proxy)


def _sentence(speed: Sequence[Ratio], memory: NDArray[np.float64], size: int, quality: str, than: str) -> str:
    faster = np.array([ratio.value > 1.0 if ratio.spread is None else ratio.above for ratio in speed])
    both = int(np.count_nonzero(faster & (memory > SAME_MEMORY)))
    which = "frontier points" if len(speed) == size else "frontier points in its range"
    points = f" {both} of {len(speed)} {which} {'is' if both == 1 else 'are'} both faster and smaller."
    # The largest lower end of the intervals, because the largest of noisy ratios is mostly luck.
    best = max(speed, key=lambda ratio: ratio.value if ratio.low is None else ratio.low)
    most = _both(best, float(memory.max()), "up to", "at best")
    return f"At {quality} {most} in peak memory than {than}.{points if len(speed) > 1 else ''}"


def _both(speed: Ratio, memory: float, when_better: str, when_not: str) -> str:
    """Both ratios in words, such as `up to 1.8× (1.6–2.0×) faster and 1.4× smaller`."""
    first, second = (when_better if ratio >= 1.0 else when_not for ratio in (speed.value, memory))
    smaller = _ratio(memory, "smaller", "larger")
    if speed.low is not None and speed.high is not None and not (speed.above or speed.below):
        same = f"no measurable difference in latency ({speed.low:.2f}–{speed.high:.2f}×)"
        return f"{speed.unsure('latency') or same}, {second} {smaller}"
    middle = f"and {smaller}" if first == second else f"but {second} {smaller}"
    return f"{first} {_ratio(speed.value, 'faster', 'slower', _interval(speed))} {middle}".strip()


def _interval(ratio: Ratio) -> str:
    """The interval of a ratio in words, such as ` (1.6–2.0×)`, inverted for a ratio below 1; empty if unknown."""
    if ratio.low is None or ratio.high is None:
        return ""
    low, high = (ratio.low, ratio.high) if ratio.value >= 1.0 else (1.0 / ratio.high, 1.0 / ratio.low)
    digits = 1 if low >= 1.095 else 2
    return f" ({low:.{digits}f}–{high:.{digits}f}×)"


def _ratio(value: float, better: str, worse: str, interval: str = "") -> str:
    """A ratio in words, such as `1.8× faster` or `1.05× slower`."""
    factor, word = (value, better) if value >= 1.0 else (1.0 / value, worse)
    return f"{factor:.1f}×{interval} {word}" if factor >= 1.095 else f"{factor:.2f}×{interval} {word}"


def _half_widths(given: ArrayLike | None, count: int) -> NDArray[np.float64]:
    return np.full(count, np.nan) if given is None else np.asarray(given, dtype=np.float64)
