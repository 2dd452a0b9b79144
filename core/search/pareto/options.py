"""Measured models that may be chosen, and limits on what they take.

Ratios of two figures that are uncertain, and what may be said of them.

Intervals are those of 95 %, even on the logarithm; errors of the two figures are taken to be independent. Nothing is
called a difference that the interval of the ratio does not support.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgefront.core.common.units import MB, decimals, plain, rounded

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
