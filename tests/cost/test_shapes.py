"""Many architectures as arrays, against the formulas for one."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.cost.costs import costs
from edgefront.core.cost.flops import output_weights
from edgefront.core.cost.parameters import attention_width, count
from edgefront.core.cost.shapes import Shapes
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import BLOCK_KINDS, Attention, FeedForward, Srupp
from edgefront.core.spaces.catalogue import space
from edgefront.core.spaces.models import named_models

SPACES = ("lts-gpt2", "lts-transformer-xl", "hybrid", "par-32", "srupp")


def drawn(name: str, number: int = 12) -> list[Architecture]:
    rng, of = np.random.default_rng(7), space(name)
    return [of.architecture(of.sample(rng)) for _ in range(number)]


@pytest.mark.parametrize("name", SPACES)
def test_rows_are_what_the_formulas_say(name: str) -> None:
    architectures = drawn(name)
    shapes = Shapes.of(architectures)
    assert len(shapes) == len(architectures)
    for row, one in enumerate(architectures):
        found, cost = count(one), costs(one)
        assert (shapes.d_model[row], shapes.d_embed[row]) == (one.d_model, one.d_embed)
        assert (shapes.div[row], shapes.vocab_size[row]) == (one.embedding.div, one.embedding.vocab_size)
        assert shapes.decoder_parameters[row] == found.decoder
        assert shapes.position_parameters[row] == found.position
        assert shapes.embedding_parameters[row] == found.embedding
        assert (shapes.total_parameters[row], shapes.weight_bytes[row]) == (cost.total_parameters, cost.weight_bytes)
        assert shapes.output_weights[row] == output_weights(one)
        depth = len(one.blocks)
        assert [BLOCK_KINDS[kind] for kind in shapes.kind[row, :depth]] == [block.kind for block in one.blocks]
        assert (shapes.kind[row, depth:] == -1).all()
        assert not shapes.parameters[row, depth:].any()
        final_norm = 2 * one.d_model if one.has_final_norm else 0
        assert shapes.parameters[row].sum() + final_norm == found.decoder
        for place, block in enumerate(one.blocks):
            if isinstance(block, Attention):
                assert shapes.width[row, place] == attention_width(block, one)
                assert (shapes.heads[row, place], shapes.attends[row, place]) == (block.n_head, True)
            elif isinstance(block, FeedForward):
                assert shapes.width[row, place] == block.d_inner
                assert (shapes.heads[row, place], shapes.attends[row, place]) == (0, False)
            elif isinstance(block, Srupp):
                assert shapes.width[row, place] == block.d_attn
                assert shapes.attends[row, place] == (block.attends != "none")


def test_output_weights_are_the_difference_that_scores_make() -> None:
    for one in drawn("lts-gpt2", 1) + drawn("hybrid", 1):
        scored = costs(one, sequence_length=8, logits="last").flops - costs(one, sequence_length=8, logits="none").flops
        assert scored == 2 * output_weights(one)


def test_sources_and_outputs_of_every_kind() -> None:
    architectures = [one.architecture for one in named_models().values()]
    shapes = Shapes.of(architectures)
    for row, one in enumerate(architectures):
        blocks = len(one.blocks) + (len(one.source.blocks) if one.source else 0)
        assert (shapes.kind[row] >= 0).sum() == blocks
        assert shapes.total_parameters[row] == count(one).total


def test_rows_of_different_spaces_together() -> None:
    parts = [Shapes.of(drawn(name, 3)) for name in SPACES]
    together = Shapes.concatenate(parts)
    whole = Shapes.of([one for name in SPACES for one in drawn(name, 3)])
    for name in vars(whole):
        np.testing.assert_array_equal(getattr(together, name), getattr(whole, name))
        assert getattr(together, name).dtype == getattr(whole, name).dtype
    picked = together.take([4, 0])
    assert picked.decoder_parameters.tolist() == whole.decoder_parameters[[4, 0]].tolist()
    assert len(together.take(together.d_model > 10**6)) == 0
    assert len(Shapes.of([])) == len(Shapes.concatenate([])) == 0
