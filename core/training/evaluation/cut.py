"""What was cut out of a parent to make a child of it: in figures, and in one sentence for the model card."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.parameters import count

_NAMES = {
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


def cut_between(parent: Architecture, child: Architecture) -> dict[str, Any]:
    """Of each figure that differs `from` and `to`, as `[smallest, largest]` over the blocks where they are no counts.

    `{"sentence": "attention blocks 24 → 18; heads 16 → 8 to 12; …", "parent": digest of its architecture,
    "attention_blocks": {"from": 24, "to": 18}, "heads": {"from": [16, 16], "to": [8, 12]}, …}`; heads and inner widths
    are of one block.
    """
    before, after = _figures(parent), _figures(child)
    changed: dict[str, Any] = {
        name: {"from": before[name], "to": after[name]}
        for name in _NAMES
        if before.get(name) != after.get(name) and name in before and name in after
    }
    said = [f"{_NAMES[name]} {_shown(pair['from'])} → {_shown(pair['to'])}" for name, pair in changed.items()]
    return {"sentence": "; ".join(said) or "nothing", "parent": parent.digest, **changed}


def _figures(architecture: Architecture) -> dict[str, Any]:
    blocks = architecture.blocks
    attention = [block for block in blocks if isinstance(block, Attention)]
    inner = [block.d_inner for block in blocks if isinstance(block, FeedForward)]
    found: dict[str, Any] = {
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
    return {name: value for name, value in found.items() if value is not None}


def _range(values: Iterable[int]) -> list[int] | None:
    given = list(values)
    return [min(given), max(given)] if given else None


def _shown(value: int | list[int]) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    low, high = value
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
