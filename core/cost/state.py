"""How much a model that generates keeps of the tokens before: closed formulas over its description.

Numbers in its cache after M tokens of each of B sequences, and a source of S:

- attention: 2·B·K·n_kv_head·d_head, of K = M tokens, S of the source, or both; with a window of w at most w - 1 of M.
- SRU++: 2·B·K·d_attn where it attends, and as SRU a cell of B·d_model.
- short convolution: B·(kernel - 1)·d_model.

The number of tokens seen, which some positions need, is one number for all and left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from edgefront.core.cost.parameters import kv_width
from edgefront.core.number_formats import KV_CACHE_BYTES, KvCache
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, ShortConv, Sru, Srupp


class Kept(NamedTuple):
    """Numbers in a cache."""

    keys_and_values: int
    cells: int
    """Of recurrences and convolutions."""


def kept(architecture: Architecture, batch: int, tokens: int, source: int = 0) -> Kept:
    """Of all blocks, after so many tokens; 0 for a model that sees all tokens at once."""
    blocks = architecture.blocks if architecture.causal else ()
    return Kept(
        batch * sum(_keys_and_values(block, architecture, tokens, source) for block in blocks),
        batch * sum(_cell(block, architecture.d_model) for block in blocks),
    )


def kept_bytes(kept: Kept, width: int, kv_cache: KvCache | None) -> int:
    """Bytes of a cache whose numbers have `width` bytes each; of llama.cpp's with keys and values in the format
    `kv_cache`, cells are float32.
    """
    if kv_cache is None:
        return width * sum(kept)
    return math.ceil(kept.keys_and_values * KV_CACHE_BYTES[kv_cache]) + 4 * kept.cells


def _keys_and_values(block: Block, architecture: Architecture, tokens: int, source: int) -> int:
    if isinstance(block, Attention):
        own = tokens if block.window is None else min(tokens, block.window - 1)
        return 2 * _keys(block.attends, own, source) * kv_width(block, architecture)
    if isinstance(block, Srupp) and block.attends != "none":
        return 2 * _keys(block.attends, tokens, source) * block.d_attn
    return 0


def _cell(block: Block, d: int) -> int:
    if isinstance(block, Sru | Srupp):
        return d
    return (block.kernel - 1) * d if isinstance(block, ShortConv) else 0


def _keys(attends: str, own: int, source: int) -> int:
    return (0 if attends == "source" else own) + (0 if attends == "self" else source)
