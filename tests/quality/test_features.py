"""What a law reads of an architecture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from descriptions import descriptions
from hypothesis import given

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.features import BLOCK_NAMES, FEATURES, NAMES, features, names_of_blocks


def row(**changes: Any) -> dict[str, float]:
    value = {
        "d_model": 64,
        "embedding": {"vocab_size": 1000},
        "blocks": [
            {"kind": "attention", "n_head": 2},
            {"kind": "feed_forward", "d_inner": 100},
            {"kind": "attention", "n_head": 4},
            {"kind": "feed_forward", "d_inner": 300},
        ],
    }
    found = features(Shapes.of([Architecture.parse({**value, **changes})]))[0]
    return dict(zip(NAMES, found.tolist(), strict=True))


def test_numbers_of_a_small_model() -> None:
    found = row()
    assert found["log_depth"] == pytest.approx(math.log(2))
    assert found["log_d_model"] == pytest.approx(math.log(64))
    assert found["log_d_inner"] == pytest.approx(math.log(200))
    assert found["log_heads"] == pytest.approx(math.log(3))
    assert found["log_embedding"] == pytest.approx(math.log(64 * 1000))
    assert found["log_rank"] == pytest.approx(math.log(64))
    assert found["log_div"] == 0
    assert found["inner_variation"] == pytest.approx(0.5)
    assert found["inner_trend"] == pytest.approx(1)
    total = math.exp(found["log_attention"]) + math.exp(found["log_feed_forward"])
    assert math.exp(found["log_decoder"]) == pytest.approx(total + 2 * 64)


def test_even_stacks_have_no_variation_and_no_trend() -> None:
    found = row(
        blocks={
            "pattern": "(sf)x3",
            "s": {"kind": "attention", "n_head": 2},
            "f": {"kind": "feed_forward", "d_inner": 96},
        }
    )
    assert (found["inner_variation"], found["inner_trend"]) == (0, 0)


def test_parts_of_todays_decoders_are_counted_like_what_they_stand_for() -> None:
    attention, convolution = {"kind": "attention", "n_head": 2}, {"kind": "short_conv"}
    plain, gated = {"kind": "feed_forward", "d_inner": 96, "bias": False}, {"kind": "feed_forward", "d_inner": 64}
    two = row(blocks=[attention, plain, attention, plain])
    assert row(blocks=[convolution, plain, attention, plain])["log_depth"] == two["log_depth"]
    other = row(blocks=[attention, {**gated, "gated": True, "bias": False}] * 2)
    for name in ("log_d_inner", "log_feed_forward", "log_decoder"):
        assert other[name] == two[name]


def test_blocks_that_laws_tell_apart() -> None:
    grouped = {"kind": "attention", "n_head": 2, "n_kv_head": 1}
    blocks = [
        *({"kind": "attention", "n_head": 2}, grouped, {"kind": "attention", "n_head": 2, "window": 9}),
        *({"kind": "feed_forward", "d_inner": 8}, {"kind": "feed_forward", "d_inner": 8, "gated": True}),
        *({"kind": "srupp", "d_attn": 16}, {"kind": "short_conv"}),
    ]
    description = {"d_model": 64, "positions": {"kind": "none"}, "embedding": {"vocab_size": 9}}
    found = names_of_blocks(Shapes.of([Architecture.parse({**description, "blocks": blocks})]))[0]
    assert [BLOCK_NAMES[index] for index in found] == [
        *("attention", "grouped_attention", "grouped_attention"),
        *("feed_forward", "gated_feed_forward", "srupp", "short_conv"),
    ]


@given(descriptions())
def test_every_description_has_finite_features(architecture: Architecture) -> None:
    found = features(Shapes.of([architecture]))
    assert found.shape == (1, len(FEATURES))
    assert np.isfinite(found).all()
    assert found[0, 0] == pytest.approx(
        math.log(max(1, costs(architecture, CostOptions(sequence_length=1)).decoder_parameters))
    )
