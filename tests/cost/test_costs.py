"""The options of the costs, and what they are told as."""

from __future__ import annotations

from typing import Any

import pytest

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_model
from edgefront.core.wire.service import Costs as CostsView


def example(**changes: Any) -> Architecture:
    """A small adaptive model with 64 positions."""
    value = {
        "d_model": 32,
        "positions": {"kind": "learned", "length": 64, "offset": 2},
        "embedding": {"vocab_size": 200, "d_embed": 16, "cutoffs": [40, 90], "div": 2},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 50}],
    }
    return Architecture.parse({**value, **changes})


def test_heads_and_activation_cost_nothing() -> None:
    one = costs(example(), CostOptions(sequence_length=8))
    two = costs(
        example(
            activation="relu", blocks=[{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 50}]
        ),
        CostOptions(sequence_length=8),
    )
    assert one.digest != two.digest
    assert {**one.to_json(), "digest": two.digest} == two.to_json()


def test_costs_are_a_wire_message() -> None:
    found = costs(example(), CostOptions(sequence_length=4, mode="decode", memory_length=9, weights="int8"))
    assert CostsView(**found.to_json()).model_dump() == found.to_json()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"sequence_length": 0}, "sequence_length"),
        ({"sequence_length": 65}, "sequence_length"),
        ({"sequence_length": True}, "sequence_length"),
        ({"sequence_length": 2.0}, "sequence_length"),
        ({"sequence_length": 64, "mode": "decode"}, "sequence_length"),
        ({"memory_length": 57}, "memory_length"),
        ({"memory_length": -1}, "memory_length"),
        ({"memory_length": 0, "mode": "decode"}, "memory_length"),
        ({"memory_length": 1, "mode": "prefill"}, "memory_length"),
        ({"batch": 0}, "batch"),
        ({"batch": 1 << 20}, "batch"),
        ({"mode": "train"}, "mode"),
        ({"dtype": "int3"}, "dtype"),
        ({"logits": "first"}, "logits"),
        ({"weights": "int3"}, "weights"),
        ({"weights": "q4_0"}, "architecture"),
        ({"weights": "int4", "dtype": "float16"}, "weights"),
        ({"weights": "int8", "dtype": "float16"}, "weights"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        costs(example(), CostOptions(**{"sequence_length": 8, **options}))
    assert caught.value.field == field
    assert caught.value.allowed


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("bert-base", {"mode": "decode"}, "mode"),
        ("bert-base", {"mode": "prefill"}, "mode"),
        ("bert-base", {"memory_length": 1}, "memory_length"),
        ("bert-base", {"sequence_length": 513}, "sequence_length"),
        ("srupp-iwslt", {"memory_length": 1}, "memory_length"),
    ],
)
def test_a_missing_feature_of_a_model_is_named(name: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        costs(named_model(name).architecture, CostOptions(**options))
    assert caught.value.field == field


def test_without_a_table_of_positions_no_length_is_too_long() -> None:
    found = costs(named_model("par-base").architecture, CostOptions(sequence_length=64, memory_length=1 << 19))
    assert found.flops > 0
