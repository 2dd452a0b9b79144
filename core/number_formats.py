"""In which numbers a model is kept and computed: one word for each question, wherever it is asked.

Messages and files keep the field names that they had first: `weights` of a protocol is a `Quantisation`, `numbers` of a
model file and of a device's facts are `NumberFormat`s.
"""

from __future__ import annotations

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
GGUF_BLOCK = 32
"""Weights that share a float16 scale there."""
GGUF_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}

NumberFormat = Literal["float32", "float16", "bfloat16", "int8", "int4", "q8_0", "q4_0"]
"""What a model computes in: a floating-point type, or float32 with quantised linear layers."""

KnownFormat = Literal["float32", "bfloat16", "float16", "int8", "int4", "q8_0", "q4_0", "int8_8bit"]
"""The same with `int8_8bit`: of stored measurements alone, taken with weights of eight bits (decision 14)."""
