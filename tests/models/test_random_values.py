"""Random weights: fixed to the bit, whatever is made of them and in whatever pieces."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from edgefront.core.architectures.parameters import ParameterSpec
from edgefront.core.model_files.random_values import CHUNK, chunks, values


@pytest.mark.parametrize(
    ("seed", "name", "first"),
    [
        (0, "embedding.tables.0", "bcff7c23 3cd1db4a bc19cffa 3b1290b9"),
        (1, "blocks.0.qkv.weight", "3ab36ef5 3bef89a2 3c756756 3d06ae1d"),
        (9223372036854775807, "blocks.31.down.weight", "3ce90e0a bc05ed69 3b99c414 bcfe0a1e"),
    ],
)
def test_initial_weights_are_golden(seed: int, name: str, first: str) -> None:
    initial = values(ParameterSpec(name, (4,)), seed)
    assert initial.astype(">f4").tobytes().hex(" ", 4) == first


def philox(key: tuple[int, int], counter: int) -> list[int]:
    """Philox4x64-10 as Salmon et al. (2011) define it: four words of 64 bits."""
    low = (1 << 64) - 1
    words = [counter & low, counter >> 64, 0, 0]
    k0, k1 = key
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        words = [right >> 64 ^ words[1] ^ k0, right & low, left >> 64 ^ words[3] ^ k1, left & low]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & low, (k1 + 0xBB67AE8584CAA73B) & low
    return words


def test_values_follow_their_definition() -> None:
    spec = ParameterSpec("blocks.0.qkv.weight", (19,))
    hashed = hashlib.sha256(b"7:blocks.0.qkv.weight").digest()
    key = (int.from_bytes(hashed[:8], "little"), int.from_bytes(hashed[8:16], "little"))
    words = [word for counter in range(1, 4) for word in philox(key, counter)]  # the first step is number one
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    odd = [(half >> 8 | 1) - (1 << 23) for half in halves[:19]]
    unit = np.float32(0.02 * 3**0.5 / 2**23)
    np.testing.assert_array_equal(values(spec, 7), np.array(odd, np.float32) * unit)


def test_a_smaller_parameter_is_a_prefix_of_a_larger_one() -> None:
    small, large = ParameterSpec("w", (13, 7)), ParameterSpec("w", (CHUNK + 3, 3))
    np.testing.assert_array_equal(values(small, 9).ravel(), values(large, 9).ravel()[: small.size])


@pytest.mark.parametrize("start", [0, 8, 1024, CHUNK])
def test_any_part_can_be_made_alone(start: int) -> None:
    spec = ParameterSpec("w", (2 * CHUNK + 5,))
    rest = np.concatenate(list(chunks(spec, 4, start)))
    np.testing.assert_array_equal(rest, values(spec, 4)[start:])


@pytest.mark.parametrize(("fill", "value"), [("ones", 1.0), ("zeros", 0.0)])
def test_norms_and_biases_start_at_one_and_zero(fill: str, value: float) -> None:
    spec = ParameterSpec("final_norm.weight", (CHUNK + 3,), fill)
    initial = values(spec, 5)
    assert initial.shape == spec.shape
    assert np.all(initial == value)
