"""Number formats that weights are kept in: float32, the two halves of it, and int8 with one scale a tensor.

What "int8" means everywhere here is dynamic quantisation of the linear layers of the blocks: weights are int8 of seven
bits, -64 to 64, symmetric, with one scale for the whole tensor; the input of each layer is quantised to unsigned bytes
at run time, with scale and zero point of its own extremes; products are summed in int32 and come back as float32 before
the bias is added. Tables, output layer, norms, recurrences and attention's own products stay float32.

Seven bits, because x86 processors without VNNI add two products of an unsigned and a signed byte in 16 bits and
saturate: 2·255·64 fits, 2·255·127 does not (docs/decisions/0014-seven-bit-weights.md).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefront.core.graph.random_values import STANDARD_DEVIATION
from edgefront.core.number_formats import Quantisation

Format = Literal["f32", "f16", "bf16", "s7"]

BYTES: dict[Format, int] = {"f32": 4, "f16": 2, "bf16": 2, "s7": 1}
OF_DTYPE: dict[str, Format] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_LINEAR_MAPS = frozenset({"qkv", "out", "up", "down", "kv"})

LARGEST = 64
"""Magnitude of an int8 weight: two products with unsigned bytes, 2·255·64 = 32,640, stay below 2^15."""
RANDOM_SCALE = float(np.float32(STANDARD_DEVIATION * math.sqrt(3) / LARGEST))
"""Of the random weights: they are uniform up to ±0.02·√3, so that one scale serves every size of a tensor."""


def is_linear_map(parameter: str) -> bool:
    """Whether the parameter of this name is the weight (out, in) of a linear layer in a block: what int8 quantises.

    Relative attention's projection of distances is not: with few queries the order of its product changes.
    """
    path = parameter.removeprefix("source.").split(".")
    return len(path) == 4 and path[0] == "blocks" and path[2] in _LINEAR_MAPS and path[3] == "weight"


def format_of(parameter: str, dtype: str, quantisation: Quantisation) -> Format:
    """The format of a parameter in a model of this type; ValueError for a type that no file is kept in (float64)."""
    if dtype not in OF_DTYPE:
        raise ValueError(f"weights are stored as {', '.join(OF_DTYPE)}, not {dtype}")
    return "s7" if quantisation == "int8" and is_linear_map(parameter) else OF_DTYPE[dtype]


def encode(values: NDArray[np.float32], kind: Format, scale: float = RANDOM_SCALE) -> NDArray[Any]:
    """float32 values as little-endian numbers of this format, rounded to the nearest, ties to even.

    bfloat16, which numpy does not have, comes as its bits (uint16); int8 values are in units of `scale`.
    """
    if kind == "bf16":
        bits: NDArray[Any] = np.ascontiguousarray(values, "<f4").view("<u4")
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return np.asarray(bits >> np.uint32(16)).astype("<u2")
    if kind == "s7":
        return np.asarray(np.rint(values / np.float32(scale))).astype(np.int8)
    return values.astype({"f32": "<f4", "f16": "<f2"}[kind], copy=False)


def quantise(weight: NDArray[Any]) -> tuple[NDArray[np.int8], float]:
    """Given weights as int8, and the scale that brings them back: the largest magnitude becomes `LARGEST`."""
    scale = float(np.float32(np.abs(weight).max(initial=0.0) / LARGEST)) or 1.0
    return np.rint(np.asarray(weight, np.float32) / np.float32(scale)).astype(np.int8), scale
