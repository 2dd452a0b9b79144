"""Statistics of raw samples: medians, p90, and the interval of a latency.

Launches of one architecture differ more than the repeats within one launch, so intervals are estimated from launches.
One candidate has too few launches to estimate a variance, but the relative variance is the same for all candidates of a
device. The variance is therefore pooled over all candidates, on the logarithms of the launches' medians (a pooled
variance, as in a one-way layout). If the launches of one candidate differ by more, the interval covers all launches.
The prior is a relative spread of `PRIOR_SPREAD`, typical of devices, worth `PRIOR_DEGREES` degrees of freedom (the
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
"""Number of standard deviations on either side of the mean that cover 95 % of a normal distribution."""
MAD_TO_STD = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation (Rousseeuw & Croux 1993)."""
P90_SAMPLES = 20
"""Minimum number of samples for a 90th percentile."""

PRIOR_SPREAD, PRIOR_DEGREES = 0.02, 2
"""Prior relative spread of a device's launches (devices have 1 to 6 %), and the prior's degrees of freedom. The usual
variance is at least the prior's.
"""
CLIPPED, LEFT_OUT = 9.0, 36.0
"""Ratios to the usual variance above which a variance is clipped or ignored: squares of 3 and 6 standard deviations."""
MAX_SPREAD = 0.5
"""Maximum relative spread of launches in an interval; launches with a larger spread do not agree at all."""
MAX_HALF_WIDTH = math.asinh(1.0)
"""Maximum half-width of an interval, on the logarithm; in ms the half-width is at most the latency."""
MIN_APART, MAX_APART, SPREADS_APART = math.log(1.3), math.log(2.0), 6.0
"""Bounds of the tolerance between launches of one model, on the logarithm, and the tolerance in standard deviations."""
DECISIVE = 2
"""Number of launches that always decide on which side of a limit a time is."""

# Variance of the median of n normal samples, times n, relative to the variance of the mean times n (by numerical
# integration of the order statistics' densities). For larger n the asymptotic form is used.
_MEDIAN_VARIANCE = (
    *(1.0, 1.0, 1.346013, 1.192798, 1.434168, 1.288456, 1.473128, 1.345447, 1.494912, 1.383264),
    *(1.508787, 1.410194, 1.518387, 1.43035, 1.52542, 1.446003, 1.530792, 1.458513, 1.535029, 1.468741),
)


def p90(samples: Sequence[float]) -> float | None:
    """90th percentile of the samples, linear between samples (Hyndman & Fan's type 7); None below 20 samples."""
    if len(samples) < P90_SAMPLES:
        return None
    return float(statistics.quantiles(samples, n=10, method="inclusive")[-1])


@dataclass(frozen=True)
class LogLaunches:
    """Running mean and spread of the natural logarithms of launches' medians (Welford 1962).

    A measurement stores `count`, `mean` and `sum_squares` (the sum of squared deviations from the mean).
    """

    count: int = 0
    mean: float = 0.0
    sum_squares: float = 0.0

    def with_launch(self, median_ms: float) -> LogLaunches:
        """Returns these statistics with one more launch of the median latency `median_ms` (> 0)."""
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
        """Whether these launches differ by more than the device's scatter explains."""
        return self.count > 1 and math.sqrt(2 * self.sum_squares / (self.count - 1)) > tolerance(variance)

    def farthest(self, median_ms: float) -> float:
        """Upper bound of |ln(latency / `median_ms`)| over all launches (Samuelson 1968)."""
        most = math.sqrt(self.sum_squares * (self.count - 1) / self.count)
        return abs(self.mean - math.log(median_ms)) + most


@dataclass(frozen=True)
class LaunchVariance:
    """Variance of a launch's log median, pooled over the measurements of a device under one protocol.

    `sum_squares` is the sum of all measurements' squared deviations, `degrees` the sum of (launches minus one) over all
    measurements.
    """

    sum_squares: float = 0.0
    degrees: int = 0

    @classmethod
    def pooled(cls, measurements: Iterable[tuple[int, float]]) -> LaunchVariance:
        """Pools the (number of launches, sum of squared deviations) of measurements with two launches or more.

        Robust: a measurement's variance is clipped at `CLIPPED` times the usual variance, and ignored above `LEFT_OUT`
        times. The usual variance is the median over the measurements and the prior. A first measurement with
        contradictory launches therefore has no weight, and several measurements that agree outweigh the prior.
        """
        repeated = [(launches - 1, sum_squares) for launches, sum_squares in measurements if launches > 1]
        kept = repeated
        for _ in range(2):  # twice, because ignored measurements also shift the median
            most = LEFT_OUT * _usual(kept)
            kept = [(degrees, total) for degrees, total in repeated if total <= most * degrees]
        most = CLIPPED * _usual(kept)
        return cls(sum(min(total, most * degrees) for degrees, total in kept), sum(degrees for degrees, _ in kept))

    @property
    def relative(self) -> float | None:
        """Relative standard deviation of a launch's median, at most `MAX_SPREAD`; None if no measurement was pooled."""
        if not self.degrees:
            return None
        total = self.sum_squares + PRIOR_DEGREES * PRIOR_SPREAD**2
        return min(MAX_SPREAD, math.sqrt(total / (self.degrees + PRIOR_DEGREES)))


