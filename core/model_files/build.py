"""Builds the ONNX model of an architecture in milliseconds, without torch.

The inputs and outputs of every mode have free batch, sequence and past:

- `tokens`, int64 [batch, sequence], each from 0 to vocab_size - 1, because ONNX reads a negative index from the end of
  the embedding;
  `segments`, of the same shape, in a forward graph of a model with segments
- `source_tokens`, int64 [batch, source], of an encoder-decoder, except when decoding
- `logits`, or `hidden` after the final norm: the option `logits` chooses (`core.model_files.output.write_head`)

Each mode adds inputs and outputs for the state:

forward   no state
segment   state of the type "memory" in and out: the papers' evaluation, segment by segment
prefill   state of the type "cache" out
decode    state of the type "cache" in and out, for any number of tokens (usually one)

Built `in_place`, a decode graph takes and returns keys and values with `capacity` tokens along their growing axis.

Input state has the names of `core.model_files.state`; output state has the same names with the prefix "next.". The
initial state has length 0 along its growing axes, zeros as cells and position 0. State grows with every forward pass; a
caller that needs less of the past truncates the state.

The softmax of `logits` is the distribution over the vocabulary in token order. With an adaptive embedding `logits` are
log-probabilities (see `core.model_files.output`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import ParameterSpec, parameters, table_specs
from edgefront.core.model_files.blocks import write_block
from edgefront.core.model_files.context import GraphContext
from edgefront.core.model_files.formats import (
    RANDOM_SCALE,
    Format,
    WeightCache,
    bytes_of,
    format_of,
    int4_shape,
    quantise_int4,
    stored,
)
from edgefront.core.model_files.output import write_head
from edgefront.core.model_files.positions import write_positions
from edgefront.core.model_files.random_values import INT4_SCALE
from edgefront.core.model_files.state import GraphOptions, check_pass
from edgefront.core.model_files.writer import CONTRIBUTED, IR_VERSION, OPSET, GraphWriter


def _write_embedding(context: GraphContext, segments: str | None) -> str:
    """Writes the embedding; returns the name of the first block's input, [batch·sequence, d_model].

    `segments` is int64 [batch, sequence]; None puts all tokens into segment 0.
    """
    graph, architecture = context.graph, context.architecture
    positions = write_positions(graph, architecture, context.positions, context.prefix)
    d_model, name = architecture.d_model, f"{context.prefix}embedding"
    with graph.within(name):
        if len(table_specs(architecture)) > 1:
            hidden = _clustered(graph, architecture, name)
        else:
            hidden = graph.op("Gather", f"{name}.tables.0", graph.op("Reshape", graph.tokens, graph.integers(-1)))
            if architecture.projected:
                hidden = graph.op("Gemm", hidden, f"{name}.projections.0", transB=1)
        if architecture.embedding_factor != 1:
            hidden = graph.op("Mul", hidden, graph.number(architecture.embedding_factor))
        if architecture.embedding.segments:
            chosen = graph.integers(0) if segments is None else graph.op("Reshape", segments, graph.integers(-1))
            hidden = graph.op("Add", hidden, graph.op("Gather", f"{name}.segments", chosen))
        if positions is not None:
            hidden = graph.flatten(graph.op("Add", graph.unflatten(hidden, d_model), positions), d_model)
        if architecture.embedding.norm:
            hidden = graph.norm(hidden, f"{name}.norm")
        return hidden


def _clustered(graph: GraphWriter, architecture: Architecture, name: str) -> str:
    """Sum of the clusters' embeddings, each projected to d_model; [batch·sequence, d_model].

    Every cluster looks up all tokens and zeroes the rows of tokens outside the cluster. That takes a few more
    multiplications than gathering each cluster's tokens, and has static shapes and no scatter.
    """
    tokens = graph.op("Reshape", graph.tokens, graph.integers(-1))
    parts = architecture.clusters
    total: tuple[str, ...] = ()
    for cluster in parts:
        local, inside = tokens, []
        # The first and last cluster do not clamp their open ends, so that a token past the vocabulary fails in Gather
        # (which counts negative indices from the end).
        if cluster.index > 0:
            inside.append(graph.op("GreaterOrEqual", tokens, graph.integer(cluster.start)))
            local = graph.op("Max", graph.op("Sub", local, graph.integer(cluster.start)), graph.integer(0))
        if cluster.index + 1 < len(parts):
            inside.append(graph.op("Less", tokens, graph.integer(cluster.stop)))
            local = graph.op("Min", local, graph.integer(cluster.size - 1))
        mask = graph.op("And", *inside) if len(inside) > 1 else inside[0]
        rows = graph.op("Gather", f"{name}.tables.{cluster.index}", local)
        rows = graph.op("Where", graph.op("Unsqueeze", mask, graph.integers(1)), rows, graph.number(0.0))
        # The third input of Gemm is the sum over the previous clusters.
        total = (graph.op("Gemm", rows, f"{name}.projections.{cluster.index}", *total, transB=1),)
    return total[0]


def build(
    architecture: Architecture,
    options: GraphOptions = GraphOptions(),  # noqa: B008  (frozen)
    *,
    weights: WeightCache,
    seed: int = 0,
) -> ModelProto:
    """Builds the ONNX model with untrained weights, which stay in files of the cache, named relative to its folder.

    A session maps these files:

      options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
      session = onnxruntime.InferenceSession(build(..., weights=cache).SerializeToString(), options)

    When the session is created, ONNX Runtime copies the weights of linear layers into packed form and releases the
    mapped weights, unless `session.disable_prepacking` is set. Without packing, 16 layers of 512 features and 192
    tokens run about 9 % slower, in a tenth of the anonymous memory. Embedding tables stay mapped.

    Raises `InvalidInput` for a mode or window that the architecture does not have.
    """
    model = unfilled_model(architecture, options)
    weights.touch(seed)
    for spec in used_parameters(model, architecture):
        model.graph.initializer.extend(_of_cache(spec, weights, seed, options))
    return model


ELEMENTS: dict[Format, int] = {
    "f32": TensorProto.FLOAT,
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "s7": TensorProto.INT8,
    "u4": TensorProto.UINT8,
}

EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's session setting for the folder of external weights, needed for a model given as bytes."""


