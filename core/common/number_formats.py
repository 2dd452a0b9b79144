"""In which numbers a model is kept and computed: one word for each question, wherever it is asked.

Messages and files keep the field names that they had first: `weights` of a protocol is a `Quantisation`, `numbers` of a
model file and of a device's facts are `NumberFormat`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, get_args

GgufQuantisation = Literal["q8_0", "q4_0", "q4_k_m", "q5_k_m", "q6_k", "iq4_nl"]
"""What all matrices of a GGUF file hold, in llama.cpp's words: q8_0 and q4_0 one format of blocks, the others a mixture
of several (`core.architectures.gguf_mixtures`).
"""
GGUF_QUANTISED = frozenset(get_args(GgufQuantisation))

Quantisation = Literal["full", "int8", "int4", GgufQuantisation]
"""What the linear layers of the blocks hold (`core.model_files.formats`): int8, their inputs quantised at run time, or
int4 with a scale for each block of weights; or what all matrices of a GGUF file hold.
"""

QUANTISED = frozenset(get_args(Quantisation)) - {"full"}

BLOCK_SIZE: Final = 32
"""Weights that share a scale in int4, unless another number is chosen."""

GgufFormat = Literal["float32", "float16", GgufQuantisation]
"""What the matrices of a GGUF file hold."""
GGUF_MAGIC = b"GGUF"
"""The first bytes of such a file."""
GgufBlocks = Literal["q8_0", "q4_0", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "iq4_nl"]
"""llama.cpp's formats of one matrix: weights of a row that have scales together."""
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
"""Weights of a block, and its bytes (ggml-common.h)."""
GGUF_BLOCK = 32
"""Weights of the smallest blocks: what a row must be a multiple of to be quantised at all."""


def _bytes_of_one(blocks: GgufBlocks) -> Fraction:
    count, bytes_ = GGUF_BLOCKS[blocks]
    return Fraction(bytes_, count)


KvCache = Literal["f32", "f16", "q8_0", "q4_0"]
"""What llama.cpp's cache of keys and values holds, as it calls it."""
KV_CACHE_DEFAULT: Final[KvCache] = "f16"
"""llama.cpp's own, with flash attention wherever it has it (2026.10)."""
KV_CACHE_BYTES: Mapping[KvCache, Fraction] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "q8_0": _bytes_of_one("q8_0"),
    "q4_0": _bytes_of_one("q4_0"),
}
"""Bytes of one number."""

WeightFormat = Literal["f32", "f16", "bf16", "int8", "int4", GgufQuantisation]
"""What a model's weights hold, in one word, whichever runtime reads them."""
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
"""Bits of one weight, without the scales of blocks, and of most weights in a mixture: formats of one model are
ordered by them."""

NumberFormat = Literal["float32", "float16", "bfloat16", "int8", "int4", GgufQuantisation]
"""What a model computes in: a floating-point type, or float32 with quantised linear layers."""
