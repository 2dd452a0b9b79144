"""Statistics of raw samples: medians, p90, and the interval of a latency.

Launches of one architecture differ more than the repeats within one launch, so an interval is taken over launches. One
candidate has too few of them to estimate their variance, but the relative variance is the same for all candidates of a
device: it is pooled over them on the logarithms of the launches' medians (a pooled variance, as in a one-way layout).
Where the launches of one candidate differ by more than that, its interval covers them all.
While few are pooled, what is known of other devices counts too: a prior of `PRIOR_SPREAD`, worth `PRIOR_DEGREES` (the
conjugate prior of a normal variance, scaled inverse χ²).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

Z_95 = 1.959964
"""Standard deviations to either side of the mean that hold 95 % of a normal distribution."""
MAD_TO_STD = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation (Rousseeuw & Croux 1993)."""
P90_SAMPLES = 20
"""Fewer samples than this say nothing about the slowest tenth."""

PRIOR_SPREAD, PRIOR_DEGREES = 0.02, 2
"""Relative spread of the launches of a device of which nothing is known (real ones have 1 to 6 %), and the degrees of
freedom that this is worth. No device is taken to be steadier than this when variances are judged.
"""
CLIPPED, LEFT_OUT = 9.0, 36.0
"""Times the usual variance: squares of three and six standard deviations."""
MAX_SPREAD = 0.5
"""Relative spread of launches that intervals are taken for at most: beyond it launches do not agree at all."""
MAX_HALF_WIDTH = math.asinh(1.0)
"""Half-width of an interval, of the logarithm: half of an interval is never wider than the latency itself."""
MIN_APART, MAX_APART, SPREADS_APART = math.log(1.3), math.log(2.0), 6.0
"""Launches of one model are closer than the first, or than so many standard deviations, and never farther apart than
the second.
"""
DECISIVE = 2
"""Launches that say on which side of a limit a time is, however close."""

# Variance of the median of n normal samples, times n, relative to the mean's (by numerical integration of the
# order statistics' densities). Beyond the table the asymptotic form serves.
_MEDIAN_VARIANCE = (
    *(1.0, 1.0, 1.346013, 1.192798, 1.434168, 1.288456, 1.473128, 1.345447, 1.494912, 1.383264),
    *(1.508787, 1.410194, 1.518387, 1.43035, 1.52542, 1.446003, 1.530792, 1.458513, 1.535029, 1.468741),
)


def p90(samples: Sequence[float]) -> float | None:
    """The 0.9 quantile, linear between samples (Hyndman & Fan's type 7); None from fewer than 20 samples."""
    if len(samples) < P90_SAMPLES:
        return None
    return float(statistics.quantiles(samples, n=10, method="inclusive")[-1])


@dataclass(frozen=True)
class LogLaunches:
    """Running mean and spread of the natural logarithms of launches' medians (Welford 1962).

    `mean` and `sum_squares` (squared deviations from the mean) are what a measurement keeps of its launches.
    """

    count: int = 0
    mean: float = 0.0
    sum_squares: float = 0.0

    def with_launch(self, median_ms: float) -> LogLaunches:
        """These and one launch more, whose median latency was `median_ms` (> 0)."""
        value = math.log(median_ms)
        count = self.count + 1
        mean = self.mean + (value - self.mean) / count
        return LogLaunches(count, mean, self.sum_squares + (value - self.mean) * (value - mean))

    @classmethod
    def of(cls, medians_ms: Iterable[float]) -> LogLaunches:
        launches = cls()
        for value in medians_ms:
            launches = launches.with_launch(value)
        return launches

    def differ(self, variance: LaunchVariance) -> bool:
        """Whether these launches differ by more than the scatter of their device."""
        return self.count > 1 and math.sqrt(2 * self.sum_squares / (self.count - 1)) > tolerance(variance)

    def farthest(self, median_ms: float) -> float:
        """The distance from their median (a logarithm) within which all of them lie (Samuelson 1968)."""
        most = math.sqrt(self.sum_squares * (self.count - 1) / self.count)
        return abs(self.mean - math.log(median_ms)) + most


@dataclass(frozen=True)
class LaunchVariance:
    """Variance of a launch's log median, pooled over the measurements of a device under one protocol.

    `sum_squares` adds the measurements' squared deviations, `degrees` their launches less one each.
    """

    sum_squares: float = 0.0
    degrees: int = 0

    @classmethod
    def pooled(cls, measurements: Iterable[tuple[int, float]]) -> LaunchVariance:
        """From (launches, squared deviations) of each measurement; those with one launch contribute nothing.

        Robust: a measurement whose variance is beyond `CLIPPED` times the usual one counts as that much, and one beyond
        `LEFT_OUT` times not at all. The usual one is the median over the measurements and the prior, so that a first
        measurement whose launches contradict each other says nothing, and several that agree say more than the prior.
        """
        repeated = [(launches - 1, sum_squares) for launches, sum_squares in measurements if launches > 1]
        kept = repeated
        for _ in range(2):  # what is left out moves the median too
            most = LEFT_OUT * _usual(kept)
            kept = [(degrees, total) for degrees, total in repeated if total <= most * degrees]
        most = CLIPPED * _usual(kept)
        return cls(sum(min(total, most * degrees) for degrees, total in kept), sum(degrees for degrees, _ in kept))

    @property
    def relative(self) -> float | None:
        """Standard deviation of a launch's median, relative to it, at most `MAX_SPREAD`; None while no measurement
        says anything.
        """
        if not self.degrees:
            return None
        total = self.sum_squares + PRIOR_DEGREES * PRIOR_SPREAD**2
        return min(MAX_SPREAD, math.sqrt(total / (self.degrees + PRIOR_DEGREES)))


