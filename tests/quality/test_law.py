"""Scaling laws on tables of trained models that are not the law's: ranks, intervals, other families, few models."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.features import features
from edgefront.core.quality.predictor import Origin, Prediction
from edgefront.core.quality.shipped import law_named
from edgefront.core.quality.stored import to_text
from edgefront.core.quality.table_fit import cross_validated, fit_table, folds
from edgefront.core.services.quality.trust import trust
from edgefront.core.training.proxies.study import best, spearman
from edgefront.core.training.proxies.trained import TrainedModels

ORIGIN = Origin("test", "test")


def rank(wanted: np.ndarray, found: Prediction, share: float = 0.1) -> float:
    """Spearman's ρ over the best `share` of the models."""
    chosen = best(-wanted, share)
    return spearman(wanted[chosen], found.log_perplexity[chosen])


def held(wanted: np.ndarray, found: Prediction) -> float:
    return float(np.mean(np.abs(wanted - found.log_perplexity) <= found.half_width))


def ten_folds(shapes: Shapes, log_perplexity: np.ndarray) -> Prediction:
    folds = cross_validated(
        shapes, np.zeros(len(shapes)), lambda left: fit_table(shapes.take(~left), log_perplexity[~left], ORIGIN)
    )
    assert folds is not None
    return folds


@pytest.mark.parametrize(("name", "space_name"), [("gpt2", "lts-gpt2"), ("txl", "lts-transformer-xl")])
def test_ten_folds(name: str, space_name: str, request: pytest.FixtureRequest) -> None:
    table: TrainedModels = request.getfixturevalue(name)
    folds = ten_folds(table.shapes, table.log_perplexity)
    published = trust(space_name, "quality_law")
    assert rank(table.log_perplexity, folds) == pytest.approx(published.best_tenth, abs=6e-4)
    assert rank(table.log_perplexity, folds, 1) == pytest.approx(published.spearman, abs=6e-4)
    assert 0.90 <= held(table.log_perplexity, folds) <= 0.97
    assert np.sqrt(np.mean((folds.log_perplexity - table.log_perplexity) ** 2)) < 0.014


def test_a_table_given_twice_is_no_better_known(gpt2: TrainedModels) -> None:
    part = np.arange(40)
    twice = np.concatenate([part, part])
    once = (gpt2.shapes.take(part), gpt2.log_perplexity[part])
    again = (gpt2.shapes.take(twice), gpt2.log_perplexity[twice])
    laws = [fit_table(shapes, losses, ORIGIN) for shapes, losses in (once, again)]
    assert to_text(laws[0]) == to_text(laws[1])
    found = [ten_folds(*each) for each in (once, again)]
    assert np.array_equal(found[0].log_perplexity, found[1].log_perplexity[:40])
    assert np.array_equal(found[0].half_width, found[1].half_width[40:])


def test_models_of_one_shape_are_in_one_fold(gpt2: TrainedModels) -> None:
    """Seeds of one architecture differ a little; a fold that leaves out one leaves out all."""
    inputs = features(gpt2.shapes.take(np.repeat(np.arange(30), 3))).round(6)
    masks = folds(inputs)
    assert len(masks) == 10
    assert np.array_equal(np.sum(masks, 0), np.ones(90))
    for mask in masks:
        assert {tuple(row) for row in inputs[mask]}.isdisjoint({tuple(row) for row in inputs[~mask]})


def test_more_seeds_of_the_same_architectures_leave_the_intervals_as_wide(gpt2: TrainedModels) -> None:
    rng = np.random.default_rng(0)
    part, seeds = gpt2.shapes.take(np.arange(12)), gpt2.shapes.take(np.repeat(np.arange(12), 10))
    one = fit_table(part, gpt2.log_perplexity[:12], ORIGIN)
    ten = fit_table(seeds, np.repeat(gpt2.log_perplexity[:12], 10) + rng.normal(0, 0.003, 120), ORIGIN)
    assert ten.study.prior.quantile == one.study.prior.quantile


def test_one_family_ranks_the_other(gpt2: TrainedModels, txl: TrainedModels) -> None:
    found = law_named("lts-gpt2-wikitext103").predict(txl.shapes)
    assert rank(txl.log_perplexity, found) >= 0.93
    assert found.extrapolated.any()


