"""Statistics of raw samples: medians, p90, and the interval of a latency.

Launches of one architecture differ more than the repeats within one launch, so intervals are estimated from launches,
on the logarithms of their medians. An interval of a latency is a prediction: it holds the median of another launch of
the model on the same device with a probability of 95 %. A model has few launches, so its variance is estimated from
its own launches and a usual variance, worth `USUAL_DEGREES` degrees of freedom (the conjugate prior of a normal
variance, scaled inverse χ²). Usual is what the measurements of the device have (`LaunchVariance`), at first
`PRIOR_SPREAD`, and at least what the launches themselves waited for a core (`WAITED_SPREAD`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

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
USUAL_DEGREES = 4
"""Degrees of freedom of the usual variance in the interval of one model's latency."""
WAITED_SPREAD, MAX_WAITED = 0.5, 0.9
"""Spread of launches that wait for a core, divided by the logarithm of the slow-down; upper bound of a waited share."""
MAX_HALF_WIDTH = math.log(4.0)
"""Maximum half-width of an interval, on the logarithm: a factor of 4 to either side."""
MIN_APART, MAX_APART, SPREADS_APART = math.log(1.3), math.log(2.0), 6.0
"""Bounds of the tolerance between launches of one model, on the logarithm, and the tolerance in standard deviations."""
DECISIVE = 2
"""Least number of launches that decide near a limit."""

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
    """Scatter of the natural logarithms of a measurement's launches: `sum_squares` is the sum of squared deviations of
    the medians from their mean, `waited` the mean share of the passes' time that was spent waiting for a core.
    """

    count: int
    sum_squares: float = 0.0
    waited: float = 0.0

    @classmethod
    def of(cls, medians_ms: Iterable[float], waited: float = 0.0) -> LogLaunches:
        """Scatter of launches with these median times (> 0)."""
        logs = [math.log(value) for value in medians_ms]
        return cls(len(logs), len(logs) * statistics.pvariance(logs), waited)

    def differ(self, variance: LaunchVariance) -> bool:
        """Whether these launches differ by more than the device's scatter explains."""
        return self.count > 1 and math.sqrt(2 * self.sum_squares / (self.count - 1)) > tolerance(variance)

    def half_width(self, variance: LaunchVariance) -> float:
        """Half-width, on the logarithm, of the 95 % interval of the median of another launch (at least one launch)."""
        waits = -WAITED_SPREAD * math.log(1 - min(max(self.waited, variance.waited), MAX_WAITED))
        usual = max(PRIOR_SPREAD if variance.relative is None else variance.relative, waits)
        degrees = self.count - 1 + USUAL_DEGREES
        spread = math.sqrt((self.sum_squares + USUAL_DEGREES * usual**2) / degrees)
        return min(MAX_HALF_WIDTH, t_quantile(0.975, degrees) * spread * math.hypot(1.0, _narrowing(self.count)))

    def decides(self, time_ms: float, limit_ms: float, variance: LaunchVariance) -> bool:
        """Whether these launches suffice to decide if the model's time is within a limit. One launch may have been
        disturbed, so it decides only if the limit is farther than the tolerance between launches.
        """
        half = max(self.half_width(variance), tolerance(variance))
        return self.count >= DECISIVE or standing(time_ms, half, limit_ms) in ("within", "beyond")


@dataclass(frozen=True)
class LaunchVariance:
    """Variance of a launch's log median, pooled over the measurements of a device under one protocol.

    `sum_squares` is the sum of all measurements' squared deviations, `degrees` the sum of (launches minus one) over all
    measurements, `waited` the mean of their waited shares (`LogLaunches`).
    """

    sum_squares: float = 0.0
    degrees: int = 0
    waited: float = 0.0

    @classmethod
    def pooled(cls, measurements: Iterable[LogLaunches]) -> LaunchVariance:
        """Pools the measurements that have two launches or more.

        Robust: a measurement's variance is clipped at `CLIPPED` times the usual variance, and ignored above `LEFT_OUT`
        times. The usual variance is the median over the measurements and the prior. A first measurement with
        contradictory launches therefore has no weight, and several measurements that agree outweigh the prior.
        """
        repeated = [each for each in measurements if each.count > 1]
        waited = statistics.fmean(each.waited for each in repeated) if repeated else 0.0
        variances = [(each.count - 1, each.sum_squares) for each in repeated]
        kept = variances
        for _ in range(2):  # twice, because ignored measurements also shift the median
            most = LEFT_OUT * _usual(kept)
            kept = [(degrees, total) for degrees, total in variances if total <= most * degrees]
        most = CLIPPED * _usual(kept)
        total = sum(min(total, most * degrees) for degrees, total in kept)
        return cls(total, sum(degrees for degrees, _ in kept), waited)

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
    """Half-width, on the logarithm, of the 95 % confidence interval of the median over `launches` launches. At most
    `MAX_HALF_WIDTH`.

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


def tolerance(variance: LaunchVariance) -> float:
    """Maximum difference between the log medians of two launches of one model that this variance explains."""
    spread = PRIOR_SPREAD if variance.relative is None else variance.relative
    return min(MAX_APART, max(MIN_APART, SPREADS_APART * spread))


Standing = Literal["within", "probably within", "at the limit", "beyond"]


def standing(value: float, half_width: float, limit: float) -> Standing:
    """How a figure with an interval of this half-width, on the logarithm, stands to its upper limit. The interval lies
    on one side of the limit (`within`, `beyond`), or holds the limit: `probably within` if the limit is in the last
    quarter of the interval, else `at the limit`.
    """
    room = math.log(limit / value)
    if room >= half_width:
        return "within"
    if room < -half_width:
        return "beyond"
    return "probably within" if 2 * room >= half_width else "at the limit"


def half_width_ms(median_ms: float, launches: LogLaunches, variance: LaunchVariance) -> float:
    """Half-width of the 95 % interval of a latency (`LogLaunches.half_width`), in ms."""
    return median_ms * math.sinh(launches.half_width(variance))


def ends_ms(value: float | None, half_width: float | None) -> tuple[float | None, float | None]:
    """Ends of the 95 % interval with this half-width (`half_width_ms`), which is symmetric on the logarithm."""
    if value is None or half_width is None:
        return None, None
    root = math.hypot(value, half_width)
    return root - half_width, root + half_width


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


def robust_std(deviations: Iterable[float]) -> float:
    """Robust standard deviation of (n,) deviations from a centre, n ≥ 1, from the median absolute deviation."""
    return MAD_TO_STD * statistics.median(abs(float(each)) for each in deviations)
