"""How much models that generate keep of the tokens before: closed formulas over `Shapes`.

Numbers in a cache after M tokens of each of B sequences, and a source of S:

- attention: 2·B·K·n_kv_head·d_head, of K = M tokens, S of the source, or both; with a window of w at most w - 1 of M.
- SRU++: 2·B·K·d_attn where it attends, and as SRU a cell of B·d_model.
- short convolution: B·(kernel - 1)·d_model.

The number of tokens seen, which some positions need, is one number for all and left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgefront.core.cost.shapes import SHORT_CONV, SRU, SRUPP, Numbers, Shapes
from edgefront.core.number_formats import KV_CACHE_BYTES, KvCache


class Kept(NamedTuple):
    """(n,) numbers in a cache."""

    keys_and_values: Numbers
    cells: Numbers
    """Numbers in the states of recurrences and convolutions."""


def kept(shapes: Shapes, batch: int, tokens: int, source: int = 0) -> Kept:
    """What all blocks keep after so many tokens; 0 for a model that sees all tokens at once."""
    keeps = shapes.causal[:, None] & ~shapes.of_source
    keys = shapes.own_keys * earlier(shapes, tokens) + shapes.source_keys * source
    recurrent, convolution = (shapes.kind == SRU) | (shapes.kind == SRUPP), shapes.kind == SHORT_CONV
    cells = recurrent + convolution * (shapes.width - 1)
    return Kept(
        2 * batch * (keys * shapes.kv_width * keeps).sum(axis=1),
        batch * shapes.d_model * (cells * keeps).sum(axis=1),
    )


def earlier(shapes: Shapes, tokens: int) -> Numbers | int:
    """How many of so many tokens before it a token sees, (n, L) or one number for all: those that a window keeps."""
    if not shapes.window.any():
        return tokens
    return np.where(shapes.window > 0, np.minimum(shapes.window - 1, tokens), tokens)


def kept_bytes(kept: Kept, width: int, kv_cache: KvCache | None) -> Numbers:
    """(n,) bytes of a cache whose numbers have `width` bytes each; of llama.cpp's with keys and values in the format
    `kv_cache`, rounded up, cells are float32.
    """
    if kv_cache is None:
        return width * (kept.keys_and_values + kept.cells)
    each = KV_CACHE_BYTES[kv_cache]
    return np.asarray(-(-kept.keys_and_values * each.numerator // each.denominator) + 4 * kept.cells)
