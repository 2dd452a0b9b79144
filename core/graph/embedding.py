"""The embedding's part of the ONNX graph: tokens and positions to the residual stream."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from core.graph.parameters import clusters, projected, table_specs
from core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from core.graph.writer import GraphWriter


def write_embedding(graph: GraphWriter, architecture: Architecture) -> str:
    """Token embedding plus learned positions, [batch·sequence, d_model].

    A sequence longer than the position table fails in its Gather.
    """
    with graph.within("embedding"):
        d_model = architecture.d_model
        many = len(table_specs(architecture)) > 1
        tokens = _clustered(graph, architecture) if many else _single(graph, architecture)
        if architecture.embedding.cutoffs:  # adaptive: times √d_model (Vaswani et al. 2017, §3.4)
            tokens = graph.op("Mul", tokens, graph.number(math.sqrt(d_model)))
    with graph.within("positions"):
        steps = graph.op("Add", graph.steps(), graph.integer(architecture.positions.offset))
        positions = graph.op("Gather", "positions.weight", steps)
        return graph.flatten(graph.op("Add", graph.unflatten(tokens, d_model), positions), d_model)


def _single(graph: GraphWriter, architecture: Architecture) -> str:
    """Rows of one table, projected to d_model where its width differs; [batch·sequence, d_model]."""
    tokens = graph.op("Reshape", graph.tokens, graph.integers(-1))
    rows = graph.op("Gather", "embedding.tables.0", tokens)
    return graph.op("Gemm", rows, "embedding.projections.0", transB=1) if projected(architecture) else rows


def _clustered(graph: GraphWriter, architecture: Architecture) -> str:
    """Rows of the cluster that each token belongs to, projected to d_model; [batch·sequence, d_model].

    Every cluster looks all tokens up (those outside it as some row of its own, then set to zero) and adds its
    projection: a few more multiplications than gathering each cluster's tokens, but static shapes and no scatter.
    """
    tokens = graph.op("Reshape", graph.tokens, graph.integers(-1))
    parts = clusters(architecture)
    total: tuple[str, ...] = ()
    for cluster in parts:
        local, inside = tokens, []
        # The open ends are not clamped, so that a token outside the vocabulary fails in Gather.
        if cluster.index > 0:
            inside.append(graph.op("GreaterOrEqual", tokens, graph.integer(cluster.start)))
            local = graph.op("Max", graph.op("Sub", local, graph.integer(cluster.start)), graph.integer(0))
        if cluster.index + 1 < len(parts):
            inside.append(graph.op("Less", tokens, graph.integer(cluster.stop)))
            local = graph.op("Min", local, graph.integer(cluster.size - 1))
        mask = graph.op("And", *inside) if len(inside) > 1 else inside[0]
        rows = graph.op("Gather", f"embedding.tables.{cluster.index}", local)
        rows = graph.op("Where", graph.op("Unsqueeze", mask, graph.integers(1)), rows, graph.number(0.0))
        projection = f"embedding.projections.{cluster.index}"
        total = (graph.op("Gemm", rows, projection, *total, transB=1),)  # adds the clusters before it
    return total[0]