@pytest.mark.parametrize("number", [5, 20, 80])
def test_intervals_hold_whatever_the_number(
    number: int, gpt2: TrainedModels, txl: TrainedModels, hwgpt: TrainedModels
) -> None:
    for table in (gpt2, txl, hwgpt):
        holds = []
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(len(table.log_perplexity))
            mine, others = order[:number], order[number:]
            law = fit_table(table.shapes.take(mine), table.log_perplexity[mine], ORIGIN)
            holds.append(held(table.log_perplexity[others], law.predict(table.shapes.take(others))))
        assert median(holds) >= 0.88


def test_a_large_table_is_ranked_by_the_part_that_is_kept(hwgpt: TrainedModels) -> None:
    law = law_named("hwgpt-gpt2-openwebtext")
    learnt = set(map(tuple, law.study.inputs.tolist()))  # type: ignore[attr-defined]
    known = np.array([tuple(row) in learnt for row in features(hwgpt.shapes).round(6).tolist()])
    assert law.models == 1500
    assert len(law.study.inputs) == 400  # type: ignore[attr-defined]
    others = ~known
    assert others.sum() > 1000
    unseen = law.predict(hwgpt.shapes.take(others))
    assert rank(hwgpt.log_perplexity[others], unseen) >= 0.88
    assert 0.90 <= held(hwgpt.log_perplexity[others], unseen) <= 0.97


def test_the_order_of_the_table_changes_nothing(txl: TrainedModels) -> None:
    order = np.random.default_rng(0).permutation(60)
    one = fit_table(txl.shapes.take(slice(60)), txl.log_perplexity[:60], ORIGIN)
    two = fit_table(txl.shapes.take(order), txl.log_perplexity[order], ORIGIN)
    assert one.study.prior.kernel == two.study.prior.kernel
    assert (one.predict(txl.shapes).log_perplexity == two.predict(txl.shapes).log_perplexity).all()


def test_beyond_its_table_the_interval_widens() -> None:
    law, of = law_named("lts-gpt2-wikitext103"), space("lts-gpt2")

    def stack(width: int, layers: int, inner: int) -> Shapes:
        genome = {"n_layer": layers, "d_model": width, "div": 4, "d_embed": "d_model"}
        return Shapes.of([of.architecture({**genome, "n_head": [8] * 16, "d_inner": [inner] * 16})])

    near, far, farther = (law.predict(stack(*one)) for one in ((512, 8, 1600), (768, 8, 2048), (1024, 16, 4096)))
    assert (near.extrapolated[0], far.extrapolated[0], farther.extrapolated[0]) == (False, True, True)
    assert near.half_width[0] < far.half_width[0] < farther.half_width[0]
    assert (near.low < near.perplexity).all()
    assert (near.perplexity < near.high).all()
    assert law.beyond(stack(512, 8, 1600)) == [()]
    assert "log_d_model" in law.beyond(stack(1024, 16, 4096))[0]


def test_blocks_that_no_table_has_are_extrapolated() -> None:
    of = space("hybrid")
    law = law_named("lts-transformer-xl-wikitext103")
    rng = np.random.default_rng(3)
    drawn = [of.architecture(of.sample(rng)) for _ in range(20)]
    shapes = Shapes.of(drawn)
    mixed = np.array([any(block.kind == "srupp" for block in one.blocks) for one in drawn])
    found = law.predict(shapes)
    assert mixed.any()
    assert found.extrapolated[mixed].all()
    assert all("blocks" in row for row, has in zip(law.beyond(shapes), mixed, strict=True) if has)
    assert np.isfinite(found.perplexity).all()


@pytest.mark.parametrize(
    ("rows", "values", "field"),
    [
        ([0], [3.0], "table"),
        ([0, 0, 0, 0, 0, 0], [3.0, 3.1, 3.2, 3.3, 3.4, 3.5], "table"),
        (range(6), [3.0] * 6, "perplexity"),
    ],
)
def test_tables_from_which_no_law_can_be_fitted(
    rows: list[int], values: list[float], field: str, txl: TrainedModels
) -> None:
    with pytest.raises(InvalidInput) as caught:
        fit_table(txl.shapes.take(list(rows)), values, ORIGIN)
    assert caught.value.field == field
