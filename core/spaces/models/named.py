"""What a named model is."""

from __future__ import annotations

from typing import NamedTuple

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.pattern import expand


class NamedModel(NamedTuple):
    """A published model under a name that people know."""

    name: str
    source: str
    """Paper and table that it comes from."""
    architecture: Architecture


def blocks_of(pattern: str, n_head: int, d_inner: int) -> tuple[Block, ...]:
    """The blocks of a pattern: s is an attention of so many heads, f a feed-forward block of this width."""
    letters: dict[str, Block] = {"s": Attention(n_head=n_head), "f": FeedForward(d_inner=d_inner)}
    return tuple(letters[letter] for letter in expand(pattern))
