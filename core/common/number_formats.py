"""Number formats of weights, caches and computation.

Field names in agents' messages differ: the field `weights` of a measurement protocol is a `Quantisation`; the field
`numbers` of a model file and of a device's description is a `NumberFormat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, get_args

GgufQuantisation = Literal["q8_0", "q4_0", "q4_k_m", "q5_k_m", "q6_k", "iq4_nl"]
"""Quantisations of GGUF files, named as in llama.cpp. q8_0 and q4_0 use one format for all matrices; the other
quantisations use a mixture of formats (`core.architectures.gguf_mixtures`).
"""
GGUF_QUANTISED = frozenset(get_args(GgufQuantisation))

Quantisation = Literal["full", "int8", "int4", GgufQuantisation]
"""Format of the blocks' linear layers (`core.model_files.formats`): int8 with inputs quantised at run time, int4 with a
scale for each block of weights, or a quantisation of a GGUF file.
"""

QUANTISED = frozenset(get_args(Quantisation)) - {"full"}

BLOCK_SIZE: Final = 32
"""Default number of weights that share a scale in int4."""

GgufFormat = Literal["float32", "float16", GgufQuantisation]
"""Formats of the matrices of a GGUF file."""
GGUF_MAGIC = b"GGUF"
"""First four bytes of every GGUF file."""
GgufBlocks = Literal["q8_0", "q4_0", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "iq4_nl"]
"""llama.cpp's block formats of a matrix: the weights of a block share scales."""
GGUF_BLOCKS: Mapping[GgufBlocks, tuple[int, int]] = {
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq4_nl": (32, 18),
}
"""Number of weights and of bytes per block of each block format (ggml-common.h)."""
GGUF_BLOCK = 32
"""Number of weights in the smallest block. The length of a quantised row is a multiple of this number."""


def _bytes_of_one(blocks: GgufBlocks) -> Fraction:
    count, bytes_ = GGUF_BLOCKS[blocks]
    return Fraction(bytes_, count)


KvCache = Literal["f32", "f16", "q8_0", "q4_0"]
"""Formats of llama.cpp's key/value cache, named as in llama.cpp."""
KV_CACHE_DEFAULT: Final[KvCache] = "f16"
"""llama.cpp's default format of the key/value cache (2026.10)."""
KV_CACHE_BYTES: Mapping[KvCache, Fraction] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "q8_0": _bytes_of_one("q8_0"),
    "q4_0": _bytes_of_one("q4_0"),
}
"""Bytes per number in llama.cpp's key/value cache."""

WeightFormat = Literal["f32", "f16", "bf16", "int8", "int4", GgufQuantisation]
"""Formats of a model's weights, for every runtime."""
BITS: Mapping[WeightFormat, int] = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "int8": 8,
    "q8_0": 8,
    "q6_k": 6,
    "q5_k_m": 5,
    "int4": 4,
    "q4_0": 4,
    "q4_k_m": 4,
    "iq4_nl": 4,
}
"""Bits per weight, without the scales of blocks; for a mixture, the bits of most weights. The bits order the formats of
a model."""

NumberFormat = Literal["float32", "float16", "bfloat16", "int8", "int4", GgufQuantisation]
"""Formats of computation: a floating-point type, or float32 with quantised linear layers."""
