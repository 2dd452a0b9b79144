"""Multi-head attention (Vaswani et al. 2017, eq. 1), or with relative positions Transformer-XL's (Dai et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec, norm
from edgefront.core.graph.residual import added, normed
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention
from edgefront.core.spaces.ends import RelativePositions

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext
    from edgefront.core.graph.writer import GraphWriter


def parameters(block: Attention, architecture: Architecture) -> Iterator[ParameterSpec]:
    """4d·w + 3w + 3d parameters for d = d_model and w = n_head·d_head; 5d·w + 2d under relative positions.

    Queries, keys and values are one linear layer of 3w rows, in this order. Unless all blocks share u and v, 2w more.
    """
    d, width = architecture.d_model, block.n_head * architecture.d_head(block)
    positions = architecture.positions
    relative = isinstance(positions, RelativePositions)
    yield from norm("norm", d)
    yield ParameterSpec("qkv.weight", (3 * width, d))
    if not relative:
        yield ParameterSpec("qkv.bias", (3 * width,), "zeros")
    if isinstance(positions, RelativePositions):
        yield ParameterSpec("relative.weight", (width, d))
        if not positions.shared:
            yield ParameterSpec("u", (block.n_head, architecture.d_head(block)))
            yield ParameterSpec("v", (block.n_head, architecture.d_head(block)))
    yield ParameterSpec("out.weight", (d, width))
    if not relative:
        yield ParameterSpec("out.bias", (d,), "zeros")


def write(context: GraphContext, block: Attention, prefix: str, hidden: str) -> str:
    """x + W·(softmax(q·kᵀ/√d_head + mask)·v) + b, or norm post of the sum; [batch·sequence, d_model] both ways."""
    graph, architecture = context.graph, context.architecture
    positions = architecture.positions
    relative = isinstance(positions, RelativePositions)
    n_head, d_head = block.n_head, architecture.d_head(block)
    width = n_head * d_head

    def heads(x: str) -> str:
        # [batch·n, width] → [batch, head, n, d_head]
        return graph.op("Transpose", graph.unflatten(x, n_head, d_head), perm=[0, 2, 1, 3])

    def project(inputs: str) -> tuple[str, str]:
        kv = graph.linear(
            normed(graph, architecture, prefix, inputs), f"{prefix}.qkv", bias=not relative, rows=(width, 3 * width)
        )
        k, v = graph.ops("Split", kv, outputs=2, axis=-1, num_outputs=2)
        return heads(k), heads(v)

    read, own = normed(graph, architecture, prefix, hidden), None
    if block.attends == "source" or context.projects_earlier(block.attends):
        q = graph.linear(read, f"{prefix}.qkv", bias=not relative, rows=(0, width))
    else:
        qkv = graph.linear(read, f"{prefix}.qkv", bias=not relative)
        q, k, v = graph.ops("Split", qkv, outputs=3, axis=-1, num_outputs=3)
        own = heads(k), heads(v)
    keys, values = context.keys_values(prefix, block.attends, hidden, own, project)
    keys = graph.op("Transpose", keys, perm=[0, 1, 3, 2])
    # Scaled this early, ONNX Runtime does not fold the factor into an attribute, which would be float32 in any type.
    scale = graph.number(1 / math.sqrt(d_head))
    if isinstance(positions, RelativePositions):
        owner = f"{context.prefix}positions" if positions.shared else prefix
        u, v = f"{owner}.u", f"{owner}.v"
        content, position = (_biased(graph, q, bias, scale, n_head, d_head) for bias in (u, v))
        shifted = _position_scores(context, position, f"{prefix}.relative.weight", n_head, d_head)
        scores = graph.op("Add", graph.op("MatMul", content, keys), shifted)
    else:
        scores = graph.op("MatMul", heads(graph.op("Mul", q, scale)), keys)
    mask = context.mask(block.attends)
    if mask is not None:
        scores = graph.op("Add", scores, mask)
    mixed = graph.op("Transpose", graph.op("MatMul", graph.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
    update = graph.linear(graph.flatten(mixed, width), f"{prefix}.out", bias=not relative)
    return added(graph, architecture, prefix, hidden, update)


def _biased(graph: GraphWriter, q: str, bias: str, scale: str, n_head: int, d_head: int) -> str:
    """(q + bias)/√d_head: [batch·sequence, width] and (head, d_head) → [batch, head, sequence, d_head]."""
    total = graph.op("Mul", graph.op("Add", graph.unflatten(q, n_head, d_head), bias), scale)
    return graph.op("Transpose", total, perm=[0, 2, 1, 3])


def _position_scores(context: GraphContext, q: str, weight: str, n_head: int, d_head: int) -> str:
    """(q_i + v)·r_{i-j}/√d_head for every key j (Dai et al. 2019, §3.3, terms b and d): [batch, head, sequence, keys].

    r_n = W·sinusoid(n) of each distance n. For the few queries of a decode graph it is much less work to take them
    through W than every distance: q·(W·s) = (q·W)·s.
    """
    graph = context.graph
    d_model = context.architecture.d_model
    table = context.sinusoids()
    if context.mode == "decode":
        by_head = graph.op("Reshape", weight, graph.integers(n_head, d_head, d_model))
        flipped = graph.once("sinusoids flipped", lambda: graph.op("Transpose", table, perm=[1, 0]))
        scores = context.clamped(graph.op("MatMul", graph.op("MatMul", q, by_head), flipped), axis=3)
    else:
        r = graph.op("Gemm", table, weight, transB=1)
        by_head = graph.op("Reshape", context.clamped(r, axis=0), graph.integers(-1, n_head, d_head))
        scores = graph.op("MatMul", q, graph.op("Transpose", by_head, perm=[1, 2, 0]))
    return _shifted(graph, scores)


def _shifted(graph: GraphWriter, scores: str) -> str:
    """Scores by distance [batch, head, sequence, keys + 1], the farthest first, to scores by key, [..., keys].

    The place of query i and key j among the distances is j + sequence - i. In one flat row of all queries that is at
    sequence + i·keys + j: leaving out the first `sequence` numbers, and folding the rest into rows of `keys`, aligns
    them. What stands after the diagonal is of the query before, and masked.
    """
    flat = graph.op("Reshape", scores, graph.integers(0, 0, -1))
    rest = graph.op("Slice", flat, graph.sequence(), graph.integers(2**63 - 1), graph.integers(2))

    def shape() -> str:
        return graph.op("Concat", graph.integers(0, 0), graph.sequence(), graph.integers(-1), axis=0)

    return graph.op("Reshape", rest, graph.once("scores shape", shape))
