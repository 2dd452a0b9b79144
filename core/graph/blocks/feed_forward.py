"""Position-wise feed-forward block: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.activation import activate
from edgefront.core.graph.parameter import ParameterSpec, linear, norm
from edgefront.core.graph.residual import added, normed
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import FeedForward

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext


def parameters(block: FeedForward, architecture: Architecture) -> Iterator[ParameterSpec]:
    """2·d·f + f + 3d parameters for d = d_model and f = d_inner."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("up", d, block.d_inner)
    yield from linear("down", block.d_inner, d)


def write(context: GraphContext, _block: FeedForward, prefix: str, hidden: str) -> str:
    """x + W₂·act(W₁·norm(x) + b₁) + b₂, or norm post of the sum; [batch·sequence, d_model] both ways."""
    graph, architecture = context.graph, context.architecture
    inner = graph.linear(normed(graph, architecture, prefix, hidden), f"{prefix}.up")
    update = graph.linear(activate(graph, architecture.activation, inner), f"{prefix}.down")
    return added(graph, architecture, prefix, hidden, update)
