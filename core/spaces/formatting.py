"""An architecture in words, from its description as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NAMES = {
    "attention": "attention",
    "feed_forward": "feed-forward",
    "srupp": "SRU++",
    "sru": "SRU",
    "short_conv": "short convolution",
}

Blocks = Sequence[Mapping[str, Any]]


def stack_in_words(blocks: Blocks) -> str:
    """The number of layers where each is attention and feed-forward, else how many blocks of each kind there are."""
    if [block.get("kind") for block in blocks] == ["attention", "feed_forward"] * (len(blocks) // 2):
        return layers_in_words(blocks)
    counts: dict[str, int] = {}
    for block in blocks:
        name = _NAMES.get(str(block.get("kind")), str(block.get("kind")))
        if block.get("attends") == "none":
            name += " without attention"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def layer_count(kinds: Iterable[str]) -> int:
    """How many layers blocks of these kinds make: a feed-forward block belongs to the mixer of tokens before it, and
    identity blocks do not count.
    """
    count, lacks_feed_forward = 0, False
    for kind in kinds:
        if kind == "identity":
            continue
        is_feed_forward = kind == "feed_forward"
        count += not (is_feed_forward and lacks_feed_forward)
        lacks_feed_forward = not is_feed_forward
    return count


def layers_in_words(blocks: Blocks) -> str:
    """How many layers a stock model, or a model that a search looks around, has."""
    count = layer_count(str(block.get("kind")) for block in blocks)
    return f"{count} layer{'s' if count != 1 else ''}"


def model_in_words(description: Mapping[str, Any]) -> str:
    """`5 layers × 320`: the blocks, and how wide they are."""
    return f"{stack_in_words(description.get('blocks', ()))} × {description.get('d_model')}"


def architecture_in_words(description: Mapping[str, Any]) -> str:
    """`6 layers, d_model 320, d_inner 768–1472, 4–8 heads, embedding 128 wide, div 2`, without what has no value."""
    blocks = description.get("blocks", ())
    parts = [stack_in_words(blocks), f"d_model {description.get('d_model')}"]
    inner = [int(block["d_inner"]) for block in blocks if "d_inner" in block]
    heads = [int(block["n_head"]) for block in blocks if "n_head" in block]
    parts += [f"d_inner {spread(inner)}"] if inner else []
    parts += [f"{spread(heads)} head{'s' if heads != [1] * len(heads) else ''}"] if heads else []
    embedding = description.get("embedding", {})
    if embedding.get("d_embed") is not None:
        parts.append(f"embedding {embedding['d_embed']} wide")
    if embedding.get("cutoffs"):
        parts.append(f"div {embedding.get('div', 1)}")
    return ", ".join(parts)


def spread(values: Sequence[int]) -> str:
    """One value, or the range of several: 512, 256–1024; a dash for none."""
    if not values:
        return "–"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"
