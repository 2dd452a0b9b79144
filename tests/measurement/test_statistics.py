"""Medians, quantiles and intervals against known tables and simulation."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from edgefront.core.measurement.statistics import (
    LaunchVariance,
    LogLaunches,
    half_width_ms,
    interval_ms,
    launches_needed,
    p90,
    relative_half_width,
    t_quantile,
)


def test_the_slowest_tenth_of_few_samples_is_unknown():
    assert p90([1.0] * 19) is None
    assert p90([float(value) for value in range(1, 22)]) == pytest.approx(19.0)


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
    variance = LaunchVariance(0.01, 10)  # with the prior a spread of 3 %
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
    assert variance.relative == pytest.approx(math.sqrt((6e-4 + 2 * 0.02**2) / 5))  # two degrees of freedom of 2 %
    relative = 2.570582 * variance.relative / math.sqrt(2)
    assert relative_half_width(2, variance) == pytest.approx(relative, rel=1e-6)
    assert half_width_ms(50.0, 2, variance) == pytest.approx(50 * math.sinh(relative), rel=1e-6)
    low, high = interval_ms(50.0, 2, variance) or (0, 0)
    assert low * high == pytest.approx(2500.0)


def test_more_launches_narrow_the_interval():
    variance = LaunchVariance(1e-3, 10)
    odd = [relative_half_width(n, variance) for n in range(1, 30, 2)]
    assert odd == sorted(odd, reverse=True)


def pool(source: random.Random, spread: float, count: int, lied_on: int = 0) -> LaunchVariance:
    """Of measurements with one to three launches each; in `lied_on` of them one launch is 1.5 to 20 times off."""
    rows = []
    for index in range(count):
        logs = [source.gauss(0, spread) for _ in range(source.randint(1 + (index < lied_on), 3))]
        if index < lied_on:
            logs[0] += source.choice((-1, 1)) * math.log(source.choice((1.5, 1.9, 3, 6, 20)))
        rows.append((len(logs), LogLaunches.of(math.exp(log) for log in logs).sum_squares))
    return LaunchVariance.pooled(rows)


def coverage(source: random.Random, spread: float, count: int, lied_on: int) -> float:
    """How often the intervals of other measurements hold the truth."""
    made = covered = 0
    for _ in range(1200):
        launches = source.randint(1, 3)
        half = relative_half_width(launches, pool(source, spread, count, lied_on))
        if half is not None:
            made += 1
            covered += abs(median([source.gauss(0, spread) for _ in range(launches)])) <= half
    assert made > 1000
    return covered / made


@pytest.mark.parametrize("lied_on", [0.0, 0.05, 0.33])
@pytest.mark.parametrize(
    ("spread", "count", "least"),
    # Of a device that scatters far more than most, the first measurements do not say so yet.
    [(0.01, 5, 0.95), (0.03, 5, 0.94), (0.01, 20, 0.95), (0.03, 20, 0.94), (0.1, 20, 0.92), (0.3, 20, 0.92)],
)
def test_intervals_cover_the_truth_whoever_lies(spread, count, least, lied_on):
    """Of a third of the measurements at most."""
    source = random.Random(f"{spread} {count} {lied_on}")
    assert coverage(source, spread, count, math.ceil(lied_on * count)) > least - 0.015


@pytest.mark.parametrize("launches", [1, 2, 3, 5])
def test_intervals_cover_the_truth_as_often_as_they_say(launches):
    """Thirty measurements give the pooled variance: the prior hardly counts any more."""
    source = random.Random(launches)
    trials, covered = 3000, 0
    for _ in range(trials):
        pooled = pool(source, 0.03, 30)
        seen = median([100 * math.exp(source.gauss(0, 0.03)) for _ in range(launches)])
        low, high = interval_ms(seen, launches, pooled) or (0, 0)
        covered += low <= 100 <= high
    assert covered / trials == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("factor", [1.5, 1.9, 20.0, 1e9])
def test_lies_on_one_measurement_say_nothing_of_others(factor):
    """Also where it is the first that has several launches, and however many of them are lies."""
    honest = [(2, 2e-4), (3, 6e-4)]
    for lies in range(1, 4):
        lied = (lies + 1, LogLaunches.of([100.0, *[100.0 * factor] * lies]).sum_squares)
        for count in range(3):
            assert LaunchVariance.pooled([*honest[:count], lied]) == LaunchVariance.pooled(honest[:count])
    closer = (2, LogLaunches.of([100.0, 115.0]).sum_squares)
    assert (half_width_ms(100.0, 1, LaunchVariance.pooled([closer])) or 0) < 20


def test_a_device_whose_launches_scatter_gets_wide_intervals_once_several_measurements_agree():
    noisy = (3, 2 * 0.3**2)
    assert LaunchVariance.pooled([noisy]).relative is None  # it may be one lie
    assert LaunchVariance.pooled([noisy] * 2).relative == pytest.approx(0.3, rel=0.2)
    assert LaunchVariance.pooled([noisy] * 6).relative == pytest.approx(0.3, rel=0.1)


def test_half_an_interval_is_no_wider_than_the_latency():
    for variance in (LaunchVariance(1e6, 1), LaunchVariance(100.0, 100)):
        assert half_width_ms(70.0, 1, variance) == pytest.approx(70.0)
        low, high = interval_ms(70.0, 1, variance) or (0, 0)
        assert 0 < low < 70 < high


def test_t_quantile_is_that_of_scipy():
    from scipy.special import stdtrit

    for degrees in (*range(1, 201), 201, 500, 5000):
        bound = 1e-12 if degrees <= 200 else 1e-10
        assert t_quantile(0.975, degrees) == pytest.approx(float(stdtrit(degrees, 0.975)), rel=bound)
