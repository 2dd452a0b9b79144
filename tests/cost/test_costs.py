"""The options of the costs, what they are told as, and the bytes of the state."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from descriptions import descriptions
from example_model import example
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.flops import cache_size
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import KvCache
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.state import state_specs


def test_heads_and_activation_cost_nothing() -> None:
    one = costs(example(), CostOptions(sequence_length=8))
    two = costs(
        example(
            activation="relu", blocks=[{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 50}]
        ),
        CostOptions(sequence_length=8),
    )
    assert one.digest != two.digest
    assert {**dict(one), "digest": two.digest} == dict(two)


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


# Bytes of the state ---------------------------------------------------------------------------------------------------


@given(descriptions(causal=True), st.integers(1, 3), st.integers(0, 60), st.integers(1, 9))
def test_numbers_are_those_of_the_entries(model: Architecture, batch: int, tokens: int, source: int) -> None:
    entries = [spec.sizes(batch, tokens, source) for spec in state_specs(model, "cache") if not spec.integer]
    counted = cache_size(Shapes.of([model]), batch, tokens, source)
    assert counted.keys_and_values[0] + counted.cells[0] == sum(map(prod, entries))


@given(descriptions(causal=False))
def test_an_encoder_keeps_nothing(model: Architecture) -> None:
    assert costs(model, CostOptions(sequence_length=1)).state_bytes == 0


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("gpt2-small", 2 * 12 * 768),
        ("llama-3.2-1b", 2 * 16 * 512),
        ("qwen2.5-0.5b", 2 * 24 * 128),
        ("smollm2-135m", 2 * 30 * 192),
    ],
)
def test_caches_that_people_know(name: str, per_token: int) -> None:
    found = costs(
        named_model(name).architecture, CostOptions(mode="decode", memory_length=511, dtype="bfloat16", batch=2)
    )
    assert found.state_bytes == 2 * 2 * 512 * per_token


@pytest.mark.parametrize(("held", "bytes_of_32"), [("f32", 128), ("f16", 64), ("q8_0", 34), ("q4_0", 18)])
def test_llama_cpp_keeps_keys_and_values_in_a_format_of_their_own(held: KvCache, bytes_of_32: int) -> None:
    fields: dict[str, Any] = {"mode": "decode", "memory_length": 99, "kv_cache": held}
    protocol = MeasurementProtocol(runtime="llamacpp", **fields)
    smollm, lfm2 = (named_model(name).architecture for name in ("smollm2-135m", "lfm2-350m"))
    assert protocol_costs(smollm, protocol).state_bytes == 100 * 2 * 30 * 192 // 32 * bytes_of_32
    cells = 4 * 10 * 2 * 1024
    assert protocol_costs(lfm2, protocol).state_bytes == 100 * 2 * 6 * 512 // 32 * bytes_of_32 + cells
    generation = MeasurementProtocol(runtime="llamacpp", mode="generate", sequence_length=50, kv_cache=held)
    assert protocol_costs(smollm, generation).state_bytes == 114 * 2 * 30 * 192 // 32 * bytes_of_32
