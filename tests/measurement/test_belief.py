"""What is physically possible, how far apart launches may be, and when an anchor drifts."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.measurement.plausible import (
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
    Work,
    ceiling,
    implausible,
    over_time_too_early,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.measurement.statistics import (
    LaunchVariance,
    LogLaunches,
    half_width_ms,
    tolerance,
)
from edgefront.core.services.measuring.anchors import drift


def facts(**changes: Any) -> dict[str, Any]:
    return {"cores": 2, "cpu_features": ["avx2", "sse2"], "extra": {}, **changes}


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
        (measured(wall_s=60.0), 2.0, "leased for only 2 s"),
        (measured(latency_ms=30_000.0), 2.0, "leased for only 2 s"),
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
    for peak, why in ((190 << 20, None), (210 << 20, "for a device with 104.9 MB")):
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


class Costs(NamedTuple):
    """Half of the weights are the blocks'."""

    flops: int = 1000
    weight_bytes: int = 400
    decoder_parameters: int = 50
    total_parameters: int = 100


@pytest.mark.parametrize(
    ("protocol", "held"),
    [
        ({}, 400),
        ({"logits": "none"}, 200),
        ({"memory": "resident"}, 200),
        ({"runtime": "openvino"}, 100),  # may hold float32 as float16
    ],
)
def test_the_least_memory_is_that_of_the_weights_that_a_pass_holds(protocol: dict[str, Any], held: float) -> None:
    work = Work.of(Costs(), MeasurementProtocol.model_validate(protocol), translates=False)
    assert work == Work(flops=1000, read_bytes=200, held_bytes=held)


def test_a_pass_of_a_translator_may_skip_its_source() -> None:
    modes = [MeasurementProtocol(mode=mode) for mode in ("forward", "decode")]
    assert [Work.of(Costs(), mode, translates=True) for mode in modes] == [Work(500, 0, 0), Work(0, 0, 0)]


def test_weights_that_no_cache_holds_are_read_from_memory() -> None:
    work = Work(flops=1e6, read_bytes=4e9, held_bytes=0)
    probed = facts(extra={CORE_GB: 10.0})
    assert implausible(measured(20.0), work, ceiling(facts(), MeasurementProtocol(), 4e9), None) is None
    said = implausible(measured(20.0), work, ceiling(probed, MeasurementProtocol(), 4e9), None)
    assert "bytes a second" in (said or "")


def test_weights_that_a_cache_may_hold_are_not_bounded_by_the_memory() -> None:
    assert ceiling(facts(extra={CORE_GB: 10.0}), MeasurementProtocol(), 4e8).bytes == pytest.approx(6e9 * 128)


@pytest.mark.parametrize(("features", "times"), [(["avx2"], 8), (["avx2", "amx_int8"], 32), ([], 32)])
def test_an_x86_processor_of_unknown_features_may_have_matrix_units(features: list[str], times: int) -> None:
    device = facts(architecture="x86_64", cpu_features=features)
    full, int8 = (ceiling(device, MeasurementProtocol(weights=weights), 0).flops for weights in ("full", "int8"))
    assert int8 == pytest.approx(times * full)


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


@given(st.floats(0.001, 0.2), st.integers(3, 40))
def test_like_variances_are_pooled_as_they_are(spread: float, count: int) -> None:
    pooled = LaunchVariance.pooled([LogLaunches(3, 2 * spread**2)] * count)
    assert (pooled.degrees, pooled.sum_squares) == (2 * count, pytest.approx(2 * count * spread**2))


def test_the_more_is_known_of_the_scatter_the_closer_launches_must_be() -> None:
    assert tolerance(LaunchVariance()) == pytest.approx(math.log(1.3))
    assert tolerance(LaunchVariance(0.01**2 * 10, 10)) == pytest.approx(math.log(1.3))
    assert tolerance(LaunchVariance(0.08**2 * 98, 98)) == pytest.approx(6 * 0.08, rel=0.02)
    assert tolerance(LaunchVariance(0.3**2 * 10, 10)) == pytest.approx(math.log(2))


@given(st.floats(1.0, 1.5), st.floats(0.005, 0.05))
def test_an_interval_covers_two_launches_that_differ(factor: float, spread: float) -> None:
    """By more than the scatter of their device; it is bounded all the same."""
    variance, launches = LaunchVariance(40 * spread**2, 40), LogLaunches.of([10.0, 10.0 * factor])
    half, middle = launches.half_width(variance), (1 + factor) / 2
    assert math.log(middle) <= half < math.log(4.0)
    assert launches.differ(variance) == (math.log(factor) > tolerance(variance))


def test_the_two_launches_of_an_excluded_format_say_how_little_they_know() -> None:
    """As a format was excluded by its one launch, 42.8 ms against a limit of 40 ms, and took 26.2 ms minutes later."""
    variance = LaunchVariance(20 * 0.02**2, 20)
    once = LogLaunches(1)
    assert not once.decides(42.8, 40.0, variance)
    assert not once.decides(39.0, 40.0, variance)
    assert once.decides(53.0, 40.0, variance)
    assert not LogLaunches(1, waited=0.5).decides(53.0, 40.0, variance)
    assert LogLaunches(2).decides(42.8, 40.0, variance)
    differing = LogLaunches.of([42.8, 26.2])
    assert differing.differ(variance)
    for known in (variance, LaunchVariance()):  # of the device nothing may be known
        assert max(abs(math.log(value / 34.5)) for value in (26.2, 42.8)) < differing.half_width(known)
    assert not LogLaunches.of([42.8, 40.1]).differ(variance)
    extreme = LogLaunches.of([1.0, 1e6])
    assert half_width_ms(1000.0, extreme, variance) == pytest.approx(1000.0 * math.sinh(math.log(4.0)))


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([], None),
        ([10.0, 20.0, 20.0, 20.0], None),
        ([10.0, 10.1, 9.9, 10.3, 10.2, 10.3], None),
        ([10.0, 10.1, 9.9, 20.0], None),
        ([10.0, 10.1, 9.9, 20.0, 20.0], None),
        ([10.0, 10.1, 9.9, 20.0, 20.0, 20.0], "2.00 times as long"),
        ([10.0, 10.1, 9.9, 5.0, 5.0, 5.0], "0.50 times as long"),
        ([10.0, 10.1, 9.9, 20.0, 10.0, 20.0], None),
        ([10.0, 10.1, 9.9, 20.0, 5.0, 20.0], None),
        ([10.0] * 5 + [20.0] * 8, "2.00 times as long"),
        ([10.0] * 5 + [20.0] * 8 + [10.0], None),
        ([10.0 * 1.1**index for index in range(13)], "times as long"),
        ([10.0, 30.0, 5.0, 20.0, 60.0, 4.0, 33.0, 11.0, 50.0, 7.0, 90.0, 90.0, 90.0], None),
    ],
)
def test_an_anchor_drifts_when_it_is_off_three_times_in_a_row(history: list[float], says: str | None) -> None:
    said = drift(history)
    assert (said is None) == (says is None)
    assert (says or "") in (said or "")


@given(st.integers(0, 1 << 32), st.integers(4, 30))
def test_an_anchor_that_scatters_as_honest_ones_do_is_not_marked(seed: int, count: int) -> None:
    chance = random.Random(seed)
    assert drift([10.0 * math.exp(chance.uniform(-0.035, 0.035)) for _ in range(count)]) is None
