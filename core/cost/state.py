"""How much a model that generates keeps of the tokens before: closed formulas over its description.

Numbers in its cache after M tokens of each of B sequences, and a source of S:

- attention: 2·B·K·n_kv_head·d_head, of K = M tokens, S of the source, or both; with a window of w at most w - 1 of M.
- SRU++: 2·B·K·d_attn where it attends, and as SRU a cell of B·d_model.
- short convolution: B·(kernel - 1)·d_model.

The number of tokens seen, which some positions need, is one number for all and left out.
"""

from __future__ import annotations

from edgefront.core.cost.parameters import kv_width
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, ShortConv, Sru, Srupp


def kept_numbers(architecture: Architecture, batch: int, tokens: int, source: int = 0) -> int:
    """Of all blocks, after so many tokens; 0 for a model that sees all tokens at once."""
    if not architecture.causal:
        return 0
    return batch * sum(_of_block(block, architecture, tokens, source) for block in architecture.blocks)


def _of_block(block: Block, architecture: Architecture, tokens: int, source: int) -> int:
    d = architecture.d_model
    if isinstance(block, Attention):
        own = tokens if block.window is None else min(tokens, block.window - 1)
        return 2 * _keys(block.attends, own, source) * kv_width(block, architecture)
    if isinstance(block, Srupp):
        return d + (0 if block.attends == "none" else 2 * _keys(block.attends, tokens, source) * block.d_attn)
    if isinstance(block, Sru):
        return d
    if isinstance(block, ShortConv):
        return (block.kernel - 1) * d
    return 0


def _keys(attends: str, own: int, source: int) -> int:
    return (0 if attends == "source" else own) + (0 if attends == "self" else source)
