"""Chance by number: random bits and shuffled orders that are functions of a key and an index, with nothing to store.

The arithmetic is on whole numbers of 64 bits, so it is the same on every platform and with every library version.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_ROUNDS = 6
# The multipliers of SplitMix64 (Steele et al. 2014).
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(*parts: int | str) -> int:
    """64 bits that stand for these parts: a seed, what it is for, an epoch."""
    hashed = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(hashed[:8], "little")


def bits(chosen: int, indices: NDArray[Any]) -> Words:
    """64 random bits for each index, in its shape: SplitMix64, entered at any place."""
    return _mixed(np.asarray(indices).astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(chosen))


def shuffled(chosen: int, count: int, indices: NDArray[Any]) -> NDArray[np.int64]:
    """Where the shuffled order of 0 … count - 1 has what at these places.

    A Feistel network over the next even power of two, walked until it is back below `count` (Black and Rogaway 2002):
    it takes no memory, so the order of a billion sentences costs nothing to have.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    keys = bits(chosen, np.arange(_ROUNDS))
    values = _round_trip(np.asarray(indices).astype(np.uint64), half, keys)
    while True:
        outside = values >= count
        if not outside.any():
            return values.astype(np.int64)
        values[outside] = _round_trip(values[outside], half, keys)


def _round_trip(values: Words, half: int, keys: Words) -> Words:
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    left, right = values >> shift, values & mask
    for chosen in keys:
        left, right = right, left ^ (_mixed(right * np.uint64(_GOLDEN) + chosen) & mask)
    joined: Words = (left << shift) | right
    return joined


def _mixed(values: Words) -> Words:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: Words = values ^ (values >> np.uint64(31))
    return mixed
