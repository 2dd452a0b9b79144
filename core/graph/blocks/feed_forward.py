"""Position-wise feed-forward block, pre-norm: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.graph.parameter import ParameterSpec, linear, norm
from core.spaces.architecture import Architecture, FeedForward

if TYPE_CHECKING:
    from core.graph.writer import GraphWriter


def parameters(block: FeedForward, architecture: Architecture) -> Iterator[ParameterSpec]:
    """2·d·f + f + 3d parameters for d = d_model and f = d_inner."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("up", d, block.d_inner)
    yield from linear("down", block.d_inner, d)


def write(graph: GraphWriter, _block: FeedForward, architecture: Architecture, prefix: str, hidden: str) -> str:
    """x + W₂·act(W₁·norm(x) + b₁) + b₂; [batch·sequence, d_model] both ways."""
    inner = graph.linear(graph.norm(hidden, f"{prefix}.norm"), f"{prefix}.up")
    update = graph.linear(_activate(graph, architecture.activation, inner), f"{prefix}.down")
    return graph.op("Add", hidden, update)


def _activate(graph: GraphWriter, activation: str, x: str) -> str:
    """ReLU, x·Φ(x) ("gelu"), or its tanh form ("gelu_tanh"; Hendrycks & Gimpel 2016, §2)."""
    if activation == "relu":
        return graph.op("Relu", x)
    if graph.dtype == "float32":
        return graph.op("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")
    # Runtimes without a Gelu in this type expand ONNX's own definition, whose constants are float32.
    if activation == "gelu_tanh":
        cube = graph.op("Mul", graph.op("Mul", graph.op("Mul", x, x), x), graph.number(0.044715))
        bent = graph.op("Tanh", graph.op("Mul", graph.op("Add", x, cube), graph.number(math.sqrt(2 / math.pi))))
    else:
        bent = graph.op("Erf", graph.op("Mul", x, graph.number(math.sqrt(0.5))))
    return graph.op("Mul", graph.op("Mul", x, graph.number(0.5)), graph.op("Add", bent, graph.number(1.0)))
