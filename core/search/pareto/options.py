"""Measured models that can be recommended (`Option`), limits on their figures, and ratios of uncertain figures.

All intervals are 95 % intervals, symmetric on the logarithm; errors of two figures are assumed independent. A ratio
counts as a difference only if the interval of the ratio excludes 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgefront.core.common.units import MB, decimals, plain, rounded
from edgefront.core.measurement.statistics import Standing, standing

ALIKE = 0.1
"""Half-width of a ratio's interval around 1, on the logarithm, above which the difference is called not known."""
WIDE = 0.4
"""Half-width, on the logarithm, above which an interval is printed by its ends, because `±` would be wrong."""


@dataclass(frozen=True)
class Estimate:
    """A positive figure. `spread` is half of the figure's 95 % interval on the logarithm, None if unknown."""

    value: float
    spread: float | None = None

    @classmethod
    def plus_minus(cls, value: float, half_width: float | None) -> Estimate:
        """Returns a figure with an interval of this half-width, in the figure's unit."""
        return cls(value, None if half_width is None else math.asinh(half_width / value))

    @classmethod
    def between(cls, value: float, low: float | None, high: float | None) -> Estimate:
        """Returns a figure with an interval from `low` to `high`."""
        has_interval = low is not None and high is not None and 0 < low <= high
        return cls(value, math.log(high / low) / 2 if has_interval and low and high else None)

    @property
    def high(self) -> float:
        """Upper end of the figure's interval; the figure itself if the interval is unknown."""
        return self.value * math.exp(self.spread or 0.0)

    def __str__(self) -> str:
        """The figure as text with its interval, such as `31.2 ± 0.9` or `180 (90 to 390)`."""
        if not self.spread:
            return rounded(self.value, 4)
        if self.spread > WIDE:
            low, high = self.value * math.exp(-self.spread), self.high
            return f"{rounded(self.value, 2)} ({rounded(low, 2)} to {rounded(high, 2)})"
        half = self.value * math.sinh(self.spread)
        digits = decimals(half)
        return f"{self.value:.{digits}f} ± {half:.{digits}f}"

    def over(self, other: Estimate) -> Ratio:
        has_spread = self.spread is not None and other.spread is not None
        return Ratio(
            self.value / other.value, math.hypot(self.spread or 0.0, other.spread or 0.0) if has_spread else None
        )


@dataclass(frozen=True)
class Ratio:
    """The ratio of two figures. `spread` is half of the ratio's 95 % interval on the logarithm, None if unknown."""

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
        """Whether the ratio's interval lies above 1."""
        return self.spread is not None and math.log(self.value) > self.spread

    @property
    def below(self) -> bool:
        """Whether the ratio's interval lies below 1."""
        return self.spread is not None and -math.log(self.value) > self.spread

    def in_percent(self, name: str, more: str = "higher", less: str = "lower") -> str:
        """The ratio as a percentage in words, such as `latency 4.1 ± 1.2 % lower`."""
        percent = 100 * abs(self.value - 1)
        word = more if self.value >= 1 else less
        if self.spread is None:
            return f"{name} {rounded(percent, 2)} % {word} (one launch each)"
        if not (self.above or self.below):
            return self.unsure(name) or f"no measurable difference in {name} ({self.change[1]})"
        if self.spread > WIDE:
            return f"{name} {self.ends}"
        return f"{name} {' '.join(self.change)} {word}" if self.spread else f"{name} {percent:.1f} % {word}"

    @property
    def ends(self) -> str:
        """The ends of the interval: `0.6 to 1.7 ×`. The spread must be known."""
        return f"{rounded(self.low or 0.0, 2)} to {rounded(self.high or 0.0, 2)} ×"

    def unsure(self, name: str) -> str:
        """Text of a ratio whose interval is so wide around 1 that nothing is known; else empty."""
        is_wide = self.spread is not None and self.spread > ALIKE and not (self.above or self.below)
        return f"difference in {name} not known: {self.ends}" if is_wide else ""

    @property
    def change(self) -> tuple[str, str]:
        """Texts of the ratio's distance from 1 (`1.6`) and half-width (`± 2.8 %`). The spread must be known."""
        assert self.spread is not None
        half = 100 * self.value * math.sinh(self.spread)
        digits = decimals(half) if half else 1
        return f"{100 * abs(self.value - 1):.{digits}f}", f"± {half:.{digits}f} %"


MEMORY_SPREAD = 0.005
"""Half-width of the 95 % interval of a peak memory, on the logarithm. Launches of one model differ by less."""
TRAINING_SPREAD = 0.012
"""Half-width of the 95 % interval of a perplexity after one training, on the logarithm. The value is the scatter around
a smooth scaling law of models with the same training.
"""

By = Literal["trained", "predicted", "proxy"]


