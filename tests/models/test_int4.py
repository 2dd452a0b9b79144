"""Four-bit weights of linear layers: what ONNX Runtime makes of them, their error, and their bytes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from built_graphs import build
from numpy.typing import NDArray
from passes import inputs
from tiny_models import apart, architecture, lively_weights, onnx_session

from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import parameters
from edgefront.core.measurement.prediction.memory import weight_bytes
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.export import write_onnx
from edgefront.core.model_files.formats import WeightCache, is_linear_map, quantise_int4
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.model_files.state import GraphOptions

# How far int4 may be from float32, relative to its norm; docs/concepts.md says so too.
OF_FLOAT32 = 0.25
# How far from the same weights as float32: inputs are quantised to eight bits, of which large weights make much.
OF_ITS_WEIGHTS = 0.1

LAYER = [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 256}]
MODELS = {
    "whole blocks": architecture(d_model=64, blocks=LAYER * 4),
    "padded blocks": architecture(d_model=40, blocks=[LAYER[0], {"kind": "feed_forward", "d_inner": 100}]),
    "every block": architecture(
        d_model=64,
        positions={"kind": "relative", "clamp": 9},
        blocks=[
            *LAYER,
            {"kind": "srupp", "d_attn": 32, "n_head": 2},
            {"kind": "sru", "d_proj": 24},
            {"kind": "sru"},
            {"kind": "srupp", "d_attn": 32, "attends": "none"},
        ],
    ),
}


@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_near_float32_and_the_same_from_cache_and_seed(tmp_path: Path, name: str, block_size: int) -> None:
    model, cache = MODELS[name], WeightCache(tmp_path)
    passed = {"tokens": inputs(model, 2, 9)["tokens"]}
    exact = onnx_session(build(model, seed=1)).run(None, passed)[0]
    options = GraphOptions(quantisation="int4", block_size=block_size)
    inside = onnx_session(build(model, options, seed=1)).run(None, passed)[0]
    mapped = onnx_session(build(model, options, weights=cache, seed=1), cache).run(None, passed)[0]
    assert np.array_equal(inside, mapped)
    assert 0 < apart(inside, exact) < OF_FLOAT32


@pytest.mark.parametrize("name", MODELS)
def test_given_weights_are_multiplied_as_they_were_rounded(name: str) -> None:
    model = MODELS[name]
    weights = lively_weights(model, 4)
    rounded = {key: back_from_int4(value, 32) if is_linear_map(key) else value for key, value in weights.items()}
    passed = {"tokens": inputs(model, 2, 9)["tokens"]}
    outputs = onnx_session(build(model, GraphOptions(quantisation="int4"), weights=weights)).run(None, passed)[0]
    expected = onnx_session(build(model, weights=rounded)).run(None, passed)[0]
    assert apart(outputs, expected) < OF_ITS_WEIGHTS


def back_from_int4(weight: NDArray[Any], block_size: int) -> NDArray[np.float32]:
    packed, scales = quantise_int4(weight, block_size)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*scales.shape, block_size)
    values = (nibbles.astype(np.float32) - 8) * scales[:, :, None]
    return np.ascontiguousarray(values.reshape(len(weight), -1)[:, : weight.shape[1]], np.float32)


@pytest.mark.parametrize("width", [64, 50])
def test_every_block_has_a_scale_that_keeps_its_largest(width: int) -> None:
    weight = np.random.default_rng(0).normal(0, 3, (40, width)).astype(np.float32)
    weight[3] = 0
    back, (_, scales) = back_from_int4(weight, 32), quantise_int4(weight, 32)
    assert scales.shape == (40, math.ceil(width / 32))
    # Half a step; the value opposite to the largest may be a whole one away.
    steps = np.repeat(np.abs(scales), 32, axis=1)[:, :width]
    assert (np.abs(back - weight) <= steps * 1.0001).all()
    assert np.isclose(np.abs(back).max(), np.abs(weight).max())


@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize("name", MODELS)
def test_weight_bytes_are_those_of_the_file(name: str, block_size: int) -> None:
    model = MODELS[name]
    graph = build(model, GraphOptions(quantisation="int4", block_size=block_size), seed=1).graph
    used = {spec.name for spec in parameters(model)}
    held = sum(
        onnx.numpy_helper.to_array(tensor).nbytes
        for tensor in graph.initializer
        if tensor.name.removesuffix(".scale") in used
    )
    protocol = MeasurementProtocol(weights="int4", block_size=block_size, sequence_length=8)
    found = costs(model, CostOptions(weights="int4", block_size=block_size, sequence_length=8)).weight_bytes
    assert found == held == int(weight_bytes(Shapes.of([model]), protocol)[0])


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_file_is_the_same_model(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    passed = {"tokens": inputs(model, 2, 9)["tokens"]}
    given = lively_weights(model, 4)
    for weights, twin in ((7, {"seed": 7}), (GivenValues(given, {}), {"weights": given})):
        path = tmp_path / "model.onnx"
        options = GraphOptions(quantisation="int4")
        write_onnx(model, weights, path, options)
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        outputs = session.run(None, passed)[0]
        expected = onnx_session(build(model, options, **twin)).run(None, passed)[0]  # type: ignore[arg-type]
        assert np.array_equal(outputs, expected)