def unfilled_model(architecture: Architecture, options: GraphOptions = GraphOptions()) -> ModelProto:  # noqa: B008
    """Builds the ONNX model without parameters; the caller has to add the initializers that the nodes name."""
    check_pass(architecture, options.mode, window=options.window)
    dtype, quantisation = options.dtype, options.quantisation
    shapes = {spec.name: spec.shape for spec in parameters(architecture)}
    graph = GraphWriter(
        dtype, float(architecture.norm_eps), quantisation, options.block_size, shapes, norm_kind=architecture.norm_kind
    )
    domains = [helper.make_opsetid("", OPSET)]
    if quantisation == "int4" or options.fused is not None:
        domains.append(helper.make_opsetid(CONTRIBUTED, 1))
    return helper.make_model(
        _graph(graph, architecture, options),
        opset_imports=domains,
        ir_version=IR_VERSION,
        producer_name="edgefront",
    )


def int8_scale(spec: ParameterSpec, scale: float = RANDOM_SCALE) -> TensorProto:
    """Scale of this parameter's int8 values, as an ONNX initializer."""
    return numpy_helper.from_array(np.float32(scale), f"{spec.name}.scale")


def used_parameters(model: ModelProto, architecture: Architecture) -> list[ParameterSpec]:
    """Parameters that the graph reads. A graph without logits reads no output layer, a decode graph no encoder."""
    names = set(_names_read(model.graph))
    return [spec for spec in parameters(architecture) if spec.name in names]


def _names_read(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _names_read(attribute.g)


def _graph(graph: GraphWriter, architecture: Architecture, options: GraphOptions) -> GraphProto:
    graph.input("tokens", ["batch", "sequence"], TensorProto.INT64)
    segments = states = None
    if architecture.embedding.segments and options.mode == "forward":
        segments = graph.input("segments", ["batch", "sequence"], TensorProto.INT64)
    if architecture.source is not None and options.mode != "decode":
        encoder = architecture.source
        tokens = graph.input("source_tokens", ["batch", "source"], TensorProto.INT64)
        child = graph.child(tokens, float(encoder.norm_eps), encoder.norm_kind)
        states = _write_blocks(GraphContext(child, encoder, prefix="source."), None)
        if encoder.has_final_norm:
            states = child.norm(states, "source.final_norm")
    context = GraphContext(graph, architecture, options, source=states)
    hidden = _write_blocks(context, segments)
    output, name, shape = write_head(graph, architecture, hidden, options.logits)
    graph.output(output, name, shape)
    context.emit_state()
    return graph.graph()


def _write_blocks(context: GraphContext, segments: str | None) -> str:
    """Writes embedding and blocks; returns the name of the final block's output, [batch·sequence, d_model]."""
    hidden = _write_embedding(context, segments)
    for index, block in enumerate(context.architecture.blocks):
        name = f"{context.prefix}blocks.{index}"
        with context.graph.within(name):
            hidden = write_block(context, block, name, hidden)
    return hidden


def _of_cache(spec: ParameterSpec, cache: WeightCache, seed: int, options: GraphOptions) -> list[TensorProto]:
    """Initializers of one parameter as references to files of the cache; a quantised parameter has scales too."""
    kind, block_size = format_of(spec.name, options.dtype, options.quantisation), options.block_size
    if kind == "s7":
        return [_reference(spec, cache, seed, kind), int8_scale(spec)]
    if kind != "u4":
        return [_reference(spec, cache, seed, kind)]
    (weight, kind), (scales, _) = stored(spec, options.dtype, options.quantisation, block_size)
    scale = _reference(scales, cache, seed, "f32")
    if kind == "u4":
        return [_reference(weight, cache, seed, kind, int4_shape(spec, block_size)), scale]
    padded, _ = quantise_int4(cache.array(weight, seed, kind), block_size, INT4_SCALE)
    return [numpy_helper.from_array(padded, spec.name), scale]


def _reference(
    spec: ParameterSpec, cache: WeightCache, seed: int, kind: Format, shape: tuple[int, ...] | None = None
) -> TensorProto:
    cache.file(spec, seed, kind)
    tensor = TensorProto(name=spec.name, dims=shape or spec.shape, data_type=ELEMENTS[kind])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", cache.location(spec, seed, kind)), ("length", str(bytes_of(spec.size, kind)))):
        tensor.external_data.add(key=key, value=value)
    return tensor
