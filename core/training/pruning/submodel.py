"""Describes submodels (fewer blocks, heads, inner units or channels than the parent) and names the differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward
from edgefront.core.architectures.parameters import count

MAX_DROPPED_SHARE = 0.5
"""Maximum share of the blocks that a random submodel drops."""
MIN_SHARE = 0.3
"""Minimum share of a block's units that a random submodel keeps."""
MIN_WIDTH = 0.6
"""Minimum share of the channels that a random submodel keeps."""


def explicit_blocks(parent: Architecture) -> tuple[Block, ...]:
    """Returns the model's blocks with explicit values of fields whose defaults depend on d_model and n_head."""
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


def submodel(parent: Architecture, blocks: Sequence[Block], d_model: int) -> Architecture:
    """Returns the parent with other blocks (all fields explicit, see `explicit_blocks`) and width `d_model`."""
    described = [block.model_dump(mode="json", exclude_none=True) for block in blocks]
    return Architecture.parse({**parent.canonical, "d_model": d_model, "blocks": described})


def narrow_block(block: Block, share: float) -> Block:
    """Returns the block with about this share of its inner units, or of its key/value heads and their query heads.

    If all heads share one key/value head, the share applies to the query heads.
    """
    if isinstance(block, FeedForward):
        return block.model_copy(update={"d_inner": rounded_width(block.d_inner, share)})
    if isinstance(block, Attention):
        groups, group_size = block.kv_heads, block.n_head // block.kv_heads
        if groups == 1:
            return block.model_copy(update={"n_head": max(1, round(group_size * share))})
        kept = max(1, round(groups * share))
        return block.model_copy(update={"n_head": kept * group_size, "n_kv_head": kept})
    return block


def rounded_width(width: int, share: float) -> int:
    """Rounds a share of a width to a multiple of 32; for small widths, to a multiple of 8 or 2."""
    step = next(step for step in (32, 8, 2, 1) if width >= 8 * step or step == 1)
    return min(width, max(step, round(width * share / step) * step))


def random_submodel(parent: Architecture, rng: np.random.Generator) -> Architecture:
    """Draws a random submodel: fewer blocks, narrower blocks (equally or not), fewer channels, or a combination."""
    blocks, width = list(explicit_blocks(parent)), parent.d_model
    if rng.random() < 0.7:
        count = rng.integers(0, 1 + int(MAX_DROPPED_SHARE * rng.random() * len(blocks)))
        dropped = set(rng.choice(len(blocks), min(int(count), len(blocks) - 1), replace=False).tolist())
        blocks = [block for index, block in enumerate(blocks) if index not in dropped]
    if rng.random() < 0.7:
        shares = 1 - (1 - MIN_SHARE) * rng.random() * rng.random(1 if rng.random() < 0.5 else len(blocks))
        blocks = [narrow_block(block, float(shares[index % len(shares)])) for index, block in enumerate(blocks)]
    if rng.random() < 0.5 and not parent.scaled_embedding:
        width = rounded_width(width, 1 - (1 - MIN_WIDTH) * rng.random())
    return submodel(parent, blocks, width)


_FIGURES = {
    "attention_blocks": "attention blocks",
    "feed_forward_blocks": "feed-forward blocks",
    "other_blocks": "other blocks",
    "heads": "heads",
    "kv_heads": "key/value heads",
    "d_inner": "inner width",
    "d_model": "width",
    "vocab_size": "tokens",
    "decoder_parameters": "parameters in blocks",
}


def pruning_summary(parent: Architecture, child: Architecture) -> dict[str, Any]:
    """Returns the figures by which child and parent differ, and a sentence for the model card.

    `{"sentence": "attention blocks 24 → 18; heads 16 → 8 to 12; …", "parent": digest of its architecture,
    "attention_blocks": {"from": 24, "to": 18}, "heads": {"from": [16, 16], "to": [8, 12]}, …}`: heads and inner widths
    are `[smallest, largest]` over the blocks.
    """
    before, after = _figures(parent), _figures(child)
    changed: dict[str, Any] = {
        name: {"from": before[name], "to": after[name]}
        for name in _FIGURES
        if before.get(name) != after.get(name) and name in before and name in after
    }
    phrases = [f"{_FIGURES[name]} {_shown(pair['from'])} → {_shown(pair['to'])}" for name, pair in changed.items()]
    return {"sentence": "; ".join(phrases) or "nothing", "parent": parent.digest, **changed}


def _figures(architecture: Architecture) -> dict[str, Any]:
    blocks = architecture.blocks
    attention = [block for block in blocks if isinstance(block, Attention)]
    inner = [block.d_inner for block in blocks if isinstance(block, FeedForward)]
    figures: dict[str, Any] = {
        "attention_blocks": len(attention),
        "feed_forward_blocks": len(inner),
        "other_blocks": len(blocks) - len(attention) - len(inner),
        "heads": _range(block.n_head for block in attention),
        "kv_heads": _range(block.kv_heads for block in attention),
        "d_inner": _range(inner),
        "d_model": architecture.d_model,
        "vocab_size": architecture.embedding.vocab_size,
        "decoder_parameters": count(architecture).decoder,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _range(values: Iterable[int]) -> list[int] | None:
    ordered = sorted(values)
    return [ordered[0], ordered[-1]] if ordered else None


def _shown(value: int | list[int]) -> str:
    low, high = (value, value) if isinstance(value, int) else value
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
