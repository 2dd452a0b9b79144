"""Writes position encodings into the ONNX graph: learned, sinusoidal (of positions or distances) or rotary."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.embeddings_and_head import LearnedPositions, RotaryPositions, SinusoidalPositions

if TYPE_CHECKING:
    from edgefront.core.model_files.writer import GraphWriter


Frequencies = np.ndarray[tuple[int], np.dtype[np.float64]]


def frequencies(d_model: int) -> Frequencies:
    """Frequencies of sinusoids, 10000^(-2i/d_model) for i = 0 … d_model/2 - 1 (Vaswani et al. 2017, §3.5), float64."""
    return 10000.0 ** -(np.arange(0, d_model, 2, dtype=np.float64) / d_model)


def rotary_frequencies(positions: RotaryPositions, d_head: int) -> Frequencies:
    """Angle in radians by which each pair of a head's features rotates per token: float64 [rotary_dim / 2].

    theta^(-2i/rotary_dim) (Su et al. 2021, §3.3), scaled as in Llama 3.1 if there is a scaling.
    """
    rotary_dim = positions.width(d_head)
    plain = float(positions.theta) ** -(np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    scaling = positions.scaling
    if scaling is None:
        return plain
    # Frequencies above `high` rotations over the length stay; frequencies below `low` are divided by the factor.
    low, high = float(scaling.low), float(scaling.high)
    rotations = scaling.length * plain / (2 * math.pi)
    unscaled = ((rotations - low) / (high - low)).clip(0, 1)
    return plain * (unscaled + (1 - unscaled) / float(scaling.factor))


def write_positions(
    graph: GraphWriter, architecture: Architecture, write_indices: Callable[[], str], prefix: str = ""
) -> str | None:
    """Writes the absolute positions that are added to the embedding, [sequence, d_model]; None for other positions.

    `write_indices` writes the indices of the positions. A sequence longer than a learned table fails in Gather.
    """
    positions = architecture.positions
    with graph.within("positions"):
        if isinstance(positions, LearnedPositions):
            row = write_indices()
            if positions.offset:
                row = graph.op("Add", row, graph.integer(positions.offset))
            return graph.op("Gather", f"{prefix}positions.weight", row)
        if isinstance(positions, SinusoidalPositions):
            return write_sinusoids(graph, architecture, write_indices())
    return None


def write_sinusoids(graph: GraphWriter, architecture: Architecture, positions: str) -> str:
    """Writes sinusoids of positions, int64 [n] → [n, d_model]: sines, then cosines, as in Transformer-XL."""
    rows = graph.op("Concat", *write_sines(graph, frequencies(architecture.d_model), positions), axis=1)
    return rows if graph.dtype in (np.float64, np.float32) else _cast(graph, rows, graph.dtype)


def write_rotations(graph: GraphWriter, per_token: Frequencies, positions: str) -> tuple[str, str]:
    """Writes rotations of positions, int64 [n] → pair of (-sin, sin) and (cos, cos), [n, 1, 2·frequencies] each."""
    sines, cosines = write_sines(graph, per_token, positions)

    def joined(first: str, second: str) -> str:
        both = graph.op("Unsqueeze", graph.op("Concat", first, second, axis=1), graph.integers(1))
        return both if graph.dtype in (np.float64, np.float32) else _cast(graph, both, graph.dtype)

    return joined(graph.op("Neg", sines), sines), joined(cosines, cosines)


def write_sines(graph: GraphWriter, per_token: Frequencies, positions: str) -> tuple[str, str]:
    """Writes the sines and cosines of position times frequency, int64 [n] → [n, frequencies] each.

    Both are float64 in a float64 graph, else float32.
    """
    column = graph.op("Unsqueeze", _cast(graph, positions, np.float64), graph.integers(1))
    if graph.dtype == np.float64:
        angles = graph.op("Mul", column, graph.constant(per_token))
    else:
        # Whole rotations are subtracted in float64, because the float32 sine of 10,000 has only three correct digits.
        rotations = graph.op("Mul", column, graph.constant(per_token / (2 * math.pi)))
        rest = _cast(graph, graph.op("Sub", rotations, graph.op("Floor", rotations)), np.float32)
        angles = graph.op("Mul", rest, graph.constant(np.array(2 * math.pi, np.float32)))
    return graph.op("Sin", angles), graph.op("Cos", angles)


def write_rotary(graph: GraphWriter, x: str, rotation: tuple[str, str], rotary_dim: int, d_head: int) -> str:
    """Rotates queries or keys [batch, n, head, d_head] by `rotation`, the result of `write_rotations` for n positions.

    The first half of the first `rotary_dim` features is paired with the second half. A pair (x₁, x₂) becomes (x₁·cos -
    x₂·sin, x₂·cos + x₁·sin): "rotate_half" of Hugging Face's transformers.
    """
    sines, cosines = rotation
    rest = ""
    if rotary_dim < d_head:
        x, rest = graph.ops("Split", x, graph.integers(rotary_dim, d_head - rotary_dim), outputs=2, axis=-1)
    first, second = graph.ops("Split", x, outputs=2, axis=-1, num_outputs=2)
    swapped = graph.op("Concat", second, first, axis=-1)
    rotated = graph.op("Add", graph.op("Mul", x, cosines), graph.op("Mul", swapped, sines))
    return graph.op("Concat", rotated, rest, axis=-1) if rest else rotated


def _cast(graph: GraphWriter, x: str, dtype: DTypeLike) -> str:
    from onnx import helper  # here, because torch's modules import this file only for `frequencies`

    return graph.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
