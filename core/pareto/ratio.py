"""Ratios of two figures that are uncertain, and what may be said of them.

Intervals are those of 95 %, even on the logarithm; errors of the two figures are taken to be independent. Nothing is
called a difference that the interval of the ratio does not support.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgefront.core.units import decimals, rounded

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
