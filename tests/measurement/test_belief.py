"""Which launches agree, what was to be expected, and what is physically possible."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.measurement.agreement import (
    Expectation,
    LaunchFigures,
    agreement,
    apart,
    figures_of,
    from_prediction,
    latency_fit,
    memory_fit,
)
from edgefront.core.measurement.ceiling import (
    ACCELERATOR_BYTES,
    CORE_GB,
    CORE_GFLOPS,
    CORE_MEMORY_BYTES,
    GPU_GB,
    GPU_GFLOPS,
    GPU_HALF_GFLOPS,
    MAX_MHZ,
    PROCESSOR_BYTES,
    PROCESSOR_FLOPS,
    ceiling,
)
from edgefront.core.measurement.drift import drift
from edgefront.core.measurement.plausible import Work, implausible, over_time_too_early
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples, LatencySamples, LaunchResult, PeakMemory
from edgefront.core.measurement.statistics import MAX_SPREAD, LaunchVariance, half_width_ms
from edgefront.core.units import MB

TWICE = math.log(2)


def facts(**changes: Any) -> dict[str, Any]:
    return {"cores": 2, "cpu_features": ["avx2", "sse2"], "extra": {}, **changes}


# Agreement ---------------------------------------------------------------------------------------------------------


def vote(device: str, latency_ms: float, memory_bytes: float = 100 * MB) -> LaunchFigures:
    return LaunchFigures(device, latency_ms, memory_bytes)


def test_launches_of_one_device_agree_by_majority() -> None:
    assert agreement([vote("a", 10.0), vote("a", 11.0), vote("a", 12.0)], TWICE).agreeing == {0, 1, 2}
    groups = agreement([vote("a", 10.0), vote("a", 100.0), vote("a", 11.0)], TWICE)
    assert (groups.agreeing, groups.outliers) == ({0, 2}, {1})
    assert not agreement([vote("a", 10.0), vote("a", 100.0)], TWICE).agreeing


def test_one_device_cannot_outvote_others() -> None:
    lies = [vote("liar", 1.0)] * 5
    assert not agreement([*lies, vote("a", 10.0)], TWICE).agreeing
    groups = agreement([*lies, vote("a", 10.0), vote("b", 11.0)], TWICE)
    assert (groups.agreeing, groups.outliers) == ({5, 6}, {0, 1, 2, 3, 4})


@given(st.lists(st.floats(0.01, 1e4), min_size=3, max_size=9), st.floats(0.01, 1e4))
def test_a_majority_of_devices_holds_whatever_one_liar_says(lies: list[float], truth: float) -> None:
    launches = [vote("liar", lie) for lie in lies] + [vote(name, truth) for name in ("a", "b")]
    groups = agreement(launches, TWICE)
    assert {len(lies), len(lies) + 1} <= groups.agreeing


def test_launches_agree_only_if_their_memory_does() -> None:
    groups = agreement([vote("liar", 10.0, 50 * MB), vote("a", 10.0), vote("b", 10.0)], TWICE)
    assert (groups.agreeing, groups.outliers) == ({1, 2}, {0})
    assert not agreement([vote("a", 10.0, 50 * MB), vote("b", 10.0)], TWICE).agreeing
    small = agreement([vote("a", 10.0, 2 * MB), vote("b", 10.0, 7 * MB)], TWICE)  # what a runtime holds by chance
    assert small.agreeing == {0, 1}


def test_launches_agree_only_if_the_times_of_their_generations_do() -> None:
    made = [
        LaunchFigures(name, 10.0, 100 * MB, times)
        for name, times in zip("abc", [(4.0, 2.0), (4.1, 1.9), (1.0, 3.0)], strict=True)
    ]
    groups = agreement(made, TWICE)
    assert (groups.agreeing, groups.outliers) == ({0, 1}, {2})
    times = GenerationSamples(first_token_ms=(4.0, 9.0, 3.0), token_ms=(2.0, 1.0, 3.0), total_ms=(6.0, 10.0, 6.0))
    assert figures_of("a", measured().model_copy(update={"generation": times})).times == (4.0, 2.0)
    assert figures_of("a", measured(10.0, 100)) == LaunchFigures("a", 10.0, 100)


def test_the_more_is_known_of_the_spread_the_closer_launches_must_be() -> None:
    assert apart(LaunchVariance()) == pytest.approx(TWICE)
    assert apart(LaunchVariance(0.01**2 * 10, 10)) == pytest.approx(math.log(1.3))
    assert apart(LaunchVariance(0.3**2 * 10, 10)) == pytest.approx(TWICE)


# What was to be expected -------------------------------------------------------------------------------------------


def test_a_result_far_from_its_peers_is_doubted() -> None:
    peers = [(1e9 * size, 10.0 * size) for size in (1.0, 2.0, 3.0, 4.0, 5.0)]
    fit = latency_fit(peers)
    assert fit is not None
    expected = fit.expected(1e9)
    assert expected is not None
    assert expected.value == pytest.approx(10.0)
    assert expected.outlier_reason(25.0) is None
    assert "40 times faster than expected" in (expected.outlier_reason(0.25) or "")
    assert "slower" in (expected.outlier_reason(100.0) or "")
    assert fit.expected(0.0) is None
    assert latency_fit(peers[:4]) is None
    assert latency_fit([*peers[:4], (0.0, 10.0), (1e9, 0.0)]) is None
    assert latency_fit([]) is None


def test_small_models_take_as_long_as_their_operators_do() -> None:
    """Latency 5 ms and 1 ms for each 10⁹ operations: nothing in proportion, and nothing doubted."""
    peers = [(1e9 * size, 5.0 + size) for size in (0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 10.0)]
    fit = latency_fit(peers)
    assert fit is not None
    for size in (0.02, 0.2, 5.0):
        expected = fit.expected(1e9 * size)
        assert expected is not None
        assert expected.outlier_reason(5.0 + size) is None
        assert expected.outlier_reason((5.0 + size) / 20) is not None


def test_a_wide_prediction_doubts_less() -> None:
    assert from_prediction("latency", 10.0, 9.0, 11.0).outlier_reason(30.0) is not None
    assert from_prediction("latency", 10.0, 5.0, 20.0).outlier_reason(30.0) is None


def test_half_of_the_peak_memory_is_doubted() -> None:
    peers = [(MB * size, MB * (20.0 + 1.4 * size)) for size in (20.0, 30.0, 40.0, 55.0, 70.0)]
    fit = memory_fit(peers)
    assert fit is not None
    expected = fit.expected(50.0 * MB)
    assert expected is not None
    assert expected.outlier_reason(90.0 * MB) is None
    assert "a peak memory of 48 MB, 1.89 times less" in (expected.outlier_reason(48.0 * MB) or "")
    assert "times more" in (expected.outlier_reason(200.0 * MB) or "")
    predicted = from_prediction("memory", 90.0 * MB, 88.0 * MB, 92.0 * MB)
    assert predicted.outlier_reason(45.0 * MB) is not None
    both = Expectation(from_prediction("latency", 10.0, 9.0, 11.0), predicted)
    assert both.outlier_reason(LaunchFigures(None, 10.0, 91.0 * MB)) is None
    assert "times less" in (both.outlier_reason(LaunchFigures(None, 10.0, 45.0 * MB)) or "")
    assert "times faster" in (both.outlier_reason(LaunchFigures(None, 1.0, 45.0 * MB)) or "")


# What is possible --------------------------------------------------------------------------------------------------


def measured(latency_ms: float = 10.0, peak: int = 100 << 20, wall_s: float = 1.0) -> LaunchResult:
    return LaunchResult(
        outcome="done",
        latency=LatencySamples(warmup_ms=(latency_ms,), samples_ms=(latency_ms,) * 3),
        memory=PeakMemory(method="anonymous", peak_bytes=peak, forward_peak_bytes=0, build_peak_bytes=0),
        wall_s=wall_s,
    )


WORK = Work(flops=1e9, read_bytes=10e6, held_bytes=50 << 20)


@pytest.mark.parametrize(
    ("result", "elapsed_s", "why"),
    [
        (measured(), 2.0, None),
        (measured(peak=5), 2.0, "less than the weights"),
        (measured(latency_ms=0.001), 2.0, "operations"),
        (measured(wall_s=60.0), 2.0, "leased for 2 s"),
        (measured(latency_ms=30_000.0), 2.0, "leased for 2 s"),
        (measured(wall_s=60.0), None, None),
    ],
)
def test_what_cannot_be_is_named(result: LaunchResult, elapsed_s: float | None, why: str | None) -> None:
    said = implausible(result, WORK, ceiling(facts(), MeasurementProtocol(), WORK.read_bytes), elapsed_s)
    assert (said is None) == (why is None)
    assert said is None or (why or "") in said


@pytest.mark.parametrize(
    ("said", "counts"),
    [(None, None), (1, None), (True, None), ("", None), (" ", None), ("\n", None), (" on battery\n", "on battery")],
)
def test_only_text_that_is_not_blank_says_something_of_conditions(said: object, counts: str | None) -> None:
    assert measured().model_copy(update={"environment": {"conditions": said}}).conditions == counts
    assert measured().conditions is None


def test_no_launch_takes_more_memory_than_the_device_has() -> None:
    """Twice as much, where it swaps."""
    bound = ceiling(facts(), MeasurementProtocol(), WORK.read_bytes)
    for peak, why in ((190 << 20, None), (210 << 20, "on a device that has 104.9 MB")):
        said = implausible(measured(peak=peak), WORK, bound, None, None, 100 << 20)
        assert (said is None) == (why is None)
        assert (why or "") in (said or "")
    assert implausible(measured(peak=1 << 50), WORK, bound, None) is None


@pytest.mark.parametrize(
    ("wall_s", "elapsed_s", "too_early"),
    [(60.0, 60.0, False), (55.0, 52.0, False), (0.1, 60.0, True), (60.0, 1.0, True), (53.0, 60.0, True)],
)
def test_a_time_limit_has_passed_or_has_not(wall_s: float, elapsed_s: float, too_early: bool) -> None:
    assert (over_time_too_early(measured(wall_s=wall_s), 60.0, elapsed_s) is not None) == too_early


def test_weights_that_no_cache_holds_are_read_from_memory() -> None:
    work = Work(flops=1e6, read_bytes=4e9, held_bytes=0)
    probed = facts(extra={CORE_GB: 10.0})
    assert implausible(measured(20.0), work, ceiling(facts(), MeasurementProtocol(), 4e9), None) is None
    said = implausible(measured(20.0), work, ceiling(probed, MeasurementProtocol(), 4e9), None)
    assert "bytes a second" in (said or "")


def test_a_device_cannot_raise_its_ceiling_beyond_its_processor() -> None:
    protocol = MeasurementProtocol()
    bound = ceiling(facts(), protocol, 0).flops
    assert ceiling(facts(extra={CORE_GFLOPS: 1e9, MAX_MHZ: 1e6}), protocol, 0).flops == bound
    assert ceiling(facts(extra={CORE_GFLOPS: 5.0}), protocol, 0).flops == pytest.approx(5e9 * 4)
    assert ceiling(facts(extra={CORE_GFLOPS: "5", MAX_MHZ: True}), protocol, 0).flops == bound
    assert ceiling(facts(), MeasurementProtocol(threads=2), 0).flops == 2 * bound
    assert ceiling(facts(cores=1), MeasurementProtocol(threads=2), 0).flops == bound
    assert ceiling(facts(), MeasurementProtocol(weights="int8"), 0).flops > bound


@pytest.mark.parametrize(
    ("protocol", "tera"),
    [
        ({}, 4 * 400),
        ({"dtype": "float16"}, 4 * 700),
        ({"dtype": "bfloat16"}, 4 * 700),
        ({"runtime": "onnxruntime", "weights": "int8"}, 1e4),  # four times 2,800: no accelerator reaches that
    ],
)
def test_the_kernel_of_a_gpu_bounds_its_operations(protocol: dict[str, Any], tera: float) -> None:
    """An H100's: 495 and 990 at most."""
    device = facts(extra={GPU_GFLOPS: 400e3, GPU_HALF_GFLOPS: 700e3})
    for provider in ("cuda", "cuda1", "tensorrt"):
        bound = ceiling(device, MeasurementProtocol.model_validate({"provider": provider, **protocol}), 0)
        assert bound.flops == pytest.approx(tera * 1e12)
    other = ceiling(device, MeasurementProtocol.model_validate({"provider": "rocm", **protocol}), 0)
    assert other.flops_from == "any accelerator of today"


