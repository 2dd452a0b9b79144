"""Writes the blocks of a model into an ONNX graph.

A new kind of block is a function here, its twin in `core/nn/blocks`, and one line in the table of each package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from edgefront.core.architectures.block import Attention, FeedForward, Identity, ShortConv, Sru, Srupp
from edgefront.core.model_files.blocks.attention import write_attention
from edgefront.core.model_files.blocks.recurrent import write_sru, write_srupp
from edgefront.core.model_files.context import GraphContext


def _write_feed_forward(context: GraphContext, block: FeedForward, prefix: str, hidden: str) -> str:
    """Feed-forward block: x + W₂·act(W₁·norm(x) + b₁) + b₂; input and result are [batch·sequence, d_model].

    `GraphContext.added` places the norms of other architectures. Gated: x + W₂·(act(W_g·norm(x) + b_g) ⊙ (W_u·norm(x) +
    b_u)) + b₂. A parallel block reads the attention's input.
    """
    graph, architecture = context.graph, context.architecture
    read = hidden if block.parallel is None else context.parallel_inputs[block.parallel]
    if block.parallel != "shared_norm":
        read = context.normed(prefix, read)
    inner = graph.linear(read, f"{prefix}.up", bias=block.bias)
    if block.gated:
        gate, inner = graph.ops("Split", inner, outputs=2, axis=-1, num_outputs=2)
        inner = graph.op("Mul", graph.activate(architecture.activation, gate), inner)
    else:
        inner = graph.activate(architecture.activation, inner)
    update = graph.linear(inner, f"{prefix}.down", bias=block.bias)
    return context.added(prefix, hidden, update)


def _write_short_conv(context: GraphContext, block: ShortConv, prefix: str, hidden: str) -> str:
    """Short convolution: x + W_out·(c ⊙ Σᵢ wᵢ ⊙ (b ⊙ u)[t - kernel + 1 + i]), with b, c and u linear in x.

    Input and result are [batch·sequence, d_model]. Products of shifted rows are faster than a Conv with so short a
    kernel, and ONNX Runtime's Conv lacks float64.
    """
    graph, architecture = context.graph, context.architecture
    d, kernel = architecture.d_model, block.kernel
    read = context.normed(prefix, hidden)
    made = graph.ops("Split", graph.linear(read, f"{prefix}.up", bias=block.bias), outputs=3, axis=-1, num_outputs=3)
    gate_in, gate_out, passed = (graph.unflatten(part, d) for part in made)
    inputs = graph.op("Mul", gate_in, passed)
    inputs = graph.op("Concat", context.inputs(prefix, kernel - 1), inputs, axis=1)
    last = (graph.integers(1 - kernel), graph.integers(2**63 - 1), graph.integers(1))
    context.carry(f"{prefix}.inputs", graph.op("Slice", inputs, *last))
    taps = graph.ops("Split", f"{prefix}.conv.weight", outputs=kernel, axis=0, num_outputs=kernel)
    parts = []
    for offset, tap in enumerate(taps):
        start = graph.integers(offset)
        stop = graph.memoized(f"sequence + {offset}", partial(graph.op, "Add", graph.sequence(), start))
        parts.append(graph.op("Mul", graph.op("Slice", inputs, start, stop, graph.integers(1)), tap))
    if block.bias:
        parts.append(f"{prefix}.conv.bias")
    mixed = graph.op("Mul", gate_out, graph.op("Sum", *parts))
    update = graph.linear(graph.flatten(mixed, d), f"{prefix}.out", bias=block.bias)
    return context.added(prefix, hidden, update)


_WRITERS: dict[type, Callable[..., str]] = {
    Attention: write_attention,
    FeedForward: _write_feed_forward,
    Sru: write_sru,
    Srupp: write_srupp,
    ShortConv: _write_short_conv,
    Identity: lambda _context, _block, _prefix, hidden: hidden,
}


def write_block(context: GraphContext, block: Any, prefix: str, hidden: str) -> str:
    """Adds the block's nodes to the graph; `hidden` and the result name values [batch·sequence, d_model]."""
    return _WRITERS[type(block)](context, block, prefix, hidden)
