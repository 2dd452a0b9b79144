"""Causal multi-head self-attention, pre-norm (Vaswani et al. 2017, eq. 1; GPT-2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.graph.parameter import ParameterSpec, linear, norm
from core.spaces.architecture import Architecture, Attention

if TYPE_CHECKING:
    from core.graph.writer import GraphWriter


def parameters(_block: Attention, architecture: Architecture) -> Iterator[ParameterSpec]:
    """4d² + 6d parameters for d = d_model; queries, keys and values are one map of 3d rows, in this order."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("qkv", d, 3 * d)
    yield from linear("out", d, d)


def write(graph: GraphWriter, block: Attention, architecture: Architecture, prefix: str, hidden: str) -> str:
    """x + W·(softmax(q·kᵀ/√d_head + mask)·v) + b, with q, k, v of norm(x); [batch·sequence, d_model] both ways."""
    d_head = architecture.d_model // block.n_head

    def heads(x: str, order: list[int]) -> str:
        # [batch·sequence, d] → [batch, sequence, head, d_head] → the given order of axes
        return graph.op("Transpose", graph.unflatten(x, block.n_head, d_head), perm=order)

    qkv = graph.linear(graph.norm(hidden, f"{prefix}.norm"), f"{prefix}.qkv")
    q, k, v = graph.ops("Split", qkv, outputs=3, axis=-1, num_outputs=3)
    # Scaled this early, ONNX Runtime does not fold the factor into an attribute, which would be float32 in any type.
    q = graph.op("Mul", q, graph.number(1 / math.sqrt(d_head)))
    scores = graph.op("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
    weights = graph.op("Softmax", graph.op("Add", scores, _causal_mask(graph)), axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", weights, heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    update = graph.linear(graph.flatten(mixed, architecture.d_model), f"{prefix}.out")
    return graph.op("Add", hidden, update)


def _causal_mask(graph: GraphWriter) -> str:
    """[sequence, sequence]: 0 where the key (column) is not after the query (row), else -∞."""

    def make() -> str:
        keys = graph.op("Unsqueeze", graph.steps(), graph.integers(0))
        queries = graph.op("Unsqueeze", graph.steps(), graph.integers(1))
        visible = graph.op("LessOrEqual", keys, queries)
        return graph.op("Where", visible, graph.number(0.0), graph.number(-math.inf))

    return graph.once("causal mask", make)