def test_a_gpu_without_a_fast_float16_may_add_up_in_float32() -> None:
    """A P40: 12 in float32, 47 in int8, next to nothing in float16."""
    device = facts(extra={GPU_GFLOPS: 10e3, GPU_HALF_GFLOPS: 150.0})
    half, integer = (
        ceiling(device, MeasurementProtocol.model_validate({"provider": "cuda", **fields}), 0).flops
        for fields in ({"dtype": "float16"}, {"runtime": "onnxruntime", "weights": "int8"})
    )
    assert (half, integer) == (pytest.approx(4 * 10e12), pytest.approx(16 * 10e12))


def test_the_kernel_of_a_gpu_bounds_the_bytes_of_models_that_its_caches_cannot_hold() -> None:
    device, protocol = facts(extra={GPU_GB: 300.0}), MeasurementProtocol(provider="cuda")
    assert ceiling(device, protocol, 2 << 30).bytes == pytest.approx(4 * 300e9)
    assert ceiling(device, protocol, 40 << 20).bytes == ACCELERATOR_BYTES


def test_no_facts_lift_a_ceiling_without_bound() -> None:
    absurd = dict.fromkeys((CORE_GFLOPS, CORE_GB, GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB), 1e300) | {MAX_MHZ: 1e6}
    processors: list[dict[str, Any]] = [
        {"cpu_features": ["amx_int8", "sme", "avx512f"], "architecture": "aarch64"},
        {"cpu_features": [], "architecture": "x86_64"},
        {"cpu_features": [], "architecture": "of the future"},
    ]
    for changes in processors:
        device = facts(cores=4096, extra=absurd, **changes)
        for protocol in (MeasurementProtocol(threads=1024), MeasurementProtocol(threads=1024, weights="int8")):
            bound = ceiling(device, protocol, 2 << 30)
            assert bound.flops <= PROCESSOR_FLOPS
            assert bound.bytes <= PROCESSOR_BYTES
        least_cores_bound = ceiling(device, MeasurementProtocol(), 2 << 30)
        assert least_cores_bound.flops <= 6e9 * 512
        assert least_cores_bound.bytes <= CORE_MEMORY_BYTES
    assert ceiling(facts(cpu_features=[], architecture="x86_64"), MeasurementProtocol(), 0).flops <= 6e9 * 64
    accelerated = MeasurementProtocol(provider="cuda")
    assert ceiling(facts(extra=absurd), accelerated, 2 << 30) == ceiling(facts(), accelerated, 2 << 30)
    assert (
        ceiling(facts(extra=absurd), accelerated, 0).flops
        < ceiling(facts(extra=absurd), MeasurementProtocol(provider="cuda", dtype="float16"), 0).flops
    )


