"""The layer-scaled baseline: its curve, the reference point it fixes, and the sentence that users came for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.common.units import MIB
from edgefront.core.schemas.candidates import Versus
from edgefront.core.search.pareto.baseline import Baseline, reference, summary, versus
from edgefront.core.search.pareto.frontier import hypervolume

# 1 to 4 layers of 10 M parameters: 20 ms and 50 MiB for the rest, 10 ms and 40 MiB a layer.
DEPTHS = [(10e6 * n, 20.0 + 10.0 * n, (50 + 40 * n) * MIB) for n in (1, 2, 3, 4)]


def test_between_two_depths_it_is_linear() -> None:
    baseline = Baseline(DEPTHS[::-1])
    for parameters, latency, memory in DEPTHS:
        assert baseline.at(parameters) == (latency, memory, False)
    assert baseline.at(25e6) == (pytest.approx(45.0), pytest.approx(150 * MIB), False)
    assert baseline.proxies == (10e6, 40e6)


def test_beyond_the_depths_it_is_extrapolated_and_marked() -> None:
    baseline = Baseline(DEPTHS)
    assert baseline.at(50e6) == (pytest.approx(70.0), pytest.approx(250 * MIB), True)
    assert baseline.at(5e6) == (pytest.approx(25.0), pytest.approx(70 * MIB), True)


def test_noise_never_extrapolates_to_something_for_nothing() -> None:
    steep = Baseline([(10e6, 10.0, 10.0), (11e6, 100.0, 9.0)])
    latency, memory, extrapolated = steep.at(1e6)
    assert (latency, extrapolated) == (pytest.approx(1.0), True)
    assert memory > 0
    assert steep.at(100e6)[1] == 9.0, "no deeper model takes less than the deepest"


def test_a_single_depth_is_enough() -> None:
    baseline = Baseline([(10e6, 30.0, 90.0)])
    assert baseline.at(10e6) == (30.0, 90.0, False)
    assert baseline.at(20e6) == (30.0, 90.0, True)
    assert baseline.at(5e6) == (30.0, 90.0, True)


@given(st.permutations([*DEPTHS, *DEPTHS]))
def test_order_and_repetition_do_not_matter(points: list[tuple[float, ...]]) -> None:
    assert Baseline(points).at(17e6) == Baseline(DEPTHS).at(17e6)


def test_repeated_depths_are_averaged() -> None:
    assert Baseline([(1e6, 10.0, 100.0), (1e6, 20.0, 300.0)]).at(1e6) == (15.0, 200.0, False)


def test_the_reference_point_lies_beyond_the_worst() -> None:
    fixed = reference(DEPTHS)
    assert fixed == {
        "proxy": 0.0,
        "proxy_scale": 40e6,
        "latency_ms": pytest.approx(66.0),
        "memory_bytes": pytest.approx(231 * MIB),
    }
    assert all(hypervolume([point], fixed) > 0 for point in DEPTHS)


def test_a_proxy_may_be_below_zero() -> None:
    """A negated loss is such a proxy: the reference lies below the least, and extrapolation below costs as much."""
    losses = [(-6.0, 10.0, 100.0), (-5.0, 20.0, 200.0), (-4.0, 40.0, 300.0)]
    fixed = reference(losses)
    assert (fixed["proxy"], fixed["proxy_scale"]) == (pytest.approx(-6.2), -4.0)
    assert all(hypervolume([point], fixed) > 0 for point in losses)
    assert Baseline(losses).at(-5.5) == (15.0, 150.0, False)
    assert Baseline(losses).at(-9.0) == (10.0, 100.0, True)
    assert reference([(-3.0, 1.0, 1.0)])["proxy"] == pytest.approx(-3.3)
    assert reference([(0.0, 1.0, 1.0)])["proxy"] == pytest.approx(-0.1)


def test_versus_is_the_wire_message() -> None:
    ratios = versus(Baseline(DEPTHS), 20e6, 20.0, 65 * MIB)
    assert Versus(**ratios).model_dump() == ratios
    assert ratios["speedup"] == pytest.approx(2.0)
    assert ratios["memory_ratio"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("frontier", "sentence"),
    [
        (
            [(10e6, 20.0, 60 * MIB), (20e6, 22.2, 92.857 * MIB), (40e6, 60.0, 210 * MIB)],
            "At equal decoder parameters up to 1.8× faster and 1.5× smaller in peak memory than the "
            "baseline. 2 of 3 frontier points are both faster and smaller.",
        ),
        (
            [(10e6, 20.0, 60 * MIB), (90e6, 1.0, 1.0)],
            "At equal decoder parameters up to 1.5× faster and 1.5× smaller in peak memory than the baseline.",
        ),
        (
            [(10e6, 60.0, 99 * MIB)],
            "At equal decoder parameters at best 2.0× slower and 1.1× larger in peak memory than the baseline.",
        ),
        (
            [(10e6, 20.0, 180 * MIB)],
            "At equal decoder parameters up to 1.5× faster but at best 2.0× larger in peak memory than the baseline.",
        ),
        (
            [(10e6, 28.7, 90 * MIB)],
            "At equal decoder parameters up to 1.05× faster and 1.00× smaller in peak memory than the baseline.",
        ),
        ([(90e6, 1.0, 1.0)], "No frontier point lies within the baseline's range of decoder parameters."),
        ([], "No frontier: no searched model was measured within the limits."),
    ],
)
def test_the_sentence_is_honest(frontier: list[tuple[float, ...]], sentence: str) -> None:
    assert summary(np.array(frontier), Baseline(DEPTHS)) == sentence


@pytest.mark.parametrize(
    ("frontier", "baseline_ms", "own_ms", "sentence"),
    [
        (
            [(10e6, 20.0, 60 * MIB), (20e6, 22.2, 92.857 * MIB), (40e6, 60.0, 210 * MIB)],
            1.0,
            1.0,
            "At equal decoder parameters up to 1.8× (1.7–1.9×) faster and 1.5× smaller in peak memory than the "
            "baseline. 2 of 3 frontier points are both faster and smaller.",
        ),
        # 60 ± 18 against 22 ± 8 ms: more than nothing, and no "2.7 times".
        (
            [(40e6, 22.0, 140 * MIB)],
            18.0,
            8.0,
            "At equal decoder parameters up to 2.7× (1.7–4.3×) faster and 1.5× smaller in peak memory than the "
            "baseline.",
        ),
        (
            [(40e6, 50.0, 140 * MIB)],
            18.0,
            8.0,
            "At equal decoder parameters difference in latency not known: 0.86 to 1.7 ×, up to 1.5× smaller in peak "
            "memory than the baseline.",
        ),
        (
            [(10e6, 60.0, 99 * MIB)],
            1.0,
            1.0,
            "At equal decoder parameters at best 2.0× (1.9–2.1×) slower and 1.1× larger in peak memory than the "
            "baseline.",
        ),
    ],
)
def test_the_sentence_holds_the_intervals_of_both_sides(
    frontier: list[tuple[float, ...]], baseline_ms: float, own_ms: float, sentence: str
) -> None:
    baseline = Baseline(DEPTHS, [baseline_ms] * len(DEPTHS))
    assert summary(np.array(frontier), baseline, half_widths_ms=[own_ms] * len(frontier)) == sentence


def test_what_is_ahead_is_what_is_ahead_beyond_doubt() -> None:
    """The largest of many noisy ratios is mostly luck."""
    frontier = [(40e6, 10.0, 200 * MIB), (40e6, 40.0, 200 * MIB)]
    told = summary(frontier, Baseline(DEPTHS, [1.0] * 4), half_widths_ms=[30.0, 0.1])
    assert told.startswith("At equal decoder parameters up to 1.5× (1.5–1.5×) faster")


def test_versus_holds_the_interval_of_the_ratio() -> None:
    ratios = versus(Baseline(DEPTHS, [1.0, 1.0, 3.0, 3.0]), 25e6, 20.0, 65 * MIB, 0.5)
    assert ratios["speedup"] == pytest.approx(45 / 20)
    spread = np.hypot(np.arcsinh(2.0 / 45), np.arcsinh(0.5 / 20))
    assert ratios["speedup_low"] == pytest.approx(45 / 20 * np.exp(-spread))
    assert ratios["speedup_high"] == pytest.approx(45 / 20 * np.exp(spread))
    assert versus(Baseline(DEPTHS), 25e6, 20.0, 65 * MIB, 0.5)["speedup_low"] is None


def test_the_sentence_names_the_proxy() -> None:
    assert summary([(10e6, 20.0, 60 * MIB)], Baseline(DEPTHS), "snip").startswith("At equal snip up to 1.5× faster")
    assert summary([(90e6, 1.0, 1.0)], Baseline(DEPTHS), "total_parameters").endswith("range of total parameters.")


@pytest.mark.parametrize(
    ("frontier", "sentence"),
    [
        (
            [(10e6, 10.0, 40 * MIB), (20e6, 20.0, 65 * MIB), (40e6, 20.0, 130 * MIB)],
            "At equal or better decoder parameters up to 2.0× faster and 2.0× smaller in peak memory than my model. "
            "1 of 2 frontier points in its range is both faster and smaller.",
        ),
        ([(10e6, 10.0, 40 * MIB)], "No frontier point is as good as my model by decoder parameters."),
    ],
)
def test_against_a_model_of_ones_own_stand_those_that_are_as_good(
    frontier: list[tuple[float, ...]], sentence: str
) -> None:
    mine = Baseline([(20e6, 40.0, 130 * MIB)])
    assert summary(np.array(frontier), mine, own=True) == sentence