LimitName = Literal["latency_ms", "memory_mb", "first_token_ms", "token_ms"]


@dataclass(frozen=True)
class OptionLimits:
    """Maxima of an option's figures; None: unlimited. `first_token_ms` and `token_ms` are times of text generation."""

    latency_ms: float | None = None
    memory_mb: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None

    @property
    def given(self) -> dict[LimitName, float]:
        return {name: limit for name in UNITS if (limit := getattr(self, name)) is not None}

    @property
    def pace(self) -> LimitName:
        """The time by which models are compared: the limited one, of several that of a further token."""
        times: tuple[LimitName, ...] = ("token_ms", "first_token_ms", "latency_ms")
        return next((name for name in times if name in self.given), "latency_ms")

    def standings(self, option: Option) -> dict[LimitName, Standing]:
        """How each limited figure of the option stands to its limit; without figures that were not measured."""
        return {
            name: standing(figure.value, figure.spread or 0.0, limit)
            for name, limit in self.given.items()
            if (figure := option.figure(name)) is not None
        }

    def surely_met(self, option: Option) -> bool:
        """Whether the interval of each limited figure lies within the limit."""
        return all(stand == "within" for stand in self.standings(option).values())

    def violation(self, option: Option) -> float:
        """Constraint violation: the sum of ln(value / limit) over the exceeded limits; 0 within all limits."""
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
TIMES: dict[LimitName, str] = {
    "latency_ms": "latency",
    "first_token_ms": "time to the first token",
    "token_ms": "time of a further token",
}
NAMES: dict[LimitName, str] = {
    "latency_ms": "latency",
    "memory_mb": "memory",
    "first_token_ms": "first-token",
    "token_ms": "further-token",
}


@dataclass(frozen=True)
class Option:
    """A measured model that can be recommended."""

    id: str
    digest: str
    """Digest of the option's architecture."""
    stock: bool
    """Whether the option is a baseline: a stock model with a scaled number of layers."""
    name: str
    """Name of the option for people, such as `4 layers`."""
    parameters: int
    """Number of parameters of the decoder."""
    score: float
    """Score of the option by the job's proxy; higher is better."""
    latency: Estimate
    """Measured latency in ms."""
    memory: Estimate
    """Measured peak memory in bytes."""
    first_token: Estimate | None = None
    """Time to the first token of a text generation in ms; `token` is the time of each later token."""
    token: Estimate | None = None
    conditions: str = "measured"
    """How the option was measured: `measured with 2 threads`."""
    predicted: Estimate | None = None
    """Predicted perplexity, or the ratio of the predicted perplexity to the scaling law's reference model's."""
    relative: bool = False
    """Whether `predicted` is a ratio of perplexities."""
    label: str = ""
    """Data and training that `predicted` refers to, in a few words."""
    trained: float | None = None
    """Perplexity after training; known only for models with the same training."""
    trained_alone: bool = False
    """Whether the option is the only trained one, so that `trained` is None."""
    bits: int = 32
    """Bits per weight."""

    def figure(self, limit: LimitName) -> Estimate | None:
        """The option's figure that a limit bounds, in the limit's unit; None if it was not measured."""
        if limit == "memory_mb":
            return Estimate(self.memory.value / MB, self.memory.spread)
        return {"latency_ms": self.latency, "first_token_ms": self.first_token, "token_ms": self.token}[limit]

    def value(self, limit: LimitName) -> float:
        """The option's figure that a limit bounds, in the limit's unit; ∞ if it was not measured."""
        figure = self.figure(limit)
        return math.inf if figure is None else figure.value

    @property
    def perplexity(self) -> Estimate | None:
        return self.predicted if self.trained is None else Estimate(self.trained, TRAINING_SPREAD)


@dataclass(frozen=True)
class Move:
    """Advice to raise a limit: with the higher value `to`, `option` is within the limit."""

    limit: LimitName
    to: float
    option: Option


QualityRatio = Callable[[Option, Option], Ratio]
"""Function: predicted perplexity of the first option divided by the predicted perplexity of the second option."""


def independent(option: Option, other: Option) -> Ratio:
    """Ratio of the predicted perplexities of `option` and `other`, if the errors of the predictions are independent."""
    assert option.predicted is not None
    assert other.predicted is not None
    return option.predicted.over(other.predicted)


def difference(option: Option, other: Option, ratio: QualityRatio) -> Ratio | None:
    """Ratio of the perplexities of two options: measured if both are trained, else predicted. None if unknown."""
    if option.trained is not None and other.trained is not None:
        return Estimate(option.trained, TRAINING_SPREAD).over(Estimate(other.trained, TRAINING_SPREAD))
    if option.predicted is not None and other.predicted is not None:
        return ratio(option, other)
    return None
