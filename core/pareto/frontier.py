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

Ratios of two figures that are uncertain, and what may be said of them.

Intervals are those of 95 %, even on the logarithm; errors of the two figures are taken to be independent. Nothing is
called a difference that the interval of the ratio does not support.

Measured models that may be chosen, and limits on what they take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.units import MB, decimals, plain, rounded

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
        rows = [
            (proxy if self.logarithmic else _signed_log(proxy), -math.log(latency), -math.log(memory))
            for proxy, latency, memory in zip(proxies, points[:, 1].tolist(), points[:, 2].tolist(), strict=True)
        ]
        return np.array(rows, dtype=np.float64) / math.log1p(self.epsilon)


def _signed_log(value: float) -> float:
    """Rises with the value, by as much as the logarithm of its magnitude changes."""
    return math.copysign(_BELOW_ALL + math.log(abs(value)), value) if value else 0.0


WIDE = 0.4
"""Half an interval, on the logarithm, from which on its ends are named: to both sides alike it would be wrong."""


@dataclass(frozen=True)
class Figure:
    """A positive figure; `spread` is half its 95 % interval on the logarithm, None where that is not known."""

    value: float
    spread: float | None = None

    @classmethod
    def plus_minus(cls, value: float, half_width: float | None) -> Figure:
        """A figure from half the width of its interval, in the figure's unit."""
        return cls(value, None if half_width is None else math.asinh(half_width / value))

    @classmethod
    def between(cls, value: float, low: float | None, high: float | None) -> Figure:
        """A figure from the ends of its interval."""
        has_interval = low is not None and high is not None and 0 < low <= high
        return cls(value, math.log(high / low) / 2 if has_interval and low and high else None)

    @property
    def high(self) -> float:
        """The interval's upper end; the figure itself where that is not known."""
        return self.value * math.exp(self.spread or 0.0)

    def __str__(self) -> str:
        """`31.2 ± 0.9`, `180 (90 to 390)`; the value alone where no interval is known."""
        if not self.spread:
            return rounded(self.value, 4)
        if self.spread > WIDE:
            low, high = self.value * math.exp(-self.spread), self.high
            return f"{rounded(self.value, 2)} ({rounded(low, 2)} to {rounded(high, 2)})"
        half = self.value * math.sinh(self.spread)
        digits = decimals(half)
        return f"{self.value:.{digits}f} ± {half:.{digits}f}"

    def over(self, other: Figure) -> Ratio:
        has_spread = self.spread is not None and other.spread is not None
        return Ratio(
            self.value / other.value, math.hypot(self.spread or 0.0, other.spread or 0.0) if has_spread else None
        )


@dataclass(frozen=True)
class Ratio:
    """One figure over another; `spread` as of a figure."""

    value: float
    spread: float | None

    @property
    def low(self) -> float | None:
        return None if self.spread is None else self.value * math.exp(-self.spread)

    @property
    def high(self) -> float | None:
        return None if self.spread is None else self.value * math.exp(self.spread)

    @property
    def above(self) -> bool:
        """Whether it is more than 1 for sure."""
        return self.spread is not None and math.log(self.value) > self.spread

    @property
    def below(self) -> bool:
        """Whether it is less than 1 for sure."""
        return self.spread is not None and -math.log(self.value) > self.spread

    def in_percent(self, name: str, more: str = "higher", less: str = "lower") -> str:
        """`latency 4.1 ± 1.2 % lower`, `no measurable difference in latency (± 2.3 %)`."""
        percent = 100 * abs(self.value - 1)
        word = more if self.value >= 1 else less
        if self.spread is None:
            return f"{name} {rounded(percent, 2)} % {word} (one launch each)"
        if not (self.above or self.below):
            return f"no measurable difference in {name} ({self.change[1]})"
        return f"{name} {' '.join(self.change)} {word}" if self.spread else f"{name} {percent:.1f} % {word}"

    @property
    def change(self) -> tuple[str, str]:
        """`1.6` and `± 2.8 %`: how far it is from 1, with no more digits than the interval allows; that is known."""
        assert self.spread is not None
        half = 100 * self.value * math.sinh(self.spread)
        digits = decimals(half) if half else 1
        return f"{100 * abs(self.value - 1):.{digits}f}", f"± {half:.{digits}f} %"


