"""Random values that are the same on every platform and with every library version.

A parameter's values are a function of (seed, name, index): raw 64-bit words of Philox4x64-10 (Salmon et al. 2011), a
counter-based generator, with a key from seed and name. So any range of a parameter's values can be made alone, and a
smaller parameter of the same name is a prefix of a larger parameter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.parameters import Fill, ParameterSpec

STANDARD_DEVIATION = 0.02
CHUNK = 1 << 16
"""Number of values in a chunk: 256 KiB, which fit a core's cache."""

# A counter step gives four words of 64 bits: eight values.
_PER_COUNTER = 8
# Odd integers k in (-2^23, 2^23) times this unit are uniform between ±0.02·√3, with a standard deviation of 0.02.
_UNIT = np.float32(STANDARD_DEVIATION * math.sqrt(3) * 2.0**-23)
INT4_SCALE = float(np.float32(STANDARD_DEVIATION * math.sqrt(3) / 7.5))
"""Scale of every int4 block of random weights: 15 equal steps from the smallest weight to the largest."""
_CONSTANTS: dict[Fill, float] = {"ones": 1.0, "zeros": 0.0, "int4_scale": INT4_SCALE}


def values(spec: ParameterSpec, seed: int) -> NDArray[np.float32]:
    """All values of a parameter, in the parameter's shape.

    Random values are k·u for odd integers |k| < 2²³ and one float32 constant u. Integer arithmetic and a single
    rounding define every bit.
    """
    flat = np.empty(spec.size, np.float32)
    at = 0
    for chunk in chunks(spec, seed):
        flat[at : at + chunk.size] = chunk
        at += chunk.size
    return flat.reshape(spec.shape)


def chunks(spec: ParameterSpec, seed: int, start: int = 0) -> Iterator[NDArray[np.float32]]:
    """Values of a parameter from index `start` (a multiple of 8) to the end, at most `CHUNK` at a time."""
    if spec.fill != "random":
        constant = np.full(min(CHUNK, spec.size), _CONSTANTS[spec.fill], np.float32)
        for at in range(start, spec.size, CHUNK):
            yield constant[: min(CHUNK, spec.size - at)]
        return
    # 128 bits of SHA-256 over "seed:name", as two little-endian words.
    key = np.frombuffer(hashlib.sha256(f"{seed}:{spec.name}".encode()).digest()[:16], "<u8").astype(np.uint64)
    for at in range(start, spec.size, CHUNK):
        yield _random(key, at, min(CHUNK, spec.size - at))


def _random(key: NDArray[np.uint64], start: int, count: int) -> NDArray[np.float32]:
    generator: Any = np.random.Philox(key=key, counter=start // _PER_COUNTER)
    words: NDArray[np.uint64] = generator.random_raw(-(-count // 2)).astype("<u8", copy=False)
    bits = words.view("<u4")[:count]  # the low half of each word comes first
    odd = ((bits >> np.uint32(8)) | np.uint32(1)).view(np.int32) - np.int32(1 << 23)
    uniform: NDArray[np.float32] = odd.astype(np.float32) * _UNIT
    return uniform