# Spread and drift --------------------------------------------------------------------------------------------------


def test_lies_on_one_measurement_do_not_widen_the_intervals_of_others() -> None:
    honest = [(3, 2 * 0.02**2)] * 6
    before = half_width_ms(10.0, 3, LaunchVariance.pooled(honest))
    lied = half_width_ms(10.0, 3, LaunchVariance.pooled([*honest, (6, 5 * math.log(1e4) ** 2)]))
    assert before is not None
    assert lied == pytest.approx(before)
    by_some = half_width_ms(10.0, 3, LaunchVariance.pooled([*honest, (6, 5 * 0.1**2)]))
    assert by_some is not None
    assert by_some < 3 * before


def test_an_interval_is_bounded_whatever_was_reported() -> None:
    lies = LaunchVariance.pooled([(3, 2 * math.log(1e9) ** 2)] * 3)
    assert lies.relative == MAX_SPREAD
    assert half_width_ms(10.0, 1, lies) == pytest.approx(10.0)


@given(st.floats(0.001, 0.2), st.integers(3, 40))
def test_like_variances_are_pooled_as_they_are(spread: float, count: int) -> None:
    pooled = LaunchVariance.pooled([(3, 2 * spread**2)] * count)
    assert (pooled.degrees, pooled.sum_squares) == (2 * count, pytest.approx(2 * count * spread**2))


