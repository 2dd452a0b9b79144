"""Which of llama.cpp's formats each matrix of a quantised GGUF file has.

q8_0 and q4_0 have one for all. q4_k_m, q5_k_m, q6_k and iq4_nl are mixtures, as llama.cpp's own `llama_model_quantize`
makes them without an importance matrix (`src/llama-quant.cpp`, 2026.10): what scores tokens has six bits, and in some
layers the values and the way down have more bits than other matrices. Blocks of 256 weights that do not fill the rows
of a matrix give way to blocks of 32, and those to float16. For the same weights llama.cpp makes the same bytes.

Left out is what it does to the values of models of 80 layers, its Llama of 70 billion parameters: five bits for four.

The functions of numbers take arrays as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from edgefront.core.common.number_formats import GGUF_BLOCKS, GgufBlocks, GgufQuantisation

Part = Literal["output", "values", "down", "other"]
"""What a matrix is for: the scores of tokens (the embedding where it is tied), the values of an attention (with its
queries and keys where the three are one matrix), the way out of a feed_forward, anything else."""

_USUAL: Mapping[GgufQuantisation, GgufBlocks] = {
    "q8_0": "q8_0",
    "q4_0": "q4_0",
    "q4_k_m": "q4_k",
    "q5_k_m": "q5_k",
    "q6_k": "q6_k",
    "iq4_nl": "iq4_nl",
}
_RAISED: Mapping[GgufQuantisation, GgufBlocks] = {"q4_k_m": "q6_k", "q5_k_m": "q6_k", "iq4_nl": "q5_k"}
MIXTURES = frozenset(_USUAL) - {"q8_0", "q4_0"}
_SMALLER: Mapping[GgufBlocks, GgufBlocks] = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""The blocks of 32 that a row has which blocks of 256 do not fill."""
_GROUPED = 4
"""Heads of queries that share one of keys, from which on iq4_nl has more bits for values."""


def is_raised(numbers: GgufQuantisation, part: Part, place: Any, places: Any, group: Any) -> Any:
    """Whether a matrix has more bits than the mixture's others.

    `place`: which it is among the attentions (values) or layers (down) of the model, from 0 on, of so many. `group`:
    heads of queries for each of keys in the first layer, 0 where that has no attention.
    """
    if part == "values" and numbers == "iq4_nl":
        return group >= _GROUPED
    early = place < places // 8
    if part == "down" and numbers == "iq4_nl":
        return early
    if part in ("values", "down") and numbers in ("q4_k_m", "q5_k_m"):
        return early | (place >= 7 * places // 8) | ((place - places // 8) % 3 == 2)
    return place < 0


def formats_of(numbers: GgufQuantisation, part: Part, raised: bool = False) -> tuple[GgufBlocks, ...]:
    """Formats of a matrix, the first of whose blocks fill its rows is the one that it has; where none does, float16."""
    blocks = _RAISED.get(numbers, _USUAL[numbers]) if raised else _USUAL[numbers]
    if part == "output" and numbers in MIXTURES:
        blocks = "q6_k"
    return (blocks, _SMALLER[blocks]) if blocks in _SMALLER else (blocks,)


def format_of_rows(formats: tuple[GgufBlocks, ...], width: int) -> GgufBlocks | Literal["f16"]:
    """The format of a matrix whose rows have so many weights."""
    return next((blocks for blocks in formats if width % GGUF_BLOCKS[blocks][0] == 0), "f16")
