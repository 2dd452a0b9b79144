"""The gated short convolution of LFM2 (Amini et al. 2025, §2): a few tokens, feature by feature, between two gates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import ShortConv
from edgefront.core.model_files.parameter import ParameterSpec, linear, norms

if TYPE_CHECKING:
    from edgefront.core.model_files.context import GraphContext


def parameters(block: ShortConv, architecture: Architecture) -> Iterator[ParameterSpec]:
    """4d² + k·d for d = d_model and k = kernel, 5d biases if there are any, and the norms.

    `up` makes the gate before the convolution, the gate after it, and what passes them, in this order. Row i of the
    convolution's weight (kernel, d_model) belongs to the token kernel - 1 - i places back.
    """
    d = architecture.d_model
    yield from norms(architecture)
    yield from linear("up", d, 3 * d, block.bias)
    yield ParameterSpec("conv.weight", (block.kernel, d))
    if block.bias:
        yield ParameterSpec("conv.bias", (d,), "zeros")
    yield from linear("out", d, d, block.bias)


def write(context: GraphContext, block: ShortConv, prefix: str, hidden: str) -> str:
    """x + W_out·(c ⊙ Σᵢ wᵢ ⊙ (b ⊙ u)[t - kernel + 1 + i]), b, c and u from x; [batch·sequence, d_model] both ways.

    Products and sums of shifted rows: a Conv over so few tokens takes longer, and has no float64.
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
    for place, tap in enumerate(taps):  # as many tokens as the segment has, from this place on
        start = graph.integers(place)
        stop = graph.memoized(f"sequence + {place}", partial(graph.op, "Add", graph.sequence(), start))
        parts.append(graph.op("Mul", graph.op("Slice", inputs, start, stop, graph.integers(1)), tap))
    if block.bias:
        parts.append(f"{prefix}.conv.bias")
    mixed = graph.op("Mul", gate_out, graph.op("Sum", *parts))
    update = graph.linear(graph.flatten(mixed, d), f"{prefix}.out", bias=block.bias)
    return context.added(prefix, hidden, update)
