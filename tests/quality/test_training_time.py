"""A time of training: a pace from trainings, the tokens of each architecture, and predictions for them."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.quality.predictor import Pace, TrainingTime, flops_per_token
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.shipped import law_named

NAMES = ("smollm2-135m", "smollm2-360m")
SHAPES = Shapes.of([named_model(name).architecture for name in NAMES])
PACE = Pace(seconds_per_token=1e-6, seconds_per_flop=1e-14, segment=512)


def law() -> ScalingLaw:
    law_by_tokens = law_named("llama-dolma-cooled")
    assert isinstance(law_by_tokens, ScalingLaw)
    return law_by_tokens


def test_flops_of_training_are_three_passes() -> None:
    for name, flops in zip(NAMES, flops_per_token(SHAPES, 512), strict=True):
        one_pass = costs(named_model(name).architecture, CostOptions(sequence_length=512)).flops
        assert flops == pytest.approx(3 * one_pass / 512)


def test_a_pace_is_learnt_from_trainings_of_different_sizes() -> None:
    flops = np.array([1e7, 1e8, 1e9, 1e10])
    seconds = 3e-6 + 2e-14 * flops
    learnt = Pace.fitted(flops, seconds, 256)
    assert (learnt.seconds_per_token, learnt.seconds_per_flop) == pytest.approx((3e-6, 2e-14))
    assert learnt.segment == 256


def test_trainings_of_one_size_tell_the_time_of_a_flop_by_their_median() -> None:
    learnt = Pace.fitted([1e8, 1.1e8, 0.9e8], [1e-5, 1.1e-5, 1.0], 256)  # the last was starved
    assert learnt.seconds_per_token == 0
    assert learnt.seconds_per_flop == pytest.approx(1e-13)


def test_neither_part_of_a_pace_is_negative() -> None:
    flops = np.array([1e7, 1e9])
    for seconds in ([1e-3, 1e-6], [1e-9, 1.0]):
        learnt = Pace.fitted(flops, seconds, 128)
        assert learnt.seconds_per_token >= 0
        assert learnt.seconds_per_flop >= 0
        assert learnt.seconds_per_token + learnt.seconds_per_flop > 0


def test_each_model_sees_its_own_tokens_and_is_predicted_for_them() -> None:
    time = TrainingTime(6.0, "gpu-box", PACE)
    small, large = time.tokens(SHAPES)
    assert small > large
    assert small * PACE.seconds(SHAPES)[0] == pytest.approx(6 * 3600)
    timed = law().in_time(time)
    assert timed.train_tokens is None
    assert str(timed.train_time) == "6 hours on gpu-box"
    assert "on as many tokens as 6 hours on gpu-box take" in timed.about
    by_tokens = [
        float(law().at_tokens(tokens).predict(SHAPES.take([row])).log_perplexity[0])
        for row, tokens in enumerate((small, large))
    ]
    assert timed.predict(SHAPES).log_perplexity == pytest.approx(by_tokens)
    assert timed.expected(SHAPES) == pytest.approx(by_tokens)
    assert timed.tokens(SHAPES) == pytest.approx([small, large])


def test_a_ratio_under_a_time_is_that_of_the_two_lengths() -> None:
    timed = law().in_time(TrainingTime(6.0, "gpu-box", PACE))
    assert timed.ratio(SHAPES.take([1]), SHAPES.take([0])).log_perplexity == pytest.approx(
        np.diff(timed.predict(SHAPES).log_perplexity)
    )
    alike = law().at_tokens(1e10)
    assert timed.ratio(SHAPES.take([0]), SHAPES.take([0])).log_perplexity == pytest.approx([0.0])
    assert timed.ratio(SHAPES.take([1]), SHAPES.take([0])).half_width[0] > 0
    assert alike.train_time is None


def test_little_time_favours_the_smaller_model_and_much_the_larger() -> None:
    orders = []
    for hours in (1.0, 10_000.0):
        small, large = law().in_time(TrainingTime(hours, "gpu-box", PACE)).expected(SHAPES)
        orders.append(small < large)
    assert orders == [True, False]


def test_tokens_replace_a_time_and_a_time_tokens() -> None:
    timed = law().in_time(TrainingTime(1.0, "gpu-box", PACE))
    again = timed.at_tokens(1e9)
    assert (again.train_time, again.train_tokens) == (None, 1e9)
