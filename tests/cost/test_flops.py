"""FLOPs against the shapes that the ONNX graph runs with, against torch's own counter, and by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from built_graphs import build
from descriptions import LENGTH, descriptions
from example_model import example
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.passes import Logits, Mode
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.architectures.parameters import parameters
from edgefront.core.model_files.state import GraphOptions, state_specs
from edgefront.core.nn.model import LanguageModel

MODES: tuple[Mode, ...] = ("forward", "prefill", "decode")


def onnx_flops(
    architecture: Architecture, mode: Mode, logits: Logits, batch: int, sequence_length: int, memory_length: int
) -> int:
    """Two for each multiply-accumulate of every matrix product that the ONNX graph runs, by the shapes it ran with."""
    sequence, memory = sequence_length, memory_length
    graph_mode = "segment" if mode == "forward" and memory else mode
    model = build(architecture, GraphOptions(mode=graph_mode, logits=logits))
    products = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul")]
    others = {node.op_type for node in model.graph.node} & {"Attention", "Einsum", "Conv", "MatMulInteger"}
    assert not others, "these multiply too: count them"
    if not products:
        return 0
    parameter_shapes = {spec.name: spec.shape for spec in parameters(architecture)}
    inputs = {value.name: value for value in model.graph.input}
    names = sorted({name for node in products for name in (node.input[0], node.output[0])} - set(parameter_shapes))
    outputs = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    source = memory if mode == "decode" else sequence
    feed = {
        name: value
        for name, value in _feed(architecture, graph_mode, batch, sequence, memory, source)
        if name in inputs
    }
    values = session.run(names, feed)
    shapes = {**parameter_shapes, **{name: value.shape for name, value in zip(names, values, strict=True)}}
    multiplications = 0
    for node in products:
        transposed = any(item.name == "transA" and item.i for item in node.attribute)
        multiplications += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else -1]
    return 2 * multiplications


def _feed(
    architecture: Architecture, mode: str, batch: int, sequence: int, memory: int, source: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    tokens = np.zeros((batch, sequence), np.int64)
    yield from (("tokens", tokens), ("segments", tokens), ("source_tokens", np.zeros((batch, source), np.int64)))
    for spec in state_specs(architecture, "memory" if mode == "segment" else "cache"):
        shape = spec.sizes(batch, memory, source)
        yield spec.name, np.full(shape, memory, np.int64) if spec.integer else np.zeros(shape, np.float32)


@st.composite
def passes(draw: st.DrawFn) -> tuple[Architecture, dict[str, Any]]:
    """A description and a pass that it has, as options of `costs`."""
    architecture = draw(descriptions())
    mode = draw(st.sampled_from(MODES if architecture.causal else MODES[:1]))
    memory = 0
    if mode == "decode" or (mode == "forward" and architecture.causal and architecture.source is None):
        memory = draw(st.integers(1 if mode == "decode" else 0, LENGTH // 2))
    options = {"mode": mode, "memory_length": memory, "sequence_length": draw(st.integers(1, LENGTH // 2))}
    return architecture, {**options, "batch": draw(st.integers(1, 3))}


@given(passes(), st.sampled_from(["all", "last", "none"]))
def test_flops_are_those_of_the_onnx_graph(case: tuple[Architecture, dict[str, Any]], logits: Logits) -> None:
    architecture, options = case
    found = costs(architecture, CostOptions(logits=logits, **options))
    assert found.flops == onnx_flops(architecture, logits=logits, **options)


@given(passes())
def test_torch_runs_the_same_products(case: tuple[Architecture, dict[str, Any]]) -> None:
    architecture, options = case
    mode, batch = options["mode"], options["batch"]
    sequence, memory = options["sequence_length"], options["memory_length"]
    assume(_by_mode(architecture, batch * sequence, mode == "decode"))
    model = LanguageModel(architecture).requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    tokens = torch.zeros(batch, sequence, dtype=torch.int64)
    source = {}
    if architecture.source is not None:
        assume(mode == "decode" or _by_mode(architecture.source, batch * sequence, False))
        source = {"source": torch.zeros(batch, memory or sequence, dtype=torch.int64)}
    state = None
    if mode != "forward" or memory:
        state = model.init_cache(batch, "memory" if mode == "forward" else "cache")
        if memory:
            _, state = model(torch.zeros(batch, memory, dtype=torch.int64), "none", cache=state, **source)
            source = {}
    # The counter knows no fused attention of the CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        if state is None:
            model(tokens, "all", **source)
        else:
            model(tokens, "all", cache=state, **source)
    assert counter.get_total_flops() == costs(architecture, CostOptions(**options)).flops


def _by_mode(architecture: Architecture, queries: int, decode: bool) -> bool:
    """Whether torch, which goes by the queries of the batch, maps them or the distances as graphs of this mode do."""
    if not isinstance(architecture.positions, RelativePositions):
        return True
    widths = [architecture.d_head(block) for block in architecture.blocks if isinstance(block, Attention)]
    return all((queries < d_head) == decode for d_head in widths)


def test_flops_by_hand() -> None:
    """One layer of GPT-2 of width 8, one sequence of 3: 2·(3·4·8² + 2·3²·8 + 3·2·8·16) and 2·8·10 a position."""
    architecture = example(
        d_model=8,
        embedding={"vocab_size": 10},
        blocks=[{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 16}],
    )
    body = 2 * (3 * 4 * 64 + 2 * 9 * 8 + 3 * 2 * 8 * 16)
    for logits, positions in (("none", 0), ("last", 1), ("all", 3)):
        assert costs(architecture, CostOptions(sequence_length=3, logits=logits)).flops == body + positions * 2 * 8 * 10


def test_the_distances_of_a_source_are_mapped_before_decode() -> None:
    relative = {"kind": "relative", "shared": False}
    attention = {"kind": "attention", "n_head": 2}
    ends = {"d_model": 8, "positions": relative, "embedding": {"vocab_size": 9}}
    source = {**ends, "blocks": [attention], "output": {"kind": "none"}}
    reader = {"kind": "srupp", "d_attn": 4, "attends": "source"}
    model = Architecture.parse({**ends, "blocks": [attention, reader], "source": source})
    options: dict[str, Any] = {"mode": "decode", "memory_length": 3, "sequence_length": 1, "batch": 2}
    assert costs(model, CostOptions(logits="all", **options)).flops == onnx_flops(model, logits="all", **options)
