"""Predicted against measured: what lies in its interval, and when a device is hard to predict."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.prediction.agreement import Agreement, Checked


def checked(ratios: list[float], half_width: float = 0.05) -> list[Checked]:
    """Predictions of 1, 2, 3, … with their intervals, and measurements that are as many times larger."""
    return [
        Checked(f"cnd_{at}", at, at * (1 - half_width), at * (1 + half_width), at * ratio)
        for at, ratio in enumerate(ratios, start=1)
    ]


def test_what_lies_in_its_interval() -> None:
    agreement = Agreement.of(checked([1.0, 1.04, 0.96, 1.08]))
    assert (agreement.measured, agreement.held) == (4, 3)
    assert agreement.missed == ("cnd_4",)
    assert agreement.error == pytest.approx(0.04)
    assert [(span.low, span.high, span.measured, span.held) for span in agreement.spans] == [(1, 4, 4, 3)]
    assert not agreement.hard


def test_a_device_that_jumps_is_hard_to_predict_and_where() -> None:
    steady = [1.01, 0.99] * 10
    assert not Agreement.of(checked(steady)).hard
    agreement = Agreement.of(checked([*steady, *[1.3] * 10]))
    assert agreement.hard
    assert [(span.measured, span.held) for span in agreement.spans] == [(10, 10), (10, 10), (10, 0)]
    assert agreement.spans[-1].low == 21
    assert agreement.spans[-1].error == pytest.approx(0.3)


def test_intervals_may_hold_and_a_device_be_hard_to_predict() -> None:
    agreement = Agreement.of(checked([0.9, 1.1] * 10, half_width=0.2))
    assert agreement.held == 20
    assert agreement.hard


def test_one_in_twenty_may_lie_outside_of_many() -> None:
    ratios = np.ones(500)
    ratios[::20] = 1.06
    agreement = Agreement.of(checked([float(ratio) for ratio in ratios]))
    assert agreement.held == 475
    assert not agreement.hard
