"""The law of a model's cuts: what it predicts, what it refuses, and that its file says it again."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from inherited_models import cut_law, parent
from numpy.typing import NDArray
from scipy.stats import spearmanr

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.pruning_predictor import (
    LEVEL,
    PRIOR_STD,
    PruningPredictor,
    _fit,
    _left_out,
    _posterior,
    pruning_origin,
)
from edgefront.core.quality.pruning_table import BlockPruning, Cut, PruningTable
from edgefront.core.quality.stored import from_json, to_json, to_text
from edgefront.core.training.pruning.submodel import random_submodel

RNG = np.random.default_rng


def _parts(of: Architecture, seed: int, count: int) -> list[Architecture]:
    rng, parts = RNG(seed), dict[str, Architecture]()
    while len(parts) < count:
        part = random_submodel(of, rng)
        if part != of:
            parts[part.digest] = part
    return list(parts.values())


def _made(
    seed: int, deviation: float, count: int = 24
) -> tuple[PruningPredictor, list[Architecture], NDArray[np.float64]]:
    """A law of cuts whose combinations lose what single cuts lose, times a power of their number that strays so far;
    and 60 others."""
    rng = RNG(seed)
    of = Architecture.parse({**parent("llama").architecture.canonical, "blocks": _blocks(12)})
    blocks = tuple(
        BlockPruning(rng.uniform(0.05, 0.6), Cut((0.25, 0.5, 0.75, 1.0), (0.5, 0.25, 0.1, 0.0)), 0.1) for _ in of.blocks
    )
    table = PruningTable(of, blocks, Cut((0.6, 0.8, 1.0), (0.8, 0.3, 0.0)))
    parts = _parts(of, seed, count + 60)
    aligned = table.align(Shapes.of(parts))
    losses = aligned.loss * aligned.count**0.15 * np.exp(rng.normal(0, deviation, len(parts)) * np.log(aligned.count))
    law = PruningPredictor(
        pruning_origin("cuts-made", "made", "noise", "valid", "token", "llama"),
        table,
        2.5,
        tuple(parts[:count]),
        2.5 + losses[:count],
    )
    return law, parts[count:], 2.5 + losses[count:]


def _blocks(count: int) -> list[dict[str, object]]:
    attention = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "d_head": 4, "bias": "none"}
    fed = {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False}
    return [attention, fed] * (count // 2)


def test_intervals_hold_on_combinations_that_it_never_saw() -> None:
    held, width = [], []
    for seed in range(8):
        law, others, truth = _made(seed, 0.15)
        predicted = law.predict(Shapes.of(others))
        held.append(np.abs(truth - predicted.log_perplexity) <= predicted.half_width)
        width.append(predicted.half_width / (predicted.log_perplexity - 2.5))
        assert spearmanr(law.expected(Shapes.of(others)), truth).statistic > 0.9
    assert np.mean(held) >= 0.92
    assert np.median(width) < 0.9  # of the loss: exp(2.1 · .15 · ln 6) - 1 is .75


def test_the_interval_is_that_of_each_combination_predicted_from_the_others() -> None:
    rng = RNG(0)
    rows, targets, deviation = rng.normal(0, 3, (12, len(PRIOR_STD))), rng.normal(size=12), 0.3
    errors, spreads = _left_out(rows, targets, deviation)
    for index in range(len(targets)):
        others = np.arange(len(targets)) != index
        mean, covariance = _posterior(rows[others], targets[others], deviation)
        assert errors[index] == pytest.approx(targets[index] - rows[index] @ mean)
        assert spreads[index] == pytest.approx(np.sqrt(deviation**2 + rows[index] @ covariance @ rows[index]))


def test_the_parent_is_exact_and_so_is_a_ratio_to_itself() -> None:
    law = cut_law("llama")
    whole, part = Shapes.of([law.parent]), Shapes.of([law.architectures[0]])
    predicted = law.predict(whole)
    assert predicted.log_perplexity[0] == law.parent_log_perplexity
    assert predicted.half_width[0] == 0
    itself = law.ratio(part, part)
    assert (itself.perplexity[0], itself.half_width[0]) == (1, 0)
    against = law.ratio(part, whole)
    assert against.half_width[0] == pytest.approx(law.predict(part).half_width[0])


def test_larger_cuts_than_were_tried_are_said_to_be() -> None:
    law, others, _ = _made(1, 0.1, count=8)
    shapes = Shapes.of(others)
    beyond = law.predict(shapes).extrapolated
    tried = law.table.align(Shapes.of(law.architectures)).loss.max()
    assert (beyond == (law.table.align(shapes).loss > tried)).all()
    assert law.beyond(shapes)[int(np.argmax(beyond))] == ("larger cuts than were tried",)


@pytest.mark.parametrize("name", ["llama", "gpt2", "lfm"])
def test_a_stored_law_predicts_the_same(name: str) -> None:
    law = cut_law(name)
    again = from_json(to_text(law))
    shapes = Shapes.of(_parts(law.parent, 9, 10))
    assert again.predict(shapes).log_perplexity.tolist() == law.predict(shapes).log_perplexity.tolist()
    assert again.predict(shapes).half_width.tolist() == law.predict(shapes).half_width.tolist()
    assert to_text(again) == to_text(law)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parent_log_perplexity": float("nan")}, "law.parent_log_perplexity"),
        ({"parent_log_perplexity": 1e308}, "law.parent_log_perplexity"),
        ({"combinations": [{"architecture": {}, "log_perplexity": 1e308}]}, "law.combinations.0.log_perplexity"),
        ({"combinations": []}, "law.combinations"),
        ({"blocks": []}, "law.blocks"),
        ({"width": {"shares": [0.5, 0.25, 1.0], "losses": [1, 2, 0]}}, "shares"),
        ({"width": {"shares": [0.5, 1.0], "losses": [1, 0.5]}}, "shares"),
        ({"width": {"shares": [5e-324, 1e-323, 1.0], "losses": [1, 1, 0]}}, "shares"),
        ({"name": "Not A Name"}, "law.name"),
    ],
)
def test_a_wrong_law_names_the_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_json(json.dumps({**to_json(cut_law("llama")), **change}))
    assert refused.value.field.endswith(field)


def test_more_combinations_than_can_be_read_in_seconds_are_refused() -> None:
    law, _, _ = _made(0, 0.1, 1)
    blocks = _blocks(1024)
    value = to_json(
        replace(law, table=PruningTable.trivial(Architecture.parse({**law.parent.canonical, "blocks": blocks})))
    )
    value["combinations"] *= 196
    with pytest.raises(InvalidInput, match="196 are too many for a model of 1,024 blocks"):
        from_json(json.dumps(value))


def test_combinations_that_are_no_parts_are_refused() -> None:
    value = to_json(cut_law("llama"))
    value["combinations"][0]["architecture"] = parent("gpt2").architecture.canonical
    with pytest.raises(InvalidInput, match="submodels of one model"):
        from_json(json.dumps(value))


def test_what_is_no_part_is_worse_than_every_part() -> None:
    own, other = parent("llama").architecture, parent("gpt2").architecture
    part, foreign = cut_law("llama").expected(Shapes.of([own, other])).tolist()
    assert np.isfinite(part)
    assert foreign == np.inf


def test_an_interval_is_as_wide_as_left_out_combinations_strayed() -> None:
    """Three combinations of forty far from the others: Student's quantile alone does not reach them."""
    rows, targets = np.ones((40, 1)) * np.eye(1, len(PRIOR_STD)), np.zeros(40)
    targets[:3] = 3.0
    fitted = _fit(rows, targets)
    error, spread = _left_out(rows, targets, fitted.deviation)
    assert fitted.quantile == pytest.approx(np.quantile(np.abs(error / spread), LEVEL))
    assert fitted.quantile > _fit(rows, np.zeros(40)).quantile
