"""Features against the formulas of one architecture's cost."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.prediction.features import FEATURES, NAMES, descriptors, features, features_by_block
from edgefront.core.measurement.protocol import MeasurementProtocol

PROTOCOLS = (
    MeasurementProtocol(logits="all"),
    MeasurementProtocol(mode="prefill", logits="none", batch=2),
    MeasurementProtocol(memory_length=64, sequence_length=50, batch=2),
    MeasurementProtocol(mode="decode", memory_length=100, batch=3),
)
PRODUCTS = [feature.unit == "MAC" for feature in FEATURES]


def drawn(name: str, number: int, seed: int = 3) -> list[Architecture]:
    rng, of = np.random.default_rng(seed), space(name)
    return [of.architecture(of.sample(rng)) for _ in range(number)]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.one_pass)
def test_products_are_those_of_the_cost(protocol: MeasurementProtocol) -> None:
    """With clamped distances, clusters of the vocabulary, sources and pooled outputs."""
    models = [decoder(), *(model.architecture for model in named_models().values())]
    for name in ("lts-gpt2", "lts-transformer-xl", "hybrid", "srupp"):
        models += drawn(name, 6)
    counted = 0
    for architecture in models:
        try:
            cost = protocol_costs(architecture, protocol)
        except InvalidInput:
            continue  # a pass that it does not make
        row = features(Shapes.of([architecture]), protocol)[0]
        assert 2 * row[PRODUCTS].sum() == cost.flops
        counted += 1
    assert counted > 50


def test_sru_and_mixed_stacks_are_counted_too() -> None:
    blocks = [{"kind": "sru"}, {"kind": "sru", "d_proj": 24}, {"kind": "srupp", "d_attn": 16, "attends": "none"}]
    architecture = Architecture.parse(
        {"d_model": 32, "embedding": {"vocab_size": 100}, "blocks": [*blocks, {"kind": "identity"}]}
    )
    protocol = MeasurementProtocol(sequence_length=20, logits="none")
    row = features(Shapes.of([architecture]), protocol)[0]
    assert 2 * row[PRODUCTS].sum() == costs(architecture, CostOptions(sequence_length=20, logits="none")).flops
    by_name = dict(zip(NAMES, row, strict=True))
    assert (by_name["recurrence_calls"], by_name["recurrence"]) == (3, 3 * 20 * 32)
    assert (by_name["srupp_calls"], by_name["srupp_scores"]) == (0, 0)
    assert by_name["block_stream"] == 3 * 20 * 32  # nothing for the identity


def decoder(**changes: object) -> Architecture:
    """A decoder of grouped queries, gates and a short convolution."""
    attention = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "qk_norm": True, "bias": "none", "window": 20}
    description = {
        "d_model": 32,
        "positions": {"kind": "rotary", "percent": 50},
        "norm_kind": "rms",
        "embedding": {"vocab_size": 100},
        "blocks": [
            {"kind": "short_conv", "kernel": 4},
            {"kind": "feed_forward", "d_inner": 40, "gated": True, "bias": False},
            attention,
            {"kind": "feed_forward", "d_inner": 24},
            {**attention, "n_kv_head": 1, "window": None, "d_head": 16, "bias": "qkv"},
        ],
    }
    return Architecture.parse({**description, **changes})


def test_what_else_a_decoder_does_is_counted() -> None:
    protocol = MeasurementProtocol(mode="decode", memory_length=100, batch=3)
    counts = dict(zip(NAMES, features(Shapes.of([decoder()]), protocol)[0].tolist(), strict=True))
    assert counts["grouped_kept"] == 2 * 3 * (20 * 2 * 8 + 101 * 16)
    assert counts["grouped_scores"] == 2 * 3 * (20 * 32 + 101 * 64)
    assert counts["attention_scores"] == 0
    assert counts["attention_weights"] == 3 * 4 * (20 + 101)
    assert counts["attention_turned"] == 3 * ((4 + 2) * 4 + (4 + 1) * 8)
    assert (counts["attention_norms"], counts["block_biases"]) == (4, 2)
    assert (counts["feed_forward_width"], counts["feed_forward_gates"]) == (3 * 64, 3 * 40)
    assert (counts["convolution_calls"], counts["convolution_taps"]) == (1, 3 * 32 * 4)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.one_pass)
def test_blocks_and_ends_sum_to_the_whole(protocol: MeasurementProtocol) -> None:
    shapes = Shapes.of([*drawn("hybrid", 5), *drawn("lts-transformer-xl", 3), decoder()])
    assert (features_by_block(shapes, protocol).sum(axis=1) == features(shapes, protocol)).all()


def test_descriptors_are_finite_for_any_stack() -> None:
    architectures = drawn("hybrid", 20) + drawn("lts-gpt2", 5)
    architectures.append(
        Architecture.parse({"d_model": 8, "embedding": {"vocab_size": 9}, "blocks": [{"kind": "identity"}]})
    )
    shapes = Shapes.of(architectures)
    assert np.isfinite(descriptors(shapes, features(shapes, PROTOCOLS[1]))).all()
