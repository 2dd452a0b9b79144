"""Medians, quantiles and intervals against known tables and simulation."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from edgefront.core.measurement.interval import t_quantile
from edgefront.core.measurement.statistics import (
    LaunchVariance,
    LogLaunches,
    half_width_ms,
    interval_ms,
    launches_needed,
    median,
    p90,
    relative_half_width,
)

# Two-sided 95 % and 99 % points of Student's t, as printed in Abramowitz & Stegun, table 26.10.
T_TABLE = {
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    5: (2.571, 4.032),
    10: (2.228, 3.169),
    20: (2.086, 2.845),
    30: (2.042, 2.750),
    60: (2.000, 2.660),
    120: (1.980, 2.617),
}


@pytest.mark.parametrize(("degrees", "points"), T_TABLE.items())
def test_t_quantile_equals_the_printed_table(degrees, points):
    assert t_quantile(0.975, degrees) == pytest.approx(points[0], abs=6e-4)
    assert t_quantile(0.995, degrees) == pytest.approx(points[1], abs=6e-4)


def test_t_quantile_has_exact_special_cases():
    assert t_quantile(0.975, 1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-9)  # Cauchy
    assert t_quantile(0.975, 2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-9)
    assert t_quantile(0.5, 7) == pytest.approx(0.0, abs=1e-12)
    assert t_quantile(0.025, 9) == -t_quantile(0.975, 9)


def test_t_quantile_is_smooth_where_the_method_changes():
    values = [t_quantile(0.975, degrees) for degrees in range(195, 207)]
    steps = [a - b for a, b in pairwise(values)]
    assert all(0 < later < earlier for earlier, later in pairwise(steps))
    assert t_quantile(0.975, 10**9) == pytest.approx(1.959963985, abs=1e-8)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_t_quantile_refuses_what_has_no_answer(probability, degrees):
    with pytest.raises(ValueError, match=r"probability|degrees"):
        t_quantile(probability, degrees)


def test_median_and_p90():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert p90([1.0] * 19) is None
    assert p90([float(value) for value in range(1, 22)]) == pytest.approx(19.0)
    with pytest.raises(ValueError, match="no samples"):
        median([])


def test_log_launches_equal_the_two_pass_formula():
    medians = [101.0, 99.5, 103.2, 100.4]
    logs = [math.log(value) for value in medians]
    mean = sum(logs) / len(logs)
    launches = LogLaunches.of(medians)
    assert launches.count == 4
    assert launches.mean == pytest.approx(mean, rel=1e-14)
    assert launches.sum_squares == pytest.approx(sum((value - mean) ** 2 for value in logs), rel=1e-9)


def test_one_launch_alone_gives_no_variance():
    variance = LaunchVariance.pooled([(1, 0.0), (1, 0.0)])
    assert variance == LaunchVariance(0.0, 0)
    assert variance.relative is None
    assert half_width_ms(100.0, 1, variance) is None
    assert interval_ms(100.0, 0, LaunchVariance(1e-4, 3)) is None


def test_launches_needed_are_the_first_that_are_precise_enough():
    variance = LaunchVariance(0.01, 10)
    widths = [half_width_ms(1.0, count, variance) for count in range(1, 60)]
    for precision in (0.08, 0.05, 0.02, 0.01):
        needed = launches_needed(widths[0], precision, 60)
        assert needed is None or widths[needed - 1] <= precision
        assert all(width > precision for width in widths[: (needed or 60) - 1])
    assert launches_needed(widths[0], 1e-6, 5) is None
    assert launches_needed(widths[0], 1.0, 5) == 1


def test_half_width_by_hand():
    variance = LaunchVariance.pooled([(2, 2e-4), (1, 0.0), (3, 4e-4)])
    assert variance.degrees == 3
    assert variance.sum_squares == pytest.approx(6e-4)
    relative = 3.182446 * math.sqrt(2e-4) / math.sqrt(2)
    assert relative_half_width(2, variance) == pytest.approx(relative, rel=1e-6)
    assert half_width_ms(50.0, 2, variance) == pytest.approx(50 * math.sinh(relative), rel=1e-6)
    low, high = interval_ms(50.0, 2, variance) or (0, 0)
    assert low * high == pytest.approx(2500.0)


def test_more_launches_narrow_the_interval():
    variance = LaunchVariance(1e-3, 10)
    odd = [relative_half_width(n, variance) for n in range(1, 30, 2)]
    assert odd == sorted(odd, reverse=True)


@pytest.mark.parametrize("launches", [1, 2, 3, 5])
def test_intervals_cover_the_truth_as_often_as_they_say(launches):
    """40 architectures with two launches each give the pooled variance; 95 % of intervals must hold the truth."""
    source = random.Random(launches)
    trials, covered = 4000, 0
    for _ in range(trials):
        pooled = LaunchVariance.pooled(
            (2, LogLaunches.of(math.exp(source.gauss(0, 0.012)) for _ in range(2)).sum_squares) for _ in range(8)
        )
        seen = median([100 * math.exp(source.gauss(0, 0.012)) for _ in range(launches)])
        low, high = interval_ms(seen, launches, pooled) or (0, 0)
        covered += low <= 100 <= high
    assert covered / trials == pytest.approx(0.95, abs=0.012)


def test_t_quantile_is_that_of_scipy():
    from scipy.special import stdtrit

    for degrees in (*range(1, 201), 201, 500, 5000):
        bound = 1e-12 if degrees <= 200 else 1e-10
        assert t_quantile(0.975, degrees) == pytest.approx(float(stdtrit(degrees, 0.975)), rel=bound)
