"""A candidate's costs are those of the pass that its protocol measures."""

from __future__ import annotations

from typing import Any

import pytest

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.models import named_model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory_length": 640, "sequence_length": 64},
        {"mode": "prefill", "logits": "last", "batch": 2},
        {"mode": "decode", "dtype": "bfloat16"},
        {"mode": "decode", "memory_length": 1000, "weights": "int8"},
    ],
)
def test_costs_of_a_protocol(options: dict[str, Any]) -> None:
    protocol = MeasurementProtocol(**options)
    architecture = named_model("par-base").architecture
    expected = costs(architecture, CostOptions(**{"logits": "last", **options}))
    assert protocol_costs(architecture, protocol) == expected
    assert (expected.sequence_length, expected.memory_length) == (protocol.sequence_length, protocol.memory_length)