MEMORY_SPREAD = 0.005
"""Half-width of the 95 % interval of a peak memory, on the logarithm: launches of one model differ by less."""
TRAINING_SPREAD = 0.012
"""Half-width of the 95 % interval of a perplexity after one training, on the logarithm: by so much do models that were
trained alike scatter around a smooth law of their shapes.
"""

By = Literal["trained", "predicted", "proxy"]


LimitName = Literal["latency_ms", "memory_mb", "first_token_ms", "token_ms"]


@dataclass(frozen=True)
class OptionLimits:
    """What an `Option` may take at most; None: without a limit. Memory in MB; the last two: times of a generation."""

    latency_ms: float | None = None
    memory_mb: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None

    @property
    def given(self) -> dict[LimitName, float]:
        return {name: limit for name in UNITS if (limit := getattr(self, name)) is not None}

    def violation(self, option: Option) -> float:
        """How far an option exceeds the limits: the sum of ln(value / limit) over those exceeded; 0 within them."""
        return sum(max(0.0, math.log(option.value(name) / limit)) for name, limit in self.given.items())

    def __str__(self) -> str:
        words = {name: f"{plain(limit)} {UNITS[name]}" for name, limit in self.given.items()}
        if {"first_token_ms", "token_ms"} <= words.keys():
            words["first_token_ms"] = words["first_token_ms"].removesuffix(" token")
        *first, last = words.values() or [""]
        return f"{', '.join(first)} and {last}" if first else last


UNITS: dict[LimitName, str] = {
    "latency_ms": "ms",
    "memory_mb": "MB",
    "first_token_ms": "ms to the first token",
    "token_ms": "ms a further token",
}
NAMES: dict[LimitName, str] = {
    "latency_ms": "latency",
    "memory_mb": "memory",
    "first_token_ms": "first-token",
    "token_ms": "further-token",
}


@dataclass(frozen=True)
class Option:
    """A measured model that may be chosen."""

    id: str
    digest: str
    """Of its architecture."""
    stock: bool
    """Whether it is one of the layer-scaled baselines."""
    name: str
    """Name for people, such as `4 layers`."""
    parameters: int
    """Parameters of the decoder."""
    score: float
    """Score by the job's proxy; higher is better."""
    latency: Figure
    """Latency in ms."""
    memory: Figure
    """Peak memory in bytes."""
    first_token_ms: float | None = None
    """Time to the first token of a generation; `token_ms` is that of each further one."""
    token_ms: float | None = None
    predicted: Figure | None = None
    """Perplexity, or its ratio to that of a model of the law's choice."""
    relative: bool = False
    """Whether `predicted` is a ratio."""
    label: str = ""
    """What `predicted` is of, in a few words."""
    trained: float | None = None
    """Perplexity after training; only of models that were trained alike."""
    bits: int = 32
    """Bits of a weight."""

    def value(self, limit: LimitName) -> float:
        """The figure that a limit bounds, in the limit's unit; ∞ if it is unknown."""
        if limit == "latency_ms":
            return self.latency.value
        if limit == "memory_mb":
            return self.memory.value / MB
        figure: float | None = getattr(self, limit)
        return math.inf if figure is None else figure

    @property
    def perplexity(self) -> Figure | None:
        return self.predicted if self.trained is None else Figure(self.trained, TRAINING_SPREAD)


@dataclass(frozen=True)
class Move:
    """A limit that would have to be moved for `option` to be within."""

    limit: LimitName
    to: float
    option: Option


QualityRatio = Callable[[Option, Option], Ratio]
"""Predicted perplexity of the first by that of the second."""


def independent(option: Option, other: Option) -> Ratio:
    """The ratio if the errors of the two predictions had nothing in common."""
    assert option.predicted is not None
    assert other.predicted is not None
    return option.predicted.over(other.predicted)


def difference(option: Option, other: Option, ratio: QualityRatio) -> Ratio | None:
    """Perplexity of one by that of the other, after training or as predicted; None where neither is known of both."""
    if option.trained is not None and other.trained is not None:
        return Figure(option.trained, TRAINING_SPREAD).over(Figure(other.trained, TRAINING_SPREAD))
    if option.predicted is not None and other.predicted is not None:
        return ratio(option, other)
    return None