def _usual(measurements: Sequence[tuple[int, float]]) -> float:
    """The usual variance (the lower of two middle ones), from (degrees of freedom, squared deviations) of each."""
    # By the median of χ² with these degrees of freedom (Wilson & Hilferty 1931).
    each = [total / (degrees * (1 - 2 / (9 * degrees)) ** 3) for degrees, total in measurements]
    return max(PRIOR_SPREAD**2, statistics.median_low([PRIOR_SPREAD**2, *each]))


def relative_half_width(launches: int, variance: LaunchVariance) -> float | None:
    """Half of the 95 % interval of the logarithm of the latency: the median over `launches` launches. At most
    `MAX_HALF_WIDTH`.

    None without launches, or while `variance` has no degrees of freedom.
    """
    spread = variance.relative
    if launches < 1 or spread is None:
        return None
    half = t_quantile(0.975, variance.degrees + PRIOR_DEGREES) * spread * _narrowing(launches)
    return min(MAX_HALF_WIDTH, half)


def _narrowing(launches: int) -> float:
    """The standard error of the median of so many launches by that of one."""
    tabulated = launches <= len(_MEDIAN_VARIANCE)
    excess = _MEDIAN_VARIANCE[launches - 1] if tabulated else math.pi / 2
    return math.sqrt(excess / launches)


def launches_needed(width: float, precision: float, most: int) -> int | None:
    """Launches after which half of an interval is no wider than `precision`; both relative to the latency. `width` is
    that of one launch. None if it would be wider after `most`.
    """
    half = math.asinh(width)
    return next((count for count in range(1, most + 1) if math.sinh(half * _narrowing(count)) <= precision), None)


def tolerance(variance: LaunchVariance) -> float:
    """How far apart (a logarithm) the medians of two launches of one model may be on a device that scatters so."""
    spread = PRIOR_SPREAD if variance.relative is None else variance.relative
    return min(MAX_APART, max(MIN_APART, SPREADS_APART * spread))


def is_decided(time_ms: float, limit_ms: float, launches: int, variance: LaunchVariance) -> bool:
    """Whether the launches of a model say on which side of a limit its time is. One launch alone does where none that
    agrees with it could be on the other side.
    """
    return launches >= DECISIVE or abs(math.log(time_ms / limit_ms)) > tolerance(variance)


def interval_ms(median_ms: float, launches: int | LogLaunches, variance: LaunchVariance) -> tuple[float, float] | None:
    """The 95 % interval of a latency in ms: even on the logarithm, so it never reaches below zero.

    `launches`: their number, or what is known of them. If they differ by more than the scatter of their device, the
    interval covers them, as far as `MAX_HALF_WIDTH` permits.
    """
    known = launches if isinstance(launches, LogLaunches) else LogLaunches(launches)
    half = relative_half_width(known.count, variance)
    if known.differ(variance):
        covering = math.asinh(math.expm1(known.farthest(median_ms)))  # the median ± the half width covers them too
        half = min(MAX_HALF_WIDTH, max(half or 0.0, covering))
    return None if half is None else (median_ms * math.exp(-half), median_ms * math.exp(half))


def half_width_ms(median_ms: float, launches: int | LogLaunches, variance: LaunchVariance) -> float | None:
    """Half the width of `interval_ms`, in ms."""
    bounds = interval_ms(median_ms, launches, variance)
    return None if bounds is None else (bounds[1] - bounds[0]) / 2


# Student's t without a statistics library, which would add 140 MB to a device that needs nothing else of it. Degrees of
# freedom are whole numbers here, for which the distribution has a closed form.

_MAX_EXACT_DEGREES = 200


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t with `degrees` degrees of freedom stays below with this probability.

    Relative error below 1e-9. Abramowitz & Stegun (1964): 26.7.3 and 26.7.4 (closed form for whole degrees, solved
    by bisection) up to 200 degrees, 26.7.5 (expansion around the normal quantile) beyond.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, not {probability}")
    if degrees < 1:
        raise ValueError(f"degrees of freedom are at least 1, not {degrees}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees > _MAX_EXACT_DEGREES:
        return _expanded(probability, degrees)
    within = 2 * probability - 1  # P(|T| < t)
    low, high = 0.0, math.pi / 2  # the angle whose tangent is t/√degrees
    for _ in range(80):
        middle = (low + high) / 2
        if _inside(middle, degrees) < within:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _inside(angle: float, degrees: int) -> float:
    """P(|T| < t) for t = √degrees · tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    square = cosine * cosine
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= square * (2 * k) / (2 * k + 1)
        return 2 / math.pi * (angle + sine * total)
    term, total = 1.0, 0.0
    for k in range(1, degrees // 2 + 1):
        total += term
        term *= square * (2 * k - 1) / (2 * k)
    return sine * total


def _expanded(probability: float, degrees: int) -> float:
    z = NormalDist().inv_cdf(probability)
    n = float(degrees)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4


def robust_std(deviations: ArrayLike) -> float:
    """Standard deviation of (n,) deviations from a centre, n ≥ 1, by the median of their absolute values."""
    return MAD_TO_STD * float(np.median(np.abs(deviations)))
