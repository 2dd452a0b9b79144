"""Bytes of the state: against the entries that the builders declare, and of models that people know."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from descriptions import descriptions
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.cost.flops import kept
from edgefront.core.cost.shapes import Shapes
from edgefront.core.graph.state import state_specs
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.number_formats import KvCache
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_model


@given(descriptions(causal=True), st.integers(1, 3), st.integers(0, 60), st.integers(1, 9))
def test_numbers_are_those_of_the_entries(model: Architecture, batch: int, tokens: int, source: int) -> None:
    entries = [spec.sizes(batch, tokens, source) for spec in state_specs(model, "cache") if not spec.integer]
    counted = kept(Shapes.of([model]), batch, tokens, source)
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
