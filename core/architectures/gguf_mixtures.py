"""Number format of each matrix in a quantised GGUF file.

q8_0 and q4_0 have one format for all matrices. q4_k_m, q5_k_m, q6_k and iq4_nl are the mixtures of llama.cpp's
`llama_model_quantize` without an importance matrix (`src/llama-quant.cpp`, 2026.10): the output matrix has six bits,
and in some layers the values and the down projection have more bits than other matrices. Rows that are not whole blocks
of 256 weights have blocks of 32, or else float16. llama.cpp produces the same bytes from the same weights.

Not supported: five instead of four bits for the values of models of 80 layers (Llama with 70 billion parameters).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from edgefront.core.common.number_formats import GGUF_BLOCKS, GgufBlocks, GgufQuantisation

Part = Literal["output", "values", "down", "other"]
"""Role of a matrix: output (the embedding of a tied model), values of an attention (with queries and keys if all are
one matrix), down projection of a feed_forward, or other.
"""

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
"""Fallback formats, with blocks of 32, for rows that are not whole blocks of 256."""
_GROUPED = 4
"""Number of query heads per key head from which iq4_nl has more bits for values."""


def is_raised(numbers: GgufQuantisation, part: Part, index: Any, count: Any, group: Any) -> Any:
    """Whether a matrix gets more bits per weight than most matrices of the mixture; takes numbers or arrays.

    For value matrices `index` counts the attentions, for down projections the layers, of which the model has `count`.
    `group`: query heads per key head in the first layer, 0 if the first layer has no attention.
    """
    if part == "values" and numbers == "iq4_nl":
        return group >= _GROUPED
    early = index < count // 8
    if part == "down" and numbers == "iq4_nl":
        return early
    if part in ("values", "down") and numbers in ("q4_k_m", "q5_k_m"):
        return early | (index >= 7 * count // 8) | ((index - count // 8) % 3 == 2)
    return index < 0


def formats_of(numbers: GgufQuantisation, part: Part, raised: bool = False) -> tuple[GgufBlocks, ...]:
    """Formats of a matrix in order of preference: the first format whose blocks fill a row applies, else float16."""
    blocks = _RAISED.get(numbers, _USUAL[numbers]) if raised else _USUAL[numbers]
    if part == "output" and numbers in MIXTURES:
        blocks = "q6_k"
    return (blocks, _SMALLER[blocks]) if blocks in _SMALLER else (blocks,)


def format_of_rows(formats: tuple[GgufBlocks, ...], width: int) -> GgufBlocks | Literal["f16"]:
    """Format of a matrix with rows of `width` weights, the first of `formats` whose blocks fill a row."""
    return next((blocks for blocks in formats if width % GGUF_BLOCKS[blocks][0] == 0), "f16")
