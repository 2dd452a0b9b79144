"""The embedding's part of the ONNX graph: tokens, segments and positions to the residual stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.graph.parameters import clusters, projected, table_specs
from edgefront.core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def write_embedding(
    graph: GraphWriter,
    architecture: Architecture,
    *,
    positions: str | None = None,
    segments: str | None = None,
    prefix: str = "",
) -> str:
    """The residual stream before the first block, [batch·sequence, d_model], from the int64 `graph.tokens`.

    `positions` is a value [sequence, d_model], or with a batch before; `segments` an int64 one [batch, sequence], all
    of segment 0 if absent. `prefix` stands before the parameters' names ("source.").
    """
    with graph.within(f"{prefix}embedding"):
        d_model, name = architecture.d_model, f"{prefix}embedding"
        many = len(table_specs(architecture)) > 1
        hidden = _clustered(graph, architecture, name) if many else _single(graph, architecture, name)
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


def _single(graph: GraphWriter, architecture: Architecture, name: str) -> str:
    """Rows of one embedding matrix, projected to d_model if its width differs; [batch·sequence, d_model]."""
    tokens = graph.op("Reshape", graph.tokens, graph.integers(-1))
    rows = graph.op("Gather", f"{name}.tables.0", tokens)
    return graph.op("Gemm", rows, f"{name}.projections.0", transB=1) if projected(architecture) else rows


def _clustered(graph: GraphWriter, architecture: Architecture, name: str) -> str:
    """Rows of the cluster that each token belongs to, projected to d_model; [batch·sequence, d_model].

    Every cluster looks all tokens up (those outside it as some row of its own, then set to zero) and adds its
    projection: a few more multiplications than gathering each cluster's tokens, but static shapes and no scatter.
    """
    tokens = graph.op("Reshape", graph.tokens, graph.integers(-1))
    parts = clusters(architecture)
    total: tuple[str, ...] = ()
    for cluster in parts:
        local, inside = tokens, []
        # The open ends are not clamped, so that a token past the vocabulary fails in Gather
        # (which counts negative ones from the end).
        if cluster.index > 0:
            inside.append(graph.op("GreaterOrEqual", tokens, graph.integer(cluster.start)))
            local = graph.op("Max", graph.op("Sub", local, graph.integer(cluster.start)), graph.integer(0))
        if cluster.index + 1 < len(parts):
            inside.append(graph.op("Less", tokens, graph.integer(cluster.stop)))
            local = graph.op("Min", local, graph.integer(cluster.size - 1))
        mask = graph.op("And", *inside) if len(inside) > 1 else inside[0]
        rows = graph.op("Gather", f"{name}.tables.{cluster.index}", local)
        rows = graph.op("Where", graph.op("Unsqueeze", mask, graph.integers(1)), rows, graph.number(0.0))
        total = (graph.op("Gemm", rows, f"{name}.projections.{cluster.index}", *total, transB=1),)  # adds those before
    return total[0]
