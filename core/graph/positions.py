"""Positions in the ONNX graph: a learned embedding, or sines and cosines of positions or distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.ends import LearnedPositions, SinusoidalPositions

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def frequencies(d_model: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """10000^(-2i/d_model) for i = 0 … d_model/2 - 1 (Vaswani et al. 2017, §3.5), float64."""
    return 10000.0 ** -(np.arange(0, d_model, 2, dtype=np.float64) / d_model)


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

    from onnx import helper  # here, because torch's modules need `frequencies` alone

    def cast(x: str, dtype: DTypeLike) -> str:
        return graph.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    column = graph.op("Unsqueeze", cast(places, np.float64), graph.integers(1))
    per_place = frequencies(architecture.d_model)
    if graph.dtype == np.float64:
        angles = graph.op("Mul", column, graph.constant(per_place))
    else:
        # Whole turns are taken off in float64: in float32 an angle of 10,000 is good to three digits, and its sine too.
        turns = graph.op("Mul", column, graph.constant(per_place / (2 * math.pi)))
        rest = cast(graph.op("Sub", turns, graph.op("Floor", turns)), np.float32)
        angles = graph.op("Mul", rest, graph.constant(np.array(2 * math.pi, np.float32)))
    rows = graph.op("Concat", graph.op("Sin", angles), graph.op("Cos", angles), axis=1)
    return rows if graph.dtype in (np.float64, np.float32) else cast(rows, graph.dtype)
