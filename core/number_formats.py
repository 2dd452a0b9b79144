"""In which numbers a model is kept and computed: one word for each question, wherever it is asked.

Messages and files keep the field names that they had first: `weights` of a protocol is a `Quantisation`, `numbers` of a
model file and of a device's facts are `NumberFormat`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, get_args

Quantisation = Literal["full", "int8", "int4", "q8_0", "q4_0"]
"""What the linear layers of the blocks hold (`core.graph.formats`): int8, their inputs quantised at run time, or int4
with a scale for each block of weights. q8_0 and q4_0 are of all matrices of a GGUF file, llama.cpp's.
"""

QUANTISED = frozenset(get_args(Quantisation)) - {"full"}

BLOCK_SIZE: Final = 32
"""Weights that share a scale in int4, unless another number is chosen."""

GgufFormat = Literal["float32", "float16", "q8_0", "q4_0"]
"""What the matrices of a GGUF file hold; q8_0 and q4_0 are llama.cpp's blocks of 8 and 4 bits a weight."""
GGUF_QUANTISED = frozenset({"q8_0", "q4_0"})
GGUF_MAGIC = b"GGUF"
"""The first bytes of such a file."""
GGUF_BLOCK = 32
"""Weights that share a float16 scale there."""
GGUF_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}

KvCache = Literal["f32", "f16", "q8_0", "q4_0"]
"""What llama.cpp's cache of keys and values holds, as it calls it."""
KV_CACHE_DEFAULT: Final[KvCache] = "f16"
"""llama.cpp's own, with flash attention wherever it has it (2026.10)."""
KV_CACHE_BYTES: Mapping[KvCache, Fraction] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "q8_0": Fraction(GGUF_BLOCK_BYTES["q8_0"], GGUF_BLOCK),
    "q4_0": Fraction(GGUF_BLOCK_BYTES["q4_0"], GGUF_BLOCK),
}
"""Of one number."""

WeightFormat = Literal["f32", "f16", "bf16", "int8", "int4", "q8_0", "q4_0"]
"""What a model's weights hold, in one word, whichever runtime reads them."""
BITS: Mapping[WeightFormat, int] = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "int8": 8,
    "q8_0": 8,
    "int4": 4,
    "q4_0": 4,
}
"""Of one weight, without the scales of blocks: formats of one model are ordered by them."""

NumberFormat = Literal["float32", "float16", "bfloat16", "int8", "int4", "q8_0", "q4_0"]
"""What a model computes in: a floating-point type, or float32 with quantised linear layers."""

KnownFormat = Literal["float32", "bfloat16", "float16", "int8", "int4", "q8_0", "q4_0", "int8_8bit"]
"""The same with `int8_8bit`: of stored measurements alone, taken with weights of eight bits (decision 14)."""
