"""OpenVINO: the models that it reads, against PyTorch; memory of known size; what it refuses."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import block_models
import numpy as np
import pytest
import subjects
from block_models import ATTENTION, FEED_FORWARD, MODES, WORDS

from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.runtimes import LaunchRequest, library
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.common.units import MIB
from edgefront.core.measurement.protocol import MeasurementProtocol

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")

OPENVINO = MeasurementProtocol(runtime="openvino", sequence_length=24, repeats=3)
PARTS: dict[str, dict[str, Any]] = {
    "gpt": {"positions": {"kind": "learned", "length": 64}, "blocks": [ATTENTION, FEED_FORWARD] * 2},
    "par": {"positions": {"kind": "sinusoidal"}, "activation": "relu", "blocks": [ATTENTION, *[FEED_FORWARD] * 3]},
}
MODELS = {
    "transformer-xl": block_models.MODELS["transformer-xl"],
    **{name: Architecture.parse({"d_model": 64, "embedding": WORDS, **parts}) for name, parts in PARTS.items()},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_with_pytorch(weights: Path, name: str, mode: str) -> None:
    outputs = []
    for runtime in ("openvino", "pytorch"):
        protocol = MeasurementProtocol.model_validate({"runtime": runtime, "batch": 2, "logits": "all", **MODES[mode]})
        request = LaunchRequest(architecture=MODELS[name].canonical, protocol=protocol, seed=3, cache=weights)
        model: Any = library(protocol.runtime).build(request)
        model.forward_ms()
        assert model.finite()
        outputs.append(model._request.get_tensor("logits").data if runtime == "openvino" else model._output.numpy())
    assert np.abs(outputs[0].reshape(outputs[1].shape) - outputs[1]).max() < 1e-4


def test_an_input_and_an_output_of_known_size(measurer: Measurer, tmp_path: Path) -> None:
    """x, twice x as the output, and once more inside."""
    peaks = []
    for width in (1 << 14, 1 << 15):
        protocol = OPENVINO.model_copy(update={"sequence_length": 192})
        result = measurer.measure(subjects.doubled(tmp_path / f"{width}.onnx", width), protocol, seed=3)
        assert result.memory is not None, result.message
        peaks.append(result.memory.peak_bytes)
    x = 4 * 192 * (1 << 14)
    assert peaks[1] - peaks[0] == pytest.approx(5 * x, rel=0.05)


def test_weights_are_counted_once_packed_or_mapped(measurer: Measurer) -> None:
    model = subjects.gpt(layers=4, d_model=256, vocabulary=20000)
    result = measurer.measure(model, MeasurementProtocol(runtime="openvino", logits="last"), seed=3)
    assert result.memory is not None, result.message
    weight_bytes = costs(model).weight_bytes
    assert result.memory.peak_bytes > weight_bytes
    assert result.memory.peak_bytes < 3 * weight_bytes + 40 * MIB


def test_weights_that_a_larger_model_left_in_the_cache_do_not_count(measurer: Measurer) -> None:
    seed, small = 31, subjects.gpt(layers=2, d_model=128, vocabulary=8192)
    before = measurer.measure(small, OPENVINO, seed=seed)
    assert measurer.measure(subjects.gpt(layers=2, d_model=256, vocabulary=30000), OPENVINO, seed=seed).memory
    after = measurer.measure(small, OPENVINO, seed=seed)
    assert before.memory is not None
    assert after.memory is not None
    assert after.memory.mapped_weight_bytes == before.memory.mapped_weight_bytes
    assert after.memory.peak_bytes == pytest.approx(before.memory.peak_bytes, abs=2 * MIB)


def test_what_it_cannot_run_is_refused_with_the_reason(measurer: Measurer) -> None:
    sru = Architecture.parse(
        {"d_model": 16, "positions": {"kind": "none"}, "embedding": {"vocab_size": 50}, "blocks": [{"kind": "sru"}]}
    )
    result = measurer.measure(sru, OPENVINO, seed=3)
    assert (result.outcome, result.reason) == ("failed", "build_error")
    assert "recurrence" in result.message
    unknown = OPENVINO.model_copy(update={"provider": "npu_7"})
    result = measurer.measure(subjects.gpt(), unknown, seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    assert "cpu" in result.message
