"""Short texts about architectures, from their JSON description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_NAMES = {
    "attention": "attention",
    "feed_forward": "feed-forward",
    "srupp": "SRU++",
    "sru": "SRU",
    "short_conv": "short convolution",
}

Blocks = Sequence[Mapping[str, Any]]


def stack_in_words(blocks: Blocks) -> str:
    """Describes a stack of blocks: `5 layers` if each is attention and feed-forward, else the number of each kind."""
    if [block.get("kind") for block in blocks] == ["attention", "feed_forward"] * (len(blocks) // 2):
        return layers_in_words(blocks)
    counts: dict[str, int] = {}
    for block in blocks:
        name = _NAMES.get(str(block.get("kind")), str(block.get("kind")))
        if block.get("attends") == "none":
            name += " without attention"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items())


class Layer(NamedTuple):
    """One layer as two block indices, of the token mixer and of the feed-forward block; None for a missing block."""

    mixer: int | None
    feed_forward: int | None


def layers_of(kinds: Iterable[str]) -> list[Layer]:
    """Groups blocks into layers: a mixer with the feed-forward after the mixer, or one alone. Skips identities."""
    layers: list[Layer] = []
    for index, kind in enumerate(kinds):
        if kind == "feed_forward" and layers and layers[-1].feed_forward is None:
            layers[-1] = layers[-1]._replace(feed_forward=index)
        elif kind != "identity":
            layers.append(Layer(None, index) if kind == "feed_forward" else Layer(index, None))
    return layers


def layers_in_words(blocks: Blocks) -> str:
    """Describes a stack by its number of layers: `5 layers`."""
    count = len(layers_of(str(block.get("kind")) for block in blocks))
    return f"{count} layer{'s' if count != 1 else ''}"


def model_in_words(description: Mapping[str, Any]) -> str:
    """Describes a model by its blocks and d_model: `5 layers × 320`."""
    return f"{stack_in_words(description.get('blocks', ()))} × {description.get('d_model')}"


def architecture_in_words(description: Mapping[str, Any]) -> str:
    """Describes an architecture: `6 layers, d_model 320, d_inner 768–1472, 4–8 heads, embedding 128 wide, div 2`."""
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
    """Formats numbers as a value or a range (512, 256–1024); a dash without numbers."""
    if not values:
        return "–"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"
