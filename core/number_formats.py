"""In which numbers a model is kept and computed: one word for each question, wherever it is asked.

Messages and files keep the field names that they had first: `weights` of a protocol is a `Quantisation`, `numbers` of a
model file and of a device's facts are `NumberFormat`s.
"""

from __future__ import annotations

from typing import Literal

Quantisation = Literal["full", "int8"]
"""Whether the linear layers of the blocks hold int8 (`core.graph.formats`), their inputs quantised at run time."""

NumberFormat = Literal["float32", "float16", "bfloat16", "int8"]
"""What a model computes in: a floating-point type, or float32 with int8 linear layers."""

KnownFormat = Literal["float32", "bfloat16", "float16", "int8", "int8_8bit"]
"""The same with `int8_8bit`: of stored measurements alone, taken with weights of eight bits (decision 14)."""
