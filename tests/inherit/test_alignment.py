"""Which blocks of a parent a child is made of: the choice with the least expected loss, as trying all of them finds."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inherited_models import PARENTS, cut_law, cut_table, parent

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.pruning_table import BlockPruning, Cut, PruningTable
from edgefront.core.training.pruning.submodel import explicit_blocks, random_submodel, submodel


def _brute_force(table: PruningTable, child: Architecture) -> float:
    """Least loss over all ways to lay the child's blocks onto the parent's, in order."""
    whole, losses = explicit_blocks(table.parent), []
    for places in combinations(range(len(whole)), len(child.blocks)):
        one_by_one = []
        for place, block in zip(places, child.blocks, strict=True):
            alone = PruningTable(
                submodel(table.parent, [whole[place]], table.parent.d_model), (table.blocks[place],), table.width
            )
            found = alone.align_one(submodel(child, [block], table.parent.d_model))
            one_by_one.append(float(found.narrowed[0]))
        gone = sum(cuts.dropped for index, cuts in enumerate(table.blocks) if index not in places)
        losses.append(sum(one_by_one) + gone)
    return min(losses)


@given(name=st.sampled_from(["llama", "gpt2", "lfm"]), seed=st.integers(0, 1 << 30))
def test_the_alignment_is_the_cheapest_there_is(name: str, seed: int) -> None:
    rng, of = np.random.default_rng(seed), parent(name).architecture
    cuts = tuple(
        BlockPruning(rng.uniform(0, 2), Cut((0.25, 0.6, 1.0), (rng.uniform(1, 2), rng.uniform(0, 1), 0.0)), 0.0)
        for _ in of.blocks
    )
    table, child = PruningTable(of, cuts, Cut((0.5, 1.0), (1.0, 0.0))), random_submodel(of, rng)
    found = table.align_one(child)
    least = _brute_force(table, child)
    assert bool(found.is_part[0]) == np.isfinite(least)
    assert found.dropped[0] + found.narrowed[0] == pytest.approx(least, abs=1e-9)
    places = found.blocks[0][: len(child.blocks)]
    assert (np.diff(places) > 0).all()


@pytest.mark.parametrize("name", sorted(PARENTS))
def test_the_parent_is_the_part_that_costs_nothing(name: str) -> None:
    table = cut_table(name)
    found = table.align_one(table.parent)
    assert found.loss[0] == 0
    assert found.blocks[0].tolist() == list(range(len(table.parent.blocks)))


@pytest.mark.parametrize("name", ["llama", "lfm"])
def test_many_at_once_are_as_each_alone(name: str) -> None:
    rng, table = np.random.default_rng(2), cut_table(name)
    parts = [random_submodel(table.parent, rng) for _ in range(30)]
    together = table.align(Shapes.of(parts))
    for index, part in enumerate(parts):
        alone = table.align_one(part)
        assert alone.loss[0] == together.loss[index]
        assert alone.blocks[0].tolist() == together.blocks[index][: len(part.blocks)].tolist()


def test_a_parent_of_many_blocks_takes_no_more_memory() -> None:
    block = {"kind": "feed_forward", "d_inner": 8, "gated": True, "bias": False}
    of = Architecture.parse({**parent("llama").architecture.canonical, "blocks": [block] * 400})
    parts = Shapes.of([submodel(of, of.blocks[: 400 - left_out], of.d_model) for left_out in range(1, 121)])
    tracemalloc.start()
    aligned = PruningTable.trivial(of).align(parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert aligned.count.tolist() == list(range(1, 121))
    assert peak < 400 << 20  # all at once, the costs alone would be 154 MB, of a thousand parts 1.3 GB


def test_below_the_least_share_that_was_tried_the_loss_goes_on_rising() -> None:
    cut = Cut((0.25, 0.5, 1.0), (2.0, 1.0, 0.0))
    assert cut(np.array([1.0, 0.5, 0.375, 0.25, 0.125])).tolist() == [0, 1, 1.5, 2, 2.5]


def test_losses_of_the_table_are_those_of_real_cuts() -> None:
    """A block left out, or narrowed, in the running model diverges as the model cut so does."""
    import torch
    from inherited_models import child_of, cutter

    from edgefront.core.nn.model import LanguageModel
    from edgefront.core.training.pruning.prune import CUTS_EVERY

    model, table = parent("llama").eval(), cut_table("llama")
    of = cutter(model)
    inputs = of.text.rows[::CUTS_EVERY, :-1]

    @torch.no_grad()
    def divergence(child: LanguageModel) -> float:
        scores = (each.token_scores(each(inputs, "none")).log_softmax(-1) for each in (child, model))
        return float(torch.nn.functional.kl_div(*scores, log_target=True, reduction="sum")) / inputs.numel()

    for index in range(len(model.blocks)):
        kept = [block for place, block in enumerate(explicit_blocks(model.architecture)) if place != index]
        child = child_of(model, submodel(model.architecture, kept, 16), _only(table, index), of.importance)
        assert divergence(child) == pytest.approx(table.blocks[index].dropped, abs=1e-5)
    blocks = list(explicit_blocks(model.architecture))
    blocks[3] = blocks[3].model_copy(update={"d_inner": 12})
    child = child_of(model, submodel(model.architecture, blocks, 16), table, of.importance)
    assert table.blocks[3].narrowed(np.array([0.5]))[0] >= divergence(child) - 1e-5


def _only(table: PruningTable, index: int) -> PruningTable:
    """The table by which this block is the one to leave out."""
    cuts = tuple(
        BlockPruning(0.0 if place == index else 1.0, each.narrowed, 0.0) for place, each in enumerate(table.blocks)
    )
    return PruningTable(table.parent, cuts, table.width)


def test_predictions_of_a_law_are_about_parts_alone() -> None:
    from edgefront.core.common.errors import InvalidInput

    law = cut_law("llama")
    other = Shapes.of([parent("gpt2").architecture])
    assert np.isinf(law.expected(other)).all()
    with pytest.raises(InvalidInput, match="submodels of one model"):
        law.predict(other)
