"""Attention of a decode graph as one operator of ONNX Runtime's own, `GroupQueryAttention` (com.microsoft).

It turns queries and keys, writes keys and values in place, and attends: about thirty nodes of the standard domain.
docs/decisions/0010-state.md says what that gains.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from edgefront.core.graph.positions import rotary_frequencies
from edgefront.core.graph.writer import CONTRIBUTED
from edgefront.core.spaces.block import Attention
from edgefront.core.spaces.embeddings_and_head import AlibiPositions, RotaryPositions

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext

_WIDTHS = 8
"""Heads are a whole number of so many features wide."""
_TURNED = 16
"""So are the features of a head that turn."""


def is_fused(context: GraphContext, block: Attention, prefix: str) -> bool:
    """Whether the block is written so: float32, in place, and without the biases of ALiBi, which it cannot add."""
    architecture, d_head = context.architecture, context.architecture.d_head(block)
    rotary = architecture.rotary(block)
    turned = 0 if rotary is None else rotary.width(d_head)
    return (
        context.fused is not None
        and context.graph.dtype == np.float32
        and context.in_place(prefix)
        and not isinstance(architecture.positions, AlibiPositions)
        and d_head % _WIDTHS == 0
        and turned % _TURNED == 0
    )


def write_fused(context: GraphContext, block: Attention, prefix: str, qkv: str) -> str:
    """softmax(q·kᵀ·scale + mask)·v of queries, keys and values [batch·sequence, all their rows], which `prefix`
    leaves to the next pass: [batch·sequence, n_head·d_head].
    """
    graph, architecture = context.graph, context.architecture
    d_head = architecture.d_head(block)
    rows = (block.n_head * d_head, block.kv_heads * d_head, block.kv_heads * d_head)
    if block.qk_norm:  # those of the operator itself are for GPUs alone
        q, k, v = graph.ops("Split", qkv, graph.integers(*rows), outputs=3, axis=-1)
        whole = block.qk_norm == "whole"
        q, k = (
            graph.rms_norm(
                x if whole else graph.unflatten(x, count, d_head), f"{context.weights_of(prefix)}.{name}_norm"
            )
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
    mixed, keys, values = graph.ops("GroupQueryAttention", *inputs, outputs=3, domain=CONTRIBUTED, **attributes)
    context.carry(f"{prefix}.keys", keys)
    context.carry(f"{prefix}.values", values)
    return graph.flatten(mixed, block.n_head * d_head)


def _lengths(context: GraphContext) -> tuple[str, str]:
    """Tokens after this pass less one, of each row of the batch; and tokens after it. Both int32."""
    graph = context.graph

    def total() -> str:
        after = graph.op("Add", "position", graph.op("Squeeze", graph.sequence()))
        return graph.op("Cast", after, to=TensorProto.INT32)

    def less_one() -> str:
        whole = graph.memoized("tokens after", total)
        return graph.op("Expand", graph.op("Sub", whole, graph.constant(np.array(1, np.int32))), graph.batch())

    return graph.memoized("tokens after, less one", less_one), graph.memoized("tokens after", total)


def _rotations(context: GraphContext, by: RotaryPositions, d_head: int) -> list[str]:
    """Cosines and sines of every place, [places, turned features / 2]."""
    graph, places = context.graph, context.fused
    assert places is not None
    per_place = rotary_frequencies(by, d_head)

    def table(of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> str:
        return graph.numbers(of(np.arange(places)[:, None] * per_place))

    return [graph.memoized(f"{of.__name__} {by} {d_head}", partial(table, of)) for of in (np.cos, np.sin)]
