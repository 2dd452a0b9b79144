"""The activations of a description, as nodes of the ONNX graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def activate(graph: GraphWriter, activation: str, x: str) -> str:
    """ReLU, x·σ(x) ("silu"), x·Φ(x) ("gelu"), or its tanh form ("gelu_tanh"; Hendrycks & Gimpel 2016, §2)."""
    if activation == "relu":
        return graph.op("Relu", x)
    if activation == "silu":
        return graph.op("Mul", x, graph.op("Sigmoid", x))
    if graph.dtype == "float32":
        return graph.op("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")
    # Runtimes without a Gelu in this type expand ONNX's own definition, whose constants are float32.
    if activation == "gelu_tanh":
        cube = graph.op("Mul", graph.op("Mul", graph.op("Mul", x, x), x), graph.number(0.044715))
        bent = graph.op("Tanh", graph.op("Mul", graph.op("Add", x, cube), graph.number(math.sqrt(2 / math.pi))))
    else:
        scaled = graph.op("Mul", x, graph.number(math.sqrt(0.5)))
        bent = _erf(graph, scaled) if graph.dtype == "float64" else graph.op("Erf", scaled)
    return graph.op("Mul", graph.op("Mul", x, graph.number(0.5)), graph.op("Add", bent, graph.number(1.0)))


def _erf(graph: GraphWriter, x: str) -> str:
    """erf(x) = 2x/√π · ∫₀¹ exp(-x²t²) dt by Gauss–Legendre quadrature: ONNX Runtime has no Erf in float64.

    40 nodes leave an error below 1e-14 up to |x| = 6, from where on it is 1 to the last bit.
    """
    import numpy as np  # here, because who only counts parameters does without

    places, weights = np.polynomial.legendre.leggauss(40)  # on [-1, 1], an interval twice as long
    x = graph.op("Clip", x, graph.number(-6.0), graph.number(6.0))
    scaled = graph.op("Mul", graph.op("Unsqueeze", x, graph.integers(-1)), graph.numbers((places + 1) / 2))
    bell = graph.op("Exp", graph.op("Neg", graph.op("Mul", scaled, scaled)))
    mean = graph.op("MatMul", bell, graph.numbers(weights / math.sqrt(math.pi)))
    return graph.op("Mul", x, mean)
