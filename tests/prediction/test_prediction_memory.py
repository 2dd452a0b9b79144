"""Peak memory: exact weights, and what launches say of the rest."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GgufQuantisation
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.prediction.memory import MEMORY_FEATURES, MemoryPredictor, memory_features, weight_bytes
from edgefront.core.measurement.protocol import MeasurementProtocol

PROTOCOLS = (
    MeasurementProtocol(),
    MeasurementProtocol(dtype="bfloat16", logits="all"),
    MeasurementProtocol(weights="int8"),
    MeasurementProtocol(weights="int4", block_size=64),
    MeasurementProtocol(mode="decode", memory_length=64),
)


def drawn(name: str, number: int) -> list[Architecture]:
    rng, of = np.random.default_rng(9), space(name)
    return [of.architecture(of.sample(rng)) for _ in range(number)]


DECODER = Architecture.parse(
    {
        "d_model": 32,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "embedding": {"vocab_size": 100},
        "blocks": [
            {"kind": "short_conv"},
            {"kind": "feed_forward", "d_inner": 20, "gated": True, "bias": False},
            {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none", "window": 20},
            {"kind": "attention", "n_head": 4, "n_kv_head": 1},
        ],
    }
)


GPT2 = [named_model(name).architecture for name in ("distilgpt2", "gpt2-small", "gpt2-medium")]


@pytest.mark.parametrize(
    ("architectures", "protocol"),
    [
        *(([*drawn("lts-gpt2", 8), *drawn("hybrid", 8), *drawn("srupp", 8), DECODER], each) for each in PROTOCOLS),
        *((GPT2, MeasurementProtocol(runtime="llamacpp", weights=each)) for each in get_args(GgufQuantisation)),
    ],
)
def test_weights_are_counted_exactly(architectures: list[Architecture], protocol: MeasurementProtocol) -> None:
    expected = [protocol_costs(architecture, protocol).weight_bytes for architecture in architectures]
    assert weight_bytes(Shapes.of(architectures), protocol).tolist() == expected


def test_a_cache_holds_shared_keys_once_and_no_more_than_a_window() -> None:
    protocol = MeasurementProtocol(mode="decode", memory_length=64, batch=3)
    counts = dict(zip(MEMORY_FEATURES, memory_features(Shapes.of([DECODER]), protocol)[0].tolist(), strict=True))
    assert counts["state"] == 4 * 2 * 3 * (19 * 16 + 65 * 8)
    assert counts["attention_weights"] == 4 * 3 * 65 * 4
    assert counts["inner"] == 4 * 3 * 3 * 32


@pytest.mark.parametrize("mode", ["forward", "decode", "generate"])
def test_the_cache_of_llama_cpp_is_predicted_in_its_format(mode: Any) -> None:
    smollm = Shapes.of([named_model("smollm2-135m").architecture])
    state_bytes = {}
    for held in ("f32", "f16", "q8_0", "q4_0"):
        protocol = MeasurementProtocol.model_validate({"runtime": "llamacpp", "mode": mode, "kv_cache": held})
        state_bytes[held] = memory_features(smollm, protocol)[0, list(MEMORY_FEATURES).index("state")]
    assert state_bytes["f32"] > 0
    assert [state_bytes[held] / state_bytes["f32"] for held in state_bytes] == pytest.approx(
        [1, 1 / 2, 34 / 128, 18 / 128]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: f"{protocol.mode} {protocol.number_format}")
def test_ten_launches_tell_what_a_runtime_holds(protocol: MeasurementProtocol) -> None:
    shapes = Shapes.of(drawn("lts-gpt2", 60))
    held = dict.fromkeys(MEMORY_FEATURES, 0.0) | {"runtime": 3e6, "inner": 3.0, "state": 2.0, "attention_weights": 1.0}
    peak = weight_bytes(shapes, protocol) + memory_features(shapes, protocol) @ np.array(list(held.values()))
    noisy = peak * np.exp(0.002 * np.random.default_rng(0).standard_normal(60))
    mean, low, high = MemoryPredictor.fit(shapes.take(slice(0, 10)), protocol, noisy[:10]).predict(shapes)
    assert np.mean(np.abs(mean / noisy - 1)) < 0.01
    assert np.mean((low <= noisy) & (noisy <= high)) > 0.9
    assert (low >= weight_bytes(shapes, protocol) * 0.999999).all()


def test_wrong_peaks_name_their_row() -> None:
    shapes = Shapes.of(drawn("lts-gpt2", 4))
    with pytest.raises(InvalidInput, match=r"peak_bytes\.2: must be a number above zero"):
        MemoryPredictor.fit(shapes, PROTOCOLS[0], [1e8, 1e8, 0, 1e8])
    with pytest.raises(InvalidInput, match="at least 3 different architectures"):
        MemoryPredictor.fit(shapes.take([0, 0]), PROTOCOLS[0], [1e8, 1e8])
