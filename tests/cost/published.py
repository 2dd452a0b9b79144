"""How PAR Transformer (Mandava et al. 2020, arXiv 2009.04534v3) may have counted the GFLOPs of its Table A2.

It prints 27 for Transformer-XL Base and Sandwich Base, and 17 for PAR Base, and does not say what is counted. So these
are readings of one evaluation pass (T = 64 tokens after M = 640, batch 1), two FLOPs for each multiply-accumulate:

- "every_position": what the authors' code multiplies in the blocks: queries, keys, values and distances all at M + T
  positions. 30.67 and 16.87: PAR rounds to what is printed, Transformer-XL is 3.67 above it.
- "queries_only": queries at the T new tokens alone. 25.30 and 14.86: 1.70 and 2.14 below.
- "fitted": the same, and of the adaptive softmax the head at every token and two tokens in each of tails 1 and 2. 26.98
  and 16.54, which round to 27 and 17: of 128 combinations of what may be counted the only one, but a fit.

What this project counts for the models it builds is `core.cost.flops`.
"""

from __future__ import annotations

from typing import Literal

from edgefront.core.cost.columns import attention_width
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward

Convention = Literal["every_position", "queries_only", "fitted"]

_TOKENS_IN_TAILS = 2


def par_flops(architecture: Architecture, tokens: int, memory: int, convention: Convention) -> int:
    """FLOPs of one pass over `tokens` after `memory`, of a stack of attention and feed-forward blocks.

    Raises `InvalidInput` for "fitted" without an unprojected adaptive softmax of three clusters or more.
    """
    blocks = 0
    for block in architecture.blocks:
        if isinstance(block, Attention):
            width = attention_width(block, architecture)
            blocks += _attention(architecture.d_model, width, tokens, memory, convention == "every_position")
        elif isinstance(block, FeedForward):
            blocks += 2 * tokens * architecture.d_model * block.d_inner
    softmax = _softmax(architecture, tokens) if convention == "fitted" else 0
    return 2 * (blocks + softmax)


def _attention(d_model: int, width: int, tokens: int, memory: int, all_queries: bool) -> int:
    """Queries, keys, values, distances and the way out; then content, position and values."""
    positions = memory + tokens
    maps = (positions if all_queries else tokens) + 3 * positions + tokens
    return maps * d_model * width + 3 * tokens * positions * width


def _softmax(architecture: Architecture, tokens: int) -> int:
    (head, *tails), d_model = [cluster.size for cluster in architecture.clusters], architecture.d_model
    if len(tails) < 2 or architecture.projected:
        raise InvalidInput(
            "embedding: this count needs an adaptive softmax of three clusters or more, without projections",
            field="embedding",
            allowed="two cutoffs or more, div 1 and no other d_embed",
        )
    return (tokens * (head + len(tails)) + _TOKENS_IN_TAILS * (tails[0] + tails[1])) * d_model
