"""Names and values of genes, what a block of a stack may be, and the least share of blocks that see other tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

from edgefront.core.spaces.block import Attention, Block, FeedForward, Srupp
from edgefront.core.spaces.gene import Value

IDENTITY = "identity"
MIN_ATTENTION, MIN_MIXING = "min_attention_percent", "min_mixing_percent"
"""The genes of the least shares; a space without one of them asks for nothing there."""

# Of the spaces of layers (`core.spaces.layers`).
ATTENTION, SHORT_CONV = "attention", "short_conv"
"""Values of the gene `mixer`."""
PER_LAYER, UNIFORM = "own", "alike"
"""Values of the gene `layers`: each layer has its own widths, or all have those of the first."""
TIED, UNTIED = "tied", "untied"
"""Values of the gene `output`."""
ENDS = ("vocab_size", "output")
"""Genes of what is no block, beside d_model."""
UNIFORM_GENES = ("n_head", "n_kv_head", "d_inner")
"""Genes that are the same in all layers unless `layers` says that each has its own."""

GENES: Mapping[str, tuple[str, ...]] = {
    "attention": ("n_head",),
    "feed_forward": ("d_inner",),
    "srupp": ("attn_ratio", "attends"),
    IDENTITY: (),
}
"""Kind → the genes that say which block of this kind it is. attn_ratio is d_model / d_attn."""

WIDTHS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name in names if name != "attends") for kind, names in GENES.items()
}
"""Kind → those of its genes that are widths, which must go with d_model."""


def block_of(kind: str, width: int, values: Mapping[str, Any]) -> Block:
    """The block of a kind, other than identity, in a model of this width."""
    if kind == "attention":
        return Attention(n_head=values["n_head"])
    if kind == "feed_forward":
        return FeedForward(d_inner=values["d_inner"])
    return Srupp(d_attn=width // values["attn_ratio"], attends=values["attends"])


def genes_of(block: Block, width: int) -> dict[str, Any] | None:
    """The values of the kind's genes that make this block, so far as there are any; None for kinds that no space has.

    The block may still have what no gene says (heads of a width of their own): build it again and compare.
    """
    if isinstance(block, Attention):
        return {"n_head": block.n_head}
    if isinstance(block, FeedForward):
        return {"d_inner": block.d_inner}
    if isinstance(block, Srupp):
        return {"attn_ratio": width // block.d_attn, "attends": block.attends}
    return None


@dataclass(frozen=True)
class Choice:
    """A kind, for SRU++ with what it attends to, and what such a block sees.

    attending  other tokens, by attention
    recurrent  earlier tokens, by its recurrence alone
    still      its own token
    """

    kind: str
    sees: Literal["attention", "recurrent", "pointwise"]
    attends: Value | None = None


def choices(kinds: Sequence[Value], attends: Sequence[Value]) -> tuple[Choice, ...]:
    """What a block other than identity may be if it is one of these kinds, and SRU++ attends to one of `attends`."""
    expanded = []
    for kind in map(str, kinds):
        if kind == "srupp":
            expanded += [Choice(kind, "recurrent" if attend == "none" else "attention", attend) for attend in attends]
        elif kind != IDENTITY:
            expanded.append(Choice(kind, "attention" if kind == "attention" else "pointwise"))
    return tuple(expanded)


@dataclass(frozen=True)
class MinimumShare:
    """At least so many percent of the blocks attend to other tokens, and so many see them at all.

    A recurrence sees other tokens too; a feed-forward block sees its own alone. A share that is not 0 asks for at
    least one block. Shares are rounded as PAR's n = layers / 5 is: 6 of 32 for 20 %, 5 of 24, 7 of 36.
    """

    attention_percent: int
    mixing_percent: int

    def attention(self, blocks: int) -> int:
        """Least number of blocks that attend."""
        return _share(blocks, self.attention_percent)

    def mixing(self, blocks: int) -> int:
        """Least number of blocks that see other tokens."""
        return _share(blocks, self.mixing_percent)

    def holds(self, blocks: int, attention: int, mixing: int) -> bool:
        """Whether a stack of so many blocks, not counting identity, is permitted."""
        return blocks > 0 and attention >= self.attention(blocks) and mixing >= self.mixing(blocks)

    def count(self, blocks: int, *, attention: int, recurrent: int, pointwise: int) -> int:
        """How many stacks of so many blocks are permitted, each block being one of so many that see so much.

        With m blocks that see other tokens and a of them that attend, these are
        Σ over m of C(blocks, m) · still^(blocks - m) · Σ over a of C(m, a) · attending^a · recurrent^(m - a).
        """
        least = self.attention(blocks)
        total = 0
        for mixing in range(max(least, self.mixing(blocks)), blocks + 1):
            too_few = sum(comb(mixing, few) * attention**few * recurrent ** (mixing - few) for few in range(least))
            seeing = (attention + recurrent) ** mixing - too_few
            total += comb(blocks, mixing) * pointwise ** (blocks - mixing) * seeing
        return total


def _share(blocks: int, percent: int) -> int:
    return max(1, (blocks * percent + 50) // 100) if percent else 0