def test_an_anchor_drifts_when_it_moves_by_more_than_its_noise() -> None:
    assert drift([]) is None
    assert drift([10.0, 20.0]) is None
    assert drift([10.0, 10.1, 9.9, 10.3]) is None
    assert "2.00 times as long" in (drift([10.0, 10.1, 9.9, 20.0]) or "")
    assert "0.50 times" in (drift([10.0, 10.1, 9.9, 5.0]) or "")
    assert drift([10.0, 10.0, 10.0, 30.0, 10.0]) is None  # it came back


def test_an_anchor_drifts_among_the_first_that_say_what_is_usual() -> None:
    step = [10.0] * 5 + [20.0] * 8
    assert all("2.00 times" in (drift(step[:count]) or "") for count in range(6, len(step) + 1))
    assert drift([*step, 10.0]) is None
    rising = [10.0 * 1.1**index for index in range(11)]
    assert "times as long" in (drift(rising) or "")
    assert "from 7 to 14 ms" in (drift([10.0, 14.0, 7.0, 20.0]) or "")  # it says nothing


def test_an_anchor_that_scattered_at_first_is_held_against_its_latest() -> None:
    scattered = [10.0, 30.0, 5.0, 20.0, 60.0, 4.0, 33.0, 11.0, 50.0, 7.0]
    assert "varies too much: from" in (drift([*scattered, 12.0]) or "")
    assert drift([*scattered, *[10.0, 10.1, 9.9] * 4]) is None
    assert "2.00 times" in (drift([*scattered, *[10.0] * 11, 20.0]) or "")


@given(st.integers(0, 1 << 32), st.integers(4, 30))
def test_an_anchor_that_scatters_as_honest_ones_do_is_not_marked(seed: int, count: int) -> None:
    chance = random.Random(seed)
    assert drift([10.0 * math.exp(chance.uniform(-0.035, 0.035)) for _ in range(count)]) is None
