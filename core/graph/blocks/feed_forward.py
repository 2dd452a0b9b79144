"""Position-wise feed-forward block, pre-norm: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from core.graph.parameter import ParameterSpec, linear, norm
from core.spaces.architecture import Architecture, FeedForward

if TYPE_CHECKING:
    from core.graph.writer import GraphWriter

_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
}


def parameters(block: FeedForward, architecture: Architecture) -> Iterator[ParameterSpec]:
    """2·d·f + f + 3d parameters for d = d_model and f = d_inner."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("up", d, block.d_inner)
    yield from linear("down", block.d_inner, d)


def write(graph: GraphWriter, _block: FeedForward, architecture: Architecture, prefix: str, hidden: str) -> str:
    """x + W₂·act(W₁·norm(x) + b₁) + b₂; [batch·sequence, d_model] both ways."""
    operator, attributes = _ACTIVATIONS[architecture.activation]
    inner = graph.linear(graph.norm(hidden, f"{prefix}.norm"), f"{prefix}.up")
    update = graph.linear(graph.op(operator, inner, **attributes), f"{prefix}.down")
    return graph.op("Add", hidden, update)
