"""Counter-based randomness: random bits and shuffled orders as functions of a key and an index, without stored state.

The arithmetic uses 64-bit integers, so results are equal on every platform and with every library version.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

UInts = NDArray[np.uint64]

_ROUNDS = 6
# The multipliers of SplitMix64 (Steele et al. 2014).
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def random_key(*parts: int | str) -> int:
    """Derives a 64-bit key from `parts`, for example a purpose, a seed and an epoch."""
    hashed = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(hashed[:8], "little")


def random_bits(key: int | UInts, indices: NDArray[Any]) -> UInts:
    """Returns 64 random bits (SplitMix64) for each index and key, in the broadcast shape of both."""
    return _mixed(np.asarray(indices).astype(np.uint64) * np.uint64(_GOLDEN) + np.asarray(key, np.uint64))


def shuffled(key: int | UInts, count: int, indices: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the elements at `indices` of a random permutation of 0 … count - 1; with an array of keys [n], each index
    [n] has the permutation of its own key.

    The permutation is a Feistel network over the numbers below the next even power of two, applied repeatedly until the
    result is below `count` (cycle walking; Black and Rogaway 2002). Memory use does not depend on `count`.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    round_keys = random_bits(key, np.arange(_ROUNDS)[:, None])
    values = _feistel(np.asarray(indices).astype(np.uint64), half, round_keys)
    while True:
        outside = values >= count
        if not outside.any():
            return values.astype(np.int64)
        values[outside] = _feistel(values[outside], half, round_keys[:, outside] if np.ndim(key) else round_keys)


def _feistel(values: UInts, half: int, round_keys: UInts) -> UInts:
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    left, right = values >> shift, values & mask
    for key in round_keys:
        left, right = right, left ^ (_mixed(right * np.uint64(_GOLDEN) + key) & mask)
    joined: UInts = (left << shift) | right
    return joined


def _mixed(values: UInts) -> UInts:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: UInts = values ^ (values >> np.uint64(31))
    return mixed
