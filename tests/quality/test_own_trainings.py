"""What trainings of one's own do to a law: those that come out as predicted widen no interval, at any budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from left_out import shared

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.quality.predictor import in_short, in_words
from edgefront.core.quality.scaling_law import ScalingLaw, own_trainings

BUDGETS = (2e6, 1e8, 4e9, 1e10, 2.5e11, 1e13)
SPACE = space("llama").narrow({"layers": "alike", "n_layer": {"min": 2}})
MODELS = [SPACE.architecture(genome) for genome in SPACE.samples(6, np.random.default_rng(0))]


def as_predicted(law: ScalingLaw, models: Shapes, tokens: list[float]) -> ScalingLaw:
    """The law after trainings of these models on so many tokens that come out exactly as it predicts."""
    logs = law._posterior.expected(law._points(models, np.log(tokens)).rows)
    own = own_trainings(law, models, np.log(tokens), logs, [str(place) for place in range(len(tokens))])
    return law.refined(own, law.origin)


def ratios(law: ScalingLaw, tokens: float) -> np.ndarray:
    """Half widths of ratios of the models to a stock model."""
    stock = Shapes.of([named_model("smollm2-135m").architecture])
    return law.at_tokens(tokens).ratio(Shapes.of(MODELS), stock).half_width


@pytest.mark.parametrize("trained", BUDGETS)
@pytest.mark.parametrize("name", ["own-data-llama", "llama-dolma-other-recipe"])
def test_a_training_that_comes_out_as_predicted_widens_no_ratio(name: str, trained: float) -> None:
    law = shared(name)
    one = as_predicted(law, Shapes.of(MODELS[:1]), [trained])
    three = as_predicted(law, Shapes.of(MODELS[:3]), [trained, 3 * trained, trained / 2])
    for tokens in BUDGETS:
        before = ratios(law, tokens)
        for after in (one, three):
            assert (ratios(after, tokens) <= before * (1 + 1e-9)).all()
    assert ratios(three, trained).mean() < ratios(law, trained).mean()


def test_a_training_on_few_tokens_leaves_the_answer_for_many_as_sure() -> None:
    """One on 2 million tokens made × 1.22 into × 3.89 for 10 billion."""
    law = shared("own-data-llama")
    after = as_predicted(law, Shapes.of(MODELS[:1]), [2e6])
    before, then = (float(np.exp(ratios(each, 1e10)).max()) for each in (law, after))
    assert then <= before < 1.6


@pytest.mark.parametrize("trained", BUDGETS)
def test_a_second_training_as_predicted_widens_no_perplexity(trained: float) -> None:
    law, every = shared("own-data-llama"), Shapes.of(MODELS)
    one = as_predicted(law, Shapes.of(MODELS[:1]), [1e9])
    two = as_predicted(law, Shapes.of(MODELS[:2]), [1e9, trained])
    for tokens in BUDGETS:
        before, after = (each.at_tokens(tokens).predict(every).half_width for each in (one, two))
        assert (after <= before * (1 + 1e-9)).all()


def test_the_tokens_of_own_trainings_are_known_and_the_tables_only_on_their_data() -> None:
    elsewhere, there = shared("own-data-llama"), shared("llama-dolma-other-recipe")
    low, high = there.token_range or (0.0, 0.0)
    trained = [low / 4, low / 2]
    own, both = (as_predicted(law, Shapes.of(MODELS[:2]), trained) for law in (elsewhere, there))
    assert own.token_range == pytest.approx(tuple(trained))
    assert both.token_range == pytest.approx((low / 4, high))


def test_a_training_that_comes_out_otherwise_may_widen_intervals() -> None:
    law, models = shared("own-data-llama"), Shapes.of(MODELS)
    shift = np.linspace(-1, 1, len(MODELS))
    logs = law._posterior.expected(law._points(models, np.full(len(MODELS), math.log(1e10))).rows)
    own = [
        own_trainings(law, models, np.full(len(MODELS), math.log(1e10)), logs + scale * shift, list("abcdef"))
        for scale in (0.0, 1.0)
    ]
    usual, strange = (ratios(law.refined(each, law.origin), 1e10) for each in own)
    assert (strange > usual).all()


@pytest.mark.parametrize(
    ("tokens", "words", "short"),
    [
        (999.9e6, "1 billion", "1B"),
        (999.4e6, "999 million", "999M"),
        (999_600, "1 million", "1M"),
        (999.99e9, "1 trillion", "1T"),
        (4.1e6, "4.1 million", "4.1M"),
        (250, "250", "250"),
        (999_400, "999,400", "999K"),
        (1e18, "1000000 trillion", "1000000T"),
    ],
)
def test_tokens_in_words_are_rounded_before_their_unit_is_chosen(tokens: float, words: str, short: str) -> None:
    assert (in_words(tokens), in_short(tokens)) == (words, short)
