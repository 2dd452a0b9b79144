"""Medians, quantiles and intervals against known tables and simulation."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from edgefront.core.measurement.statistics import (
    CLIPPED,
    PRIOR_SPREAD,
    LaunchVariance,
    LogLaunches,
    half_width_ms,
    p90,
    relative_half_width,
    t_quantile,
    tolerance,
)


def test_the_slowest_tenth_of_few_samples_is_unknown():
    assert p90([1.0] * 19) is None
    assert p90([float(value) for value in range(1, 21)]) == pytest.approx(18.1)
    assert p90([float(value) for value in range(1, 22)]) == pytest.approx(19.0)


def test_log_launches_equal_the_two_pass_formula():
    medians = [101.0, 99.5, 103.2, 100.4]
    logs = [math.log(value) for value in medians]
    mean = sum(logs) / len(logs)
    launches = LogLaunches.of(medians)
    assert launches.count == 4
    assert launches.sum_squares == pytest.approx(sum((value - mean) ** 2 for value in logs), rel=1e-9)


def test_one_launch_alone_gives_no_variance():
    variance = LaunchVariance.pooled([LogLaunches(1), LogLaunches(1)])
    assert variance == LaunchVariance(0.0, 0)
    assert variance.relative is None
    assert relative_half_width(1, variance) is None
    assert half_width_ms(100.0, LogLaunches(1), variance) == pytest.approx(100 * math.sinh(2.776445 * 0.02 * 2**0.5))


def test_launches_differ_by_more_than_the_tolerance():
    assert tolerance(LaunchVariance()) == pytest.approx(math.log(1.3))
    assert not LogLaunches.of([10.0, 12.9]).differ(LaunchVariance())
    assert LogLaunches.of([10.0, 13.1]).differ(LaunchVariance())


def test_a_variance_far_above_the_usual_one_is_clipped_and_one_farther_is_left_out():
    usual = [LogLaunches(2, 1e-4)] * 5
    clipped = LaunchVariance.pooled([*usual, LogLaunches(2, 20 * PRIOR_SPREAD**2)])
    assert (clipped.sum_squares, clipped.degrees) == (pytest.approx(5e-4 + CLIPPED * PRIOR_SPREAD**2), 6)
    left_out = LaunchVariance.pooled([*usual, LogLaunches(2, 40 * PRIOR_SPREAD**2)])
    assert (left_out.sum_squares, left_out.degrees) == (pytest.approx(5e-4), 5)


def test_half_width_by_hand():
    variance = LaunchVariance.pooled([LogLaunches(2, 2e-4, 0.1), LogLaunches(1, 0.0), LogLaunches(3, 4e-4, 0.3)])
    assert variance.degrees == 3
    assert variance.sum_squares == pytest.approx(6e-4)
    assert variance.relative == pytest.approx(math.sqrt((6e-4 + 2 * 0.02**2) / 5))  # two degrees of freedom of 2 %
    relative = 2.570582 * variance.relative / math.sqrt(2)
    assert relative_half_width(2, variance) == pytest.approx(relative, rel=1e-6)
    waits = -0.5 * math.log(1 - 0.2)  # the mean of the measurements that were repeated
    assert variance.waited == pytest.approx(0.2)
    spread = math.sqrt((3e-4 + 4 * waits**2) / 5) * math.sqrt(1.5)
    assert LogLaunches(2, 3e-4).half_width(variance) == pytest.approx(2.570582 * spread, rel=1e-6)


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
        rows.append(LogLaunches.of(math.exp(log) for log in logs))
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
@pytest.mark.parametrize("spread", [0.03, 0.4])
def test_an_interval_holds_another_launch(launches: int, spread: float) -> None:
    """Also of a device that scatters far more than most, from thirty measurements."""
    source = random.Random(f"{launches} {spread}")
    trials, held = 2000, 0
    for _ in range(trials):
        pooled = pool(source, spread, 30)
        medians = [100 * math.exp(source.gauss(0, spread)) for _ in range(launches)]
        half = LogLaunches.of(medians).half_width(pooled)
        held += abs(math.log(100 * math.exp(source.gauss(0, spread)) / median(medians))) <= half
    assert 0.94 < held / trials < 0.995


@pytest.mark.parametrize("factor", [1.5, 1.9, 20.0, 1e9])
def test_lies_on_one_measurement_say_nothing_of_others(factor):
    """Also where it is the first that has several launches, and however many of them are lies."""
    honest = [LogLaunches(2, 2e-4), LogLaunches(3, 6e-4)]
    for lies in range(1, 4):
        lied = LogLaunches.of([100.0, *[100.0 * factor] * lies])
        for count in range(3):
            assert LaunchVariance.pooled([*honest[:count], lied]) == LaunchVariance.pooled(honest[:count])
    closer = LogLaunches.of([100.0, 115.0])
    assert half_width_ms(100.0, LogLaunches(1), LaunchVariance.pooled([closer])) < 30


def test_a_device_whose_launches_scatter_gets_wide_intervals_once_several_measurements_agree():
    noisy = LogLaunches(3, 2 * 0.3**2)
    assert LaunchVariance.pooled([noisy]).relative is None  # it may be one lie
    assert LaunchVariance.pooled([noisy] * 2).relative == pytest.approx(0.3, rel=0.2)
    assert LaunchVariance.pooled([noisy] * 6).relative == pytest.approx(0.3, rel=0.1)


def test_an_interval_ends_at_a_factor_of_four() -> None:
    for launches in (LogLaunches(1), LogLaunches(2, 1e6), LogLaunches(1, waited=1.0)):
        assert launches.half_width(LaunchVariance(1e6, 1)) == math.log(4.0)


def test_t_quantile_is_that_of_scipy():
    from scipy.special import stdtrit

    for degrees in (*range(1, 201), 201, 500, 5000):
        bound = 1e-12 if degrees <= 200 else 1e-10
        assert t_quantile(0.975, degrees) == pytest.approx(float(stdtrit(degrees, 0.975)), rel=bound)
