"""Weights in halves of float32 and in int8: the files, and what both builders make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from built_graphs import build
from descriptions import descriptions
from hypothesis import HealthCheck, given, settings
from passes import in_torch, inputs
from tiny_models import LENGTH, apart, architecture, lively_weights, onnx_session, random_tokens

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.number_formats import GGUF_BLOCKS
from edgefront.core.model_files.formats import (
    RANDOM_SCALE,
    Format,
    WeightCache,
    bytes_of,
    encode,
    format_of,
    is_linear_map,
)
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.model_files.random_values import CHUNK, values
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import Int8Linear, fill

# How far int8 may be from float32, relative to its norm: seven bits of weights, eight of inputs.
OF_FLOAT32 = 0.05
# How far the runtimes' int8 may be apart: an input between two steps may be rounded to either of them.
OF_EACH_OTHER = 0.01
# One step is 0.4 % of an input's range, and a layer norm over four features makes three times as much of it.
NARROW, OF_EACH_OTHER_WHERE_NARROW = 16, 0.03

LARGE = ParameterSpec("blocks.0.up.weight", (CHUNK // 8 + 1, 17))
EVERY_BLOCK = architecture(
    positions={"kind": "relative", "clamp": 9},
    blocks=[
        {"kind": "attention", "n_head": 4},
        {"kind": "feed_forward", "d_inner": 40},
        {"kind": "srupp", "d_attn": 8, "n_head": 2},
        {"kind": "sru", "d_proj": 8},
        {"kind": "srupp", "d_attn": 8, "attends": "none"},
        {"kind": "identity"},
    ],
)
DECODER = architecture(
    positions={"kind": "rotary"},
    norm_kind="rms",
    activation="silu",
    blocks=[
        {"kind": "short_conv"},
        {"kind": "feed_forward", "d_inner": 40, "gated": True, "bias": False},
        {"kind": "attention", "n_head": 4, "n_kv_head": 2, "qk_norm": True, "bias": "none", "window": 4},
        {"kind": "feed_forward", "d_inner": 40},
    ],
)
TRANSLATION = architecture(
    blocks=[
        {"kind": "attention", "n_head": 2, "attends": "both"},
        {"kind": "attention", "n_head": 2, "attends": "source"},
    ],
    source={
        "d_model": 16,
        "causal": False,
        "positions": {"kind": "learned", "length": LENGTH},
        "embedding": {"vocab_size": 50},
        "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 24}],
        "output": {"kind": "none"},
    },
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> WeightCache:
    return WeightCache(tmp_path_factory.mktemp("weights"))


def test_halves_are_rounded_as_their_makers_round() -> None:
    rng = np.random.default_rng(0)
    numbers = np.concatenate([rng.normal(0, 10.0**power, 2000) for power in range(-6, 5)]).astype(np.float32)
    of_torch = torch.from_numpy(numbers)
    assert np.array_equal(encode(numbers, "bf16"), of_torch.to(torch.bfloat16).view(torch.uint16).numpy())
    assert np.array_equal(encode(numbers, "f16"), of_torch.to(torch.float16).numpy())
    assert np.array_equal(encode(numbers, "f32"), numbers)


def test_random_weights_fill_the_range_of_int8() -> None:
    floats, small = values(LARGE, 5), encode(values(LARGE, 5), "s7")
    assert (small.min(), small.max()) == (-64, 64)
    assert np.abs(small * np.float32(RANDOM_SCALE) - floats).max() <= RANDOM_SCALE * 0.5001


def test_given_weights_get_a_scale_of_their_own() -> None:
    weight = np.random.default_rng(0).normal(0, 3, (40, 30))
    spec = ParameterSpec("weight", weight.shape)
    scale = GivenValues({"weight": weight}, {}).scale(spec)
    small = encode(weight.astype(np.float32), "s7", scale)
    assert np.abs(small).max() == 64
    assert np.abs(small * scale - weight).max() <= scale * 0.5001
    assert GivenValues({"weight": np.zeros((40, 30))}, {}).scale(spec) > 0


@pytest.mark.parametrize("kind", get_args(Format))
def test_the_cache_keeps_every_format_and_grows_it(tmp_path: Path, kind: Format) -> None:
    cache, large = WeightCache(tmp_path), LARGE
    front = ParameterSpec(LARGE.name, (7, 3))
    if kind == "u4" or kind in GGUF_BLOCKS:  # rows of whole blocks
        pytest.importorskip("gguf")
        front, large = (ParameterSpec(LARGE.name, (rows, 256)) for rows in (7, CHUNK // 128 + 1))
    small = cache.array(front, 3, kind)
    assert np.array_equal(small, encode(values(front, 3), kind))
    assert np.array_equal(cache.array(large, 3, kind), encode(values(large, 3), kind))
    assert np.array_equal(small, encode(values(front, 3), kind))
    path = cache.file(large, 3, kind)
    assert (path.suffix, path.stat().st_size) == (f".{kind}", bytes_of(large.size, kind))
    assert cache.size_bytes() == bytes_of(large.size, kind)


def test_only_linear_layers_of_blocks_become_int8() -> None:
    mapped = [spec for spec in parameters(EVERY_BLOCK) if is_linear_map(spec.name)]
    assert {spec.name.split(".", 2)[2] for spec in mapped} == {
        *("qkv.weight", "out.weight", "up.weight", "down.weight", "kv.weight")
    }
    assert all(len(spec.shape) == 2 for spec in mapped)
    total = 4 * sum(spec.size for spec in parameters(EVERY_BLOCK))
    small = sum(spec.size for spec in mapped)
    assert costs(EVERY_BLOCK).weight_bytes == total
    assert costs(EVERY_BLOCK, CostOptions(weights="int8")).weight_bytes == total - 3 * small + 4 * len(mapped)
    of_source = {spec.name for spec in parameters(TRANSLATION) if spec.name.startswith("source.")}
    assert set(filter(is_linear_map, of_source)) == {
        f"source.blocks.{name}.weight" for name in ("0.qkv", "0.out", "1.up", "1.down")
    }
    with pytest.raises(ValueError, match="float64"):
        format_of("output.bias", "float64", "full")


@given(descriptions(source=False, over_vocabulary=True))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_int8_is_near_float32_and_the_same_in_both_runtimes(cache: WeightCache, model: Architecture) -> None:
    check_int8(cache, model)


@pytest.mark.parametrize("model", [EVERY_BLOCK, DECODER, TRANSLATION], ids=["every block", "decoder", "translation"])
def test_int8_of_every_kind_of_block(cache: WeightCache, model: Architecture) -> None:
    check_int8(cache, model)


def check_int8(cache: WeightCache, model: Architecture) -> None:
    passed = inputs(model, 2, 9)
    exact = in_torch(fill(LanguageModel(model), 1, cache).eval(), passed)
    twin = fill(LanguageModel(model), 1, cache, quantisation="int8").eval()
    mapped = sum(is_linear_map(spec.name) for spec in parameters(model))
    assert sum(isinstance(module, Int8Linear) for module in twin.modules()) == mapped
    small = in_torch(twin, passed)
    session = onnx_session(build(model, GraphOptions(quantisation="int8"), weights=cache, seed=1), cache)
    (in_graph,) = session.run(None, {item.name: passed[item.name] for item in session.get_inputs()})
    assert apart(small, exact) < OF_FLOAT32
    assert apart(in_graph, exact) < OF_FLOAT32
    assert apart(in_graph, small) < (OF_EACH_OTHER_WHERE_NARROW if model.d_model < NARROW else OF_EACH_OTHER)


@pytest.mark.parametrize("weights", ["seed", "cache", "given"])
def test_no_sum_of_two_int8_products_passes_16_bits(cache: WeightCache, weights: str) -> None:
    """Kernels without VNNI add two products of an unsigned and a signed byte in 16 bits, and saturate.

    A property of the file, so that it holds on every processor: any two weights, both times the largest input.
    """
    sources: dict[str, dict[str, Any]] = {
        "seed": {"seed": 1},
        "cache": {"seed": 1, "weights": cache},
        "given": {"weights": lively_weights(EVERY_BLOCK, 4)},
    }
    model = build(EVERY_BLOCK, GraphOptions(quantisation="int8"), **sources[weights])
    onnx.load_external_data_for_model(model, str(cache.folder))
    values_of = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    transposed = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Transpose"}
    products = [node for node in model.graph.node if node.op_type == "MatMulInteger"]
    assert len(products) == sum(is_linear_map(spec.name) for spec in parameters(EVERY_BLOCK))
    for product in products:
        weight = values_of[transposed[product.input[1]]].astype(np.int32)
        assert weight.any()
        two_largest = np.sort(np.abs(weight), axis=None)[-2:]
        assert np.iinfo(np.uint8).max * two_largest.sum() <= np.iinfo(np.int16).max


def test_int8_of_an_attention_that_counts(cache: WeightCache) -> None:
    """Random weights hide what the attention of SRU++ computes: its factor begins at 0."""
    model = architecture(blocks=[{"kind": "srupp", "d_attn": 8, "n_head": 2}] * 2)
    passed = inputs(model, 2, 9)
    graph = build(model, GraphOptions(quantisation="int8"), weights=cache, seed=1)
    twins = [fill(LanguageModel(model), 1, cache, quantisation=kind).eval() for kind in ("full", "int8")]
    factors = {f"blocks.{index}.alpha" for index in range(2)}
    for name in factors:
        for twin in twins:
            torch.nn.init.constant_(twin.get_parameter(name), 10)
    for tensor in graph.graph.initializer:
        if tensor.name in factors:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(tuple(tensor.dims), 10, np.float32), tensor.name))
    exact, small = (in_torch(twin, passed) for twin in twins)
    (in_graph,) = onnx_session(graph, cache).run(None, passed)
    assert apart(in_torch(fill(LanguageModel(model), 1, cache).eval(), passed), exact) > 2 * OF_FLOAT32
    assert apart(small, exact) < OF_FLOAT32
    assert apart(in_graph, exact) < OF_FLOAT32
    assert apart(in_graph, small) < OF_EACH_OTHER


@pytest.mark.parametrize("grouped", [False, True])
def test_int8_over_segments_packs_keys_and_values_apart(cache: WeightCache, grouped: bool) -> None:
    model = architecture(positions={"kind": "relative", "shared": False})
    if grouped:
        model = architecture(positions={"kind": "rotary"}, blocks=[{"kind": "attention", "n_head": 4, "n_kv_head": 1}])
    tokens = torch.from_numpy(inputs(model, 2, 9)["tokens"])
    outputs = []
    for with_memory in (False, True):
        twin = fill(LanguageModel(model), 1, cache, quantisation="int8", with_memory=with_memory).eval()
        packed = next(module for module in twin.modules() if isinstance(module, Int8Linear))
        assert len(packed.edges) == 2 + with_memory
        with torch.inference_mode():
            outputs.append(twin(tokens))
    assert torch.equal(*outputs)
    with torch.inference_mode():
        first, state = twin(tokens[:, :5], cache=twin.init_cache(2, "memory"))
        second, _ = twin(tokens[:, 5:], cache=state)
    # Inputs are quantised piece by piece, each with its own extremes.
    assert apart(torch.cat((first, second), 1).numpy(), outputs[0].numpy()) < OF_FLOAT32


@pytest.mark.parametrize("model", [EVERY_BLOCK, DECODER, TRANSLATION, architecture(activation="gelu")], ids=range(4))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_near_float32(cache: WeightCache, model: Architecture, dtype: str) -> None:
    passed = inputs(model, 2, 9)
    exact = in_torch(fill(LanguageModel(model), 1, cache).eval(), passed)
    twin = fill(LanguageModel(model), 1, cache, dtype=dtype).eval()
    tensors = {name.removesuffix("_tokens"): torch.from_numpy(value) for name, value in passed.items()}
    with torch.inference_mode():
        half = twin(tensors.pop("tokens"), **tensors)
    assert half.dtype == getattr(torch, dtype)
    assert apart(half.float().numpy(), exact) < {"float16": 0.005, "bfloat16": 0.04}[dtype]
    graph = build(model, GraphOptions(dtype=dtype), weights=cache, seed=1)  # type: ignore[arg-type]
    kind = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}[dtype]
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    parameter_types = {t.data_type for t in graph.graph.initializer if not t.name.startswith("constant_")}
    assert parameter_types == {kind}
    assert {output.type.tensor_type.elem_type for output in graph.graph.output} == {kind}
    inside = build(model, GraphOptions(dtype=dtype), seed=1)  # type: ignore[arg-type]
    onnx.checker.check_model(inside, full_check=True)
    assert {t.data_type for t in inside.graph.initializer if t.data_type in floats} >= {kind}
    if dtype == "float16":  # on CPUs ONNX Runtime casts it to float32 and back, operator by operator
        options = ort.SessionOptions()
        # The layouts of the level above bring down ONNX Runtime 1.31 on this type.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        session = ort.InferenceSession(inside.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (outputs,) = session.run(None, {item.name: passed[item.name] for item in session.get_inputs()})
        assert apart(outputs.astype(np.float32), exact) < 0.01


def test_a_cluster_of_a_real_vocabulary_leaves_no_infinity_in_float16(cache: WeightCache) -> None:
    """Its softmax sums over more tokens than float16 has numbers below infinity."""
    size = int(np.finfo(np.float16).max) * 2
    model = architecture(embedding={"vocab_size": size, "cutoffs": [100], "div": 2})
    tokens = torch.from_numpy(random_tokens(model, 1, 5))
    with torch.inference_mode():
        exact = fill(LanguageModel(model), 1, cache).eval()(tokens, logits="last")
        half = fill(LanguageModel(model), 1, cache, dtype="float16").eval()(tokens, logits="last")
    assert half.dtype == torch.float16
    assert apart(half.float().numpy(), exact.numpy()) < 0.005
