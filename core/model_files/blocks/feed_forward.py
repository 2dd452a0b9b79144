"""Position-wise feed-forward: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2), or gated (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import FeedForward
from edgefront.core.model_files.parameter import ParameterSpec, linear, norms

if TYPE_CHECKING:
    from edgefront.core.model_files.context import GraphContext


def parameters(block: FeedForward, architecture: Architecture) -> Iterator[ParameterSpec]:
    """2·d·f for d = d_model and f = d_inner, f + d biases, and the norms that are its own; gated d·f + f more.

    The gate and what it is multiplied with are one linear layer of 2f rows, in this order.
    """
    d = architecture.d_model
    yield from norms(architecture, shares=block.parallel == "shared_norm")
    yield from linear("up", d, block.d_inner * (2 if block.gated else 1), block.bias)
    yield from linear("down", block.d_inner, d, block.bias)


def write(context: GraphContext, block: FeedForward, prefix: str, hidden: str) -> str:
    """x + W₂·act(W₁·norm(x) + b₁) + b₂, [batch·sequence, d_model] both ways; or with the norms elsewhere
    (`GraphContext.added`).

    Gated: x + W₂·(act(W_g·norm(x) + b_g) ⊙ (W_u·norm(x) + b_u)) + b₂. Parallel, norm(x) is of the attention's input.
    """
    graph, architecture = context.graph, context.architecture
    read = hidden if block.parallel is None else context.beside[block.parallel]
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
