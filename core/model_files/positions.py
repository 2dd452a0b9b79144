"""Positions in the ONNX graph: a learned embedding, sines and cosines of positions or distances, rotary positions."""

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
    """10000^(-2i/d_model) for i = 0 … d_model/2 - 1 (Vaswani et al. 2017, §3.5), float64."""
    return 10000.0 ** -(np.arange(0, d_model, 2, dtype=np.float64) / d_model)


def rotary_frequencies(positions: RotaryPositions, d_head: int) -> Frequencies:
    """Angle by which each pair of a head's features turns at every token: float64 [turned features / 2].

    theta^(-2i/width) (Su et al. 2021, §3.3), stretched as Llama 3.1's if there is a scaling.
    """
    width = positions.width(d_head)
    plain = float(positions.theta) ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    scaling = positions.scaling
    if scaling is None:
        return plain
    # How much of a frequency stays: all of those that turn `high` times over the length, nothing of those below `low`.
    low, high = float(scaling.low), float(scaling.high)
    turns = scaling.length * plain / (2 * math.pi)
    stays = ((turns - low) / (high - low)).clip(0, 1)
    return plain * (stays + (1 - stays) / float(scaling.factor))


def write_positions(
    graph: GraphWriter, architecture: Architecture, place: Callable[[], str], prefix: str = ""
) -> str | None:
    """What is added to the embedding, [sequence, d_model]; None where nothing is. `place` writes the tokens' places.

    A sequence longer than a learned table fails in its Gather.
    """
    positions = architecture.positions
    with graph.within("positions"):
        if isinstance(positions, LearnedPositions):
            row = place()
            if positions.offset:
                row = graph.op("Add", row, graph.integer(positions.offset))
            return graph.op("Gather", f"{prefix}positions.weight", row)
        if isinstance(positions, SinusoidalPositions):
            return write_sinusoids(graph, architecture, place())
    return None


def write_sinusoids(graph: GraphWriter, architecture: Architecture, places: str) -> str:
    """int64 [n] → [n, d_model]: the sines of place times frequency, then the cosines, as in Transformer-XL."""
    rows = graph.op("Concat", *write_sines(graph, frequencies(architecture.d_model), places), axis=1)
    return rows if graph.dtype in (np.float64, np.float32) else _cast(graph, rows, graph.dtype)


def write_rotations(graph: GraphWriter, per_place: Frequencies, places: str) -> tuple[str, str]:
    """int64 [n] → (-sin, sin) and (cos, cos) of place times frequency: [n, 1, 2·frequencies] of the graph's type."""
    sines, cosines = write_sines(graph, per_place, places)

    def joined(first: str, second: str) -> str:
        both = graph.op("Unsqueeze", graph.op("Concat", first, second, axis=1), graph.integers(1))
        return both if graph.dtype in (np.float64, np.float32) else _cast(graph, both, graph.dtype)

    return joined(graph.op("Neg", sines), sines), joined(cosines, cosines)


def write_sines(graph: GraphWriter, per_place: Frequencies, places: str) -> tuple[str, str]:
    """int64 [n] → sines and cosines of place times frequency, [n, frequencies] each: float32, or float64 like the
    graph.
    """
    column = graph.op("Unsqueeze", _cast(graph, places, np.float64), graph.integers(1))
    if graph.dtype == np.float64:
        angles = graph.op("Mul", column, graph.constant(per_place))
    else:
        # Whole turns are taken off in float64: in float32 an angle of 10,000 is good to three digits, and its sine too.
        turns = graph.op("Mul", column, graph.constant(per_place / (2 * math.pi)))
        rest = _cast(graph, graph.op("Sub", turns, graph.op("Floor", turns)), np.float32)
        angles = graph.op("Mul", rest, graph.constant(np.array(2 * math.pi, np.float32)))
    return graph.op("Sin", angles), graph.op("Cos", angles)


def write_rotary(graph: GraphWriter, x: str, rotation: tuple[str, str], width: int, d_head: int) -> str:
    """Queries or keys [batch, n, head, d_head] turned by the `write_rotations` of their n places.

    Of the first `width` features the first half are pairs with the second half (x₁, x₂), and become
    (x₁·cos - x₂·sin, x₂·cos + x₁·sin): "rotate_half" of Hugging Face's transformers.
    """
    sines, cosines = rotation
    rest = ""
    if width < d_head:
        x, rest = graph.ops("Split", x, graph.integers(width, d_head - width), outputs=2, axis=-1)
    first, second = graph.ops("Split", x, outputs=2, axis=-1, num_outputs=2)
    swapped = graph.op("Concat", second, first, axis=-1)
    turned = graph.op("Add", graph.op("Mul", x, cosines), graph.op("Mul", swapped, sines))
    return graph.op("Concat", turned, rest, axis=-1) if rest else turned


def _cast(graph: GraphWriter, x: str, dtype: DTypeLike) -> str:
    from onnx import helper  # here, because torch's modules need `frequencies` alone

    return graph.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
