"""Writes multi-head attention (Vaswani et al. 2017, eq. 1) into an ONNX graph: with grouped queries (Ainslie et al.
2023) and rotary positions (Su et al. 2021), or with the relative positions of Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from onnx import TensorProto

from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.embeddings_and_head import RelativePositions, RotaryPositions
from edgefront.core.model_files.context import GraphContext
from edgefront.core.model_files.positions import rotary_frequencies, write_rotary
from edgefront.core.model_files.writer import GraphWriter


def write_attention(context: GraphContext, block: Attention, prefix: str, hidden: str) -> str:
    """Attention block: x + W·(softmax(q·kᵀ·scale + mask)·v) + b; input and result are [batch·sequence, d_model].

    `GraphContext.normed` and `GraphContext.added` place the norms.
    """
    graph, architecture = context.graph, context.architecture
    positions, rotary, window = architecture.positions, architecture.rotary(block), block.window
    n_head, d_head, bias = block.n_head, architecture.d_head(block), architecture.attention_bias(block)
    width, kv_width = n_head * d_head, block.kv_heads * d_head

    def by_head(x: str, count: int) -> str:
        # [batch·n, count·d_head] → [batch, head, n, d_head]
        return graph.op("Transpose", graph.unflatten(x, count, d_head), perm=[0, 2, 1, 3])

    def placed(x: str, count: int, *, query: bool) -> str:
        """Splits and rotates scaled queries or keys: [batch·n, count·d_head] → [batch, head, n, d_head].

        Norm and rotation precede the transposition, because ONNX Runtime recognises a norm's nodes there. Scaling comes
        first, so that ONNX Runtime does not fold the factor into an attribute, which is always float32.
        """
        factor = architecture.attention_scale(block) if query else None
        if factor is not None and not block.qk_norm:
            x = graph.op("Mul", x, graph.number(factor))
        norm_name = f"{prefix}.{'q' if query else 'k'}_norm"
        if block.qk_norm == "whole":
            x = graph.rms_norm(x, norm_name, factor)
        x = graph.unflatten(x, count, d_head)
        if block.qk_norm is True:
            x = graph.rms_norm(x, norm_name, factor)
        if rotary is not None:
            rotation = context.rotations(rotary, d_head, window)[0 if query else 1]
            x = write_rotary(graph, x, rotation, rotary.width(d_head), d_head)
        return graph.op("Transpose", x, perm=[0, 2, 1, 3])

    def keys_values(k: str, v: str) -> tuple[str, str]:
        return placed(k, block.kv_heads, query=False), by_head(v, block.kv_heads)

    def project(inputs: str) -> tuple[str, str]:
        read = context.normed(prefix, inputs)
        kv = graph.linear(read, f"{prefix}.qkv", bias=bias != "none", rows=(width, width + 2 * kv_width))
        k, v = graph.ops("Split", kv, outputs=2, axis=-1, num_outputs=2)
        return keys_values(k, v)

    read, own = context.normed(prefix, hidden), None
    context.parallel_inputs = {"own_norm": hidden, "shared_norm": read}
    if _is_fused(context, block, prefix):
        mixed = _write_fused(context, block, prefix, graph.linear(read, f"{prefix}.qkv", bias=bias != "none"))
        update = graph.linear(mixed, f"{prefix}.out", bias=bias == "all")
        return context.added(prefix, hidden, update)
    if block.attends == "source" or context.projects_earlier(block.attends):
        q = graph.linear(read, f"{prefix}.qkv", bias=bias != "none", rows=(0, width))
    else:
        qkv = graph.linear(read, f"{prefix}.qkv", bias=bias != "none")
        if kv_width == width:
            q, k, v = graph.ops("Split", qkv, outputs=3, axis=-1, num_outputs=3)
        else:
            q, k, v = graph.ops("Split", qkv, graph.integers(width, kv_width, kv_width), outputs=3, axis=-1)
        own = keys_values(k, v)
    keys, values = context.keys_values(prefix, block.attends, hidden, own, project, window)
    keys = graph.op("Transpose", keys, perm=[0, 1, 3, 2])
    if isinstance(positions, RelativePositions):
        scale = graph.number(1 / math.sqrt(d_head))
        owner = f"{context.prefix}positions" if positions.shared else prefix
        u, v = f"{owner}.u", f"{owner}.v"
        parts = []
        for bias_of in (u, v):  # (q + bias)/√d_head, [batch, head, sequence, d_head]
            total = graph.op("Mul", graph.op("Add", graph.unflatten(q, n_head, d_head), bias_of), scale)
            parts.append(graph.op("Transpose", total, perm=[0, 2, 1, 3]))
        content, position = parts
        shifted = _position_scores(context, position, f"{prefix}.relative.weight", n_head, d_head, window)
        scores = graph.op("Add", graph.op("MatMul", content, keys), shifted)
    else:
        queries = placed(q, n_head, query=True)
        scores = _grouped(context, block, queries, keys, lambda: graph.integers(d_head))
    mask = context.mask(block.attends, window)
    if mask is not None:
        scores = graph.op("Add", scores, mask)
    shares = graph.op("Softmax", scores, axis=-1)
    mixed = _grouped(context, block, shares, values, lambda: context.keys(block.attends, window))
    mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    update = graph.linear(graph.flatten(mixed, width), f"{prefix}.out", bias=bias == "all")
    return context.added(prefix, hidden, update)


def _grouped(context: GraphContext, block: Attention, rows: str, matrices: str, last: Callable[[], str]) -> str:
    """Multiplies each query head's rows by the matrix of the group's key-value head, without copies of the matrix."""
    graph = context.graph
    if block.kv_heads == block.n_head:
        return graph.op("MatMul", rows, matrices)

    def apart() -> str:
        return graph.op("Concat", graph.integers(0, block.n_head), graph.sequence(), graph.integers(-1), axis=0)

    # Query heads of one key head are consecutive, so that their rows are the rows of one matrix.
    width = last()
    shape = graph.memoized(
        f"grouped {block.kv_heads} {width}",
        lambda: graph.op("Concat", graph.integers(0, block.kv_heads, -1), width, axis=0),
    )
    product = graph.op("MatMul", graph.op("Reshape", rows, shape), matrices)
    return graph.op("Reshape", product, graph.memoized(f"ungrouped {block.n_head}", apart))


def _position_scores(context: GraphContext, q: str, weight: str, n_head: int, d_head: int, window: int | None) -> str:
    """Scores of position: (q_i + v)·r_{i-j}/√d_head for every key j (Dai et al. 2019, §3.3, terms b and d).

    Result [batch, head, sequence, keys]; r_n = W·sinusoid(n) for distance n. A decode graph projects its few queries
    instead of all distances, which is much less work: q·(W·s) = (q·W)·s.
    """
    graph = context.graph
    d_model = context.architecture.d_model
    table = context.sinusoids(window)
    if context.mode == "decode":
        by_head = graph.op("Reshape", weight, graph.integers(n_head, d_head, d_model))
        flipped = graph.memoized(f"sinusoids flipped {window}", lambda: graph.op("Transpose", table, perm=[1, 0]))
        scores = context.clamped(graph.op("MatMul", graph.op("MatMul", q, by_head), flipped), 3, window)
    else:
        r = graph.op("Gemm", table, weight, transB=1)
        by_head = graph.op("Reshape", context.clamped(r, 0, window), graph.integers(-1, n_head, d_head))
        scores = graph.op("MatMul", q, graph.op("Transpose", by_head, perm=[1, 2, 0]))
    return _shifted(graph, scores)


def _shifted(graph: GraphWriter, scores: str) -> str:
    """Shifts scores per distance, [batch, head, sequence, keys + 1], farthest first, to scores per key, [..., keys]."""
    flat = graph.op("Reshape", scores, graph.integers(0, 0, -1))
    rest = graph.op("Slice", flat, graph.sequence(), graph.integers(2**63 - 1), graph.integers(2))

    def shape() -> str:
        return graph.op("Concat", graph.integers(0, 0), graph.sequence(), graph.integers(-1), axis=0)

    return graph.op("Reshape", rest, graph.memoized("scores shape", shape))


# One operator --------------------------------------------------------------------------------------------------------
#
# A decode graph may use ONNX Runtime's `GroupQueryAttention` (com.microsoft), which rotates queries and keys, writes
# keys and values in place, and attends. It replaces about thirty standard nodes (docs/decisions/0010-state.md).

_HEAD_MULTIPLE, _ROTARY_MULTIPLE = 8, 16
"""Numbers of which d_head and rotary_dim, respectively, must be multiples."""


def _is_fused(context: GraphContext, block: Attention, prefix: str) -> bool:
    """Whether the block is written as one node `GroupQueryAttention`, which needs float32 and an in-place cache."""
    architecture, d_head = context.architecture, context.architecture.d_head(block)
    rotary = architecture.rotary(block)
    rotary_dim = 0 if rotary is None else rotary.width(d_head)
    return (
        context.fused is not None
        and context.graph.dtype == "float32"
        and context.in_place(prefix)
        and d_head % _HEAD_MULTIPLE == 0
        and rotary_dim % _ROTARY_MULTIPLE == 0
    )


def _write_fused(context: GraphContext, block: Attention, prefix: str, qkv: str) -> str:
    """Writes softmax(q·kᵀ·scale + mask)·v as one operator: [batch·sequence, n] → [batch·sequence, n_head·d_head]."""
    graph, architecture = context.graph, context.architecture
    d_head = architecture.d_head(block)
    rows = (block.n_head * d_head, block.kv_heads * d_head, block.kv_heads * d_head)
    if block.qk_norm:  # the operator's own norms are only for GPUs
        q, k, v = graph.ops("Split", qkv, graph.integers(*rows), outputs=3, axis=-1)
        whole = block.qk_norm == "whole"
        q, k = (
            graph.rms_norm(x if whole else graph.unflatten(x, count, d_head), f"{prefix}.{name}_norm")
            for x, count, name in ((q, block.n_head, "q"), (k, block.kv_heads, "k"))
        )
        parts = [graph.unflatten(x, width) for x, width in zip((q, k, v), rows, strict=True)]
    else:
        parts = [graph.unflatten(qkv, sum(rows)), "", ""]
    inputs = [*parts, f"{prefix}.keys", f"{prefix}.values", *_lengths(context)]
    attributes: dict[str, int | float] = {"num_heads": block.n_head, "kv_num_heads": block.kv_heads}
    if block.scale is not None:
        attributes["scale"] = architecture.attention_scale(block)
    rotary = architecture.rotary(block)
    if rotary is not None:
        inputs += _rotations(context, rotary, d_head)
        attributes["do_rotary"] = 1
    mixed, keys, values = graph.ops("GroupQueryAttention", *inputs, outputs=3, domain="com.microsoft", **attributes)
    context.carry(f"{prefix}.keys", keys)
    context.carry(f"{prefix}.values", values)
    return graph.flatten(mixed, block.n_head * d_head)


def _lengths(context: GraphContext) -> tuple[str, str]:
    """Number of tokens after this forward pass, int32: as a pair of (number - 1 per row of the batch, number)."""
    graph = context.graph

    def total() -> str:
        after = graph.op("Add", "position", graph.op("Squeeze", graph.sequence()))
        return graph.op("Cast", after, to=TensorProto.INT32)

    def less_one() -> str:
        one = graph.op("Sub", graph.memoized("tokens after", total), graph.constant(np.array(1, np.int32)))
        return graph.op("Expand", one, graph.batch())

    return graph.memoized("tokens after, less one", less_one), graph.memoized("tokens after", total)


def _rotations(context: GraphContext, rotary: RotaryPositions, d_head: int) -> Iterator[str]:
    """Cosines and sines of the rotation at every position, [positions, rotary_dim / 2] each."""
    assert context.fused is not None
    angles = np.arange(context.fused)[:, None] * rotary_frequencies(rotary, d_head)
    for of in (np.cos, np.sin):
        yield context.graph.memoized(f"{of.__name__} {rotary} {d_head}", partial(context.graph.numbers, of(angles)))
