"""Descriptions of parts of a model: fewer blocks, heads, inner units or channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward

MAX_LEFT_OUT = 0.5
"""Largest share of the blocks that a random part leaves out."""
MIN_SHARE = 0.3
"""Least share of the units of a block that a random part keeps."""
MIN_WIDTH = 0.6
"""Least share of the channels that a random part keeps."""


def stated(parent: Architecture) -> tuple[Block, ...]:
    """The model's blocks with what follows from d_model and n_head stated, so that it stays where they change."""
    return tuple(
        block.model_copy(
            update={
                "d_head": parent.d_head(block),
                "n_kv_head": block.kv_heads,
                "bias": parent.attention_bias(block),
            }
        )
        if isinstance(block, Attention)
        else block
        for block in parent.blocks
    )


def part_of(parent: Architecture, blocks: Sequence[Block], d_model: int) -> Architecture:
    """A model of these blocks, parts of the parent's as `stated` gives them, and of this width."""
    written = [block.model_dump(mode="json", exclude_none=True) for block in blocks]
    return Architecture.parse({**parent.canonical, "d_model": d_model, "blocks": written})


def narrowed(block: Block, share: float) -> Block:
    """The block with about this share of its inner units, or of its key/value heads and as many heads to each; of its
    heads where they share one key/value head.
    """
    if isinstance(block, FeedForward):
        return block.model_copy(update={"d_inner": rounded(block.d_inner, share)})
    if isinstance(block, Attention):
        groups, each = block.kv_heads, block.n_head // block.kv_heads
        if groups == 1:
            return block.model_copy(update={"n_head": max(1, round(each * share))})
        kept = max(1, round(groups * share))
        return block.model_copy(update={"n_head": kept * each, "n_kv_head": kept})
    return block


def rounded(whole: int, share: float) -> int:
    """A share of a width: a multiple of 32, or of 8 or 2 where the whole is small."""
    step = next(step for step in (32, 8, 2, 1) if whole >= 8 * step or step == 1)
    return min(whole, max(step, round(whole * share / step) * step))


def random_part(parent: Architecture, rng: np.random.Generator) -> Architecture:
    """A part of the parent: mildly to strongly cut, in one way or in several, alike in all blocks or not."""
    blocks, width = list(stated(parent)), parent.d_model
    if rng.random() < 0.7:
        count = rng.integers(0, 1 + int(MAX_LEFT_OUT * rng.random() * len(blocks)))
        left_out = set(rng.choice(len(blocks), min(int(count), len(blocks) - 1), replace=False).tolist())
        blocks = [block for index, block in enumerate(blocks) if index not in left_out]
    if rng.random() < 0.7:
        shares = 1 - (1 - MIN_SHARE) * rng.random() * rng.random(1 if rng.random() < 0.5 else len(blocks))
        blocks = [narrowed(block, float(shares[index % len(shares)])) for index, block in enumerate(blocks)]
    if rng.random() < 0.5 and not parent.scaled_embedding:
        width = rounded(width, 1 - (1 - MIN_WIDTH) * rng.random())
    return part_of(parent, blocks, width)