def _usual(measurements: Sequence[tuple[int, float]]) -> float:
    """Low median of the prior variance and of variances given as (degrees of freedom, sum of squared deviations)."""
    # Each sum is divided by the median of χ² with these degrees of freedom (Wilson & Hilferty 1931).
    each = [total / (degrees * (1 - 2 / (9 * degrees)) ** 3) for degrees, total in measurements]
    return max(PRIOR_SPREAD**2, statistics.median_low([PRIOR_SPREAD**2, *each]))


def relative_half_width(launches: int, variance: LaunchVariance) -> float | None:
    """Half-width, on the logarithm, of the 95 % interval of a latency that is the median over `launches` launches. At
    most `MAX_HALF_WIDTH`.

    None if there are no launches or `variance` has no degrees of freedom.
    """
    spread = variance.relative
    if launches < 1 or spread is None:
        return None
    half = t_quantile(0.975, variance.degrees + PRIOR_DEGREES) * spread * _narrowing(launches)
    return min(MAX_HALF_WIDTH, half)


def _narrowing(launches: int) -> float:
    """Standard error of the median over this number of launches, divided by the standard deviation of one launch."""
    tabulated = launches <= len(_MEDIAN_VARIANCE)
    excess = _MEDIAN_VARIANCE[launches - 1] if tabulated else math.pi / 2
    return math.sqrt(excess / launches)


def launches_needed(width: float, precision: float, most: int) -> int | None:
    """Number of launches until the half-width of a latency's interval is at most `precision`; None if above `most`.
    `width` is the half-width after one launch. `width` and `precision` are relative to the latency.
    """
    half = math.asinh(width)
    return next((count for count in range(1, most + 1) if math.sinh(half * _narrowing(count)) <= precision), None)


def tolerance(variance: LaunchVariance) -> float:
    """Maximum difference between the log medians of two launches of one model that this variance explains."""
    spread = PRIOR_SPREAD if variance.relative is None else variance.relative
    return min(MAX_APART, max(MIN_APART, SPREADS_APART * spread))


def is_decided(time_ms: float, limit_ms: float, launches: int, variance: LaunchVariance) -> bool:
    """Whether the launches of a model suffice to decide if the model's time is within a limit. One launch decides only
    if the time's distance from the limit exceeds the tolerance between launches.
    """
    return launches >= DECISIVE or abs(math.log(time_ms / limit_ms)) > tolerance(variance)


def interval_ms(median_ms: float, launches: int | LogLaunches, variance: LaunchVariance) -> tuple[float, float] | None:
    """The 95 % interval of a latency in ms, symmetric on the logarithm and therefore above zero. None if unknown.

    `launches` is the number or the statistics of the launches. If launches differ by more than the device's scatter
    explains, the interval covers all launches, up to `MAX_HALF_WIDTH`.
    """
    known = launches if isinstance(launches, LogLaunches) else LogLaunches(launches)
    half = relative_half_width(known.count, variance)
    if known.differ(variance):
        covering = math.asinh(math.expm1(known.farthest(median_ms)))  # median ± half-width covers all launches
        half = min(MAX_HALF_WIDTH, max(half or 0.0, covering))
    return None if half is None else (median_ms * math.exp(-half), median_ms * math.exp(half))


def half_width_ms(median_ms: float, launches: int | LogLaunches, variance: LaunchVariance) -> float | None:
    """Half-width of the 95 % interval of a latency (`interval_ms`), in ms; None if unknown."""
    bounds = interval_ms(median_ms, launches, variance)
    return None if bounds is None else (bounds[1] - bounds[0]) / 2


# Student's t without a statistics library, which would add 140 MB to a device for this function alone. The degrees of
# freedom are whole numbers here, for which the distribution has a closed form.

_MAX_EXACT_DEGREES = 200


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with `degrees` degrees of freedom at this probability.

    Relative error below 1e-9. Up to 200 degrees, solves the closed form for whole degrees by bisection (Abramowitz &
    Stegun 1964, 26.7.3 and 26.7.4); above, uses the expansion around the normal quantile (26.7.5).
    """
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
    """Robust standard deviation of (n,) deviations from a centre, n ≥ 1, from the median absolute deviation."""
    return MAD_TO_STD * float(np.median(np.abs(deviations)))
