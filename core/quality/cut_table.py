"""What single cuts cost a trained model, and which of its blocks a smaller model is made of.

A cut model, the child, is a part of its parent: some of the blocks in their order, each with some of its heads or inner
units, on some of the channels of the residual stream. The child's description does not say which blocks of the parent
its blocks are. They are those for which the table expects the least loss, found by dynamic programming; the same rule
decides which weights a child inherits (`core.inherit.tensors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat

from edgefront.core.cost.shapes import ATTENTION, FEED_FORWARD, IDENTITY, SHORT_CONV, Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import BLOCK_KINDS, Attention

Floats = NDArray[np.float64]
Share = Annotated[FiniteFloat, Field(gt=0, le=1)]
Loss = Annotated[FiniteFloat, Field(ge=0, le=1e6)]
"""Nats a token."""
MIN_STEP = 1e-6
"""Least difference between the shares of a cut."""
KINDS = (ATTENTION, FEED_FORWARD, SHORT_CONV, IDENTITY)
"""Kinds of blocks that can be cut."""
_ALIKE = ("kind", "window", "gated", "qk_norm", "biased")
"""What a block of the child has as the parent's has it."""
_CHUNK = 1024
"""Models that are aligned at once at most, for the sake of the caches of a CPU."""
_CELLS = 1 << 24
"""Losses of a model's block as a part of a parent's that are in memory at once: 128 MiB."""


@dataclass(frozen=True)
class Cut:
    """Loss that keeping a share of one part adds, in nats a token, all else being whole.

    `shares` rise from the least one that was tried to 1, where the loss is 0; between them it is linear, below the
    least it goes on in the same direction.
    """

    shares: Annotated[tuple[Share, ...], Field(min_length=2, max_length=64)]
    losses: Annotated[tuple[Loss, ...], Field(min_length=2, max_length=64)]
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        rises = all(high - low >= MIN_STEP for low, high in pairwise(self.shares))
        if not rises or len(self.shares) != len(self.losses) or self.shares[-1] != 1 or self.losses[-1] != 0:
            raise InvalidInput(
                "a cut has a loss for each share, the shares rise to 1, and its loss there is 0",
                field="shares",
                value=list(self.shares),
                allowed=f"numbers above 0 that rise by {MIN_STEP:g} at least, the last of them 1",
            )

    def __call__(self, share: Floats) -> Floats:
        """Loss at each share, at least 0."""
        shares, losses = np.array(self.shares), np.array(self.losses)
        slope = (losses[1] - losses[0]) / (shares[1] - shares[0])
        below = np.minimum(share - shares[0], 0.0) * slope
        return np.asarray(np.maximum(np.interp(share, shares, losses) + below, 0.0))


WHOLE = Cut((0.5, 1.0), (0.0, 0.0))
"""The cut of what has no part that could be kept alone."""


@dataclass(frozen=True)
class BlockCuts:
    """One block of the parent."""

    dropped: Loss
    """Loss, in nats a token, that leaving it out adds."""
    narrowed: Cut
    """By the share of its heads or inner units that is kept."""
    influence: FiniteFloat
    """1 - mean cosine of the stream before and after it (block influence; Men et al. 2024, arXiv 2403.03853, eq. 1)."""
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, eq=False)
class Alignment:
    """n children of at most L blocks as parts of one parent."""

    blocks: NDArray[np.int64]
    """(n, L) number of the parent's block that each block is a part of; -1 where there is no block, and in all of the
    row of a model that is no part of the parent."""
    dropped: Floats
    """(n,) loss that the table expects of the blocks left out, in nats a token; inf where it is no part."""
    narrowed: Floats
    """(n,) of heads and inner units left out."""
    width: Floats
    """(n,) of channels left out."""
    count: NDArray[np.int64]
    """(n,) cuts: blocks that are left out or narrowed, and one where channels are left out."""

    @property
    def is_part(self) -> NDArray[np.bool_]:
        """(n,)"""
        return np.isfinite(self.dropped)

    @property
    def loss(self) -> Floats:
        """(n,) the sum: what single cuts would add if each did as it does alone."""
        return np.asarray(self.dropped + self.narrowed + self.width)


@dataclass(frozen=True)
class CutTable:
    """Single cuts of one parent, measured on one text."""

    parent: Architecture
    blocks: tuple[BlockCuts, ...]
    width: Cut
    """By the share of the channels that is kept."""

    @classmethod
    def trivial(cls, parent: Architecture) -> CutTable:
        """Every block as dear as any other: for questions to which the losses do not matter."""
        return cls(parent, tuple(BlockCuts(1.0, WHOLE, 0.0) for _ in parent.blocks), WHOLE)

    def align(self, shapes: Shapes) -> Alignment:
        """Which parent's blocks these are parts of, with the least expected loss. 100,000 take some seconds."""
        size = max(1, min(_CHUNK, _CELLS // (len(self.blocks) * max(1, shapes.kind.shape[1]))))
        parts = [
            self._aligned(shapes.take(slice(start, start + size))) for start in range(0, max(1, len(shapes)), size)
        ]
        return Alignment(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    def align_one(self, child: Architecture) -> Alignment:
        """The same of one model."""
        return self.align(Shapes.of([child]))

    @cached_property
    def _shapes(self) -> Shapes:
        return Shapes.of([self.parent])

    def _aligned(self, shapes: Shapes) -> Alignment:
        parent, count = self._shapes, len(shapes)
        lengths = (shapes.kind >= 0).sum(1)
        longest = shapes.kind.shape[1]
        # best[:, i]: least loss of the parent's blocks so far, of which i are the child's first ones.
        best = np.full((count, longest + 1), np.inf)
        best[:, 0] = 0.0
        keeps = np.zeros((len(self.blocks), count, longest + 1), dtype=np.bool_)
        costs = np.zeros((len(self.blocks), count, longest))
        for place, cuts in enumerate(self.blocks):
            costs[place] = np.where(self._fits(place, shapes), cuts.narrowed(self._share(place, shapes)), np.inf)
            kept = np.full_like(best, np.inf)
            kept[:, 1:] = best[:, :-1] + costs[place]
            left = best + cuts.dropped
            keeps[place] = kept <= left
            best = np.minimum(kept, left)
        is_part = np.isfinite(best[np.arange(count), lengths]) & self._is_within(shapes) & (lengths > 0)
        blocks = np.full((count, longest), -1, dtype=np.int64)
        dropped, narrowed, cuts_made = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
        rows, at = np.arange(count), lengths.copy()
        for place in range(len(self.blocks) - 1, -1, -1):
            keep = keeps[place, rows, at] & (at > 0) & is_part
            blocks[rows[keep], at[keep] - 1] = place
            narrowed[keep] += costs[place, rows[keep], at[keep] - 1]
            dropped[~keep] += self.blocks[place].dropped
            cuts_made += ~keep
            cuts_made[keep] += shapes.width[rows[keep], at[keep] - 1] < self._shapes.width[0, place]
            at = at - keep
        share = np.asarray(shapes.d_model / parent.d_model[0], dtype=np.float64)
        return Alignment(
            blocks,
            np.where(is_part, dropped, np.inf),
            np.where(is_part, narrowed, np.inf),
            np.where(is_part, self.width(share), np.inf),
            cuts_made + (share < 1),
        )

    def _share(self, place: int, shapes: Shapes) -> Floats:
        """(n, L) share of the heads or inner units of the parent's block."""
        whole = self._shapes.width[0, place]
        if self._shapes.kind[0, place] not in (ATTENTION, FEED_FORWARD):
            return np.ones(shapes.kind.shape)
        return np.asarray(shapes.width / whole, dtype=np.float64)

    def _fits(self, place: int, shapes: Shapes) -> NDArray[np.bool_]:
        """(n, L) whether a block can be a part of the parent's block: so wide at most, and the same otherwise."""
        parent = self._shapes
        fits = shapes.width <= parent.width[0, place]
        for name in _ALIKE:
            fits &= getattr(shapes, name) == getattr(parent, name)[0, place]
        if parent.kind[0, place] == SHORT_CONV:
            fits &= shapes.width == parent.width[0, place]
        if parent.kind[0, place] == ATTENTION:
            heads, kv_width, width = (getattr(parent, name)[0, place] for name in ("heads", "kv_width", "width"))
            fits &= shapes.width * heads == width * shapes.heads  # heads as wide
            fits &= shapes.kv_width <= kv_width
            fits &= (shapes.turned > 0) == (parent.turned[0, place] > 0)  # rotary positions or none
            fits &= shapes.width * kv_width <= width * shapes.kv_width  # no more heads to a key/value head
        return np.asarray(fits)

    def _is_within(self, shapes: Shapes) -> NDArray[np.bool_]:
        parent = self._shapes
        is_within = (shapes.d_model <= parent.d_model[0]) & (shapes.vocab_size <= parent.vocab_size[0])
        if self.parent.scaled_embedding:  # a narrower model would scale it by another factor
            is_within &= shapes.d_model == parent.d_model[0]
        return np.asarray(is_within)


_COLUMNS = ("blocks", "dropped", "narrowed", "width", "count")


def cannot_be_cut(parent: Architecture) -> str | None:
    """What keeps a model from being cut, in words; None where nothing does."""
    kinds = {BLOCK_KINDS[kind] for kind in KINDS}
    other = next((block.kind for block in parent.blocks if block.kind not in kinds), None)
    faults: Sequence[tuple[bool, str]] = (
        (other is not None, f"blocks of {other}"),
        (parent.source is not None, "a source"),
        (not parent.causal or parent.output.kind != "tokens", f"output {parent.output.kind}"),
        (bool(parent.embedding.cutoffs), "an adaptive embedding"),
        (parent.positions.kind in ("relative", "alibi"), f"positions {parent.positions.kind}"),
        (parent.has_parallel_blocks, "parallel feed-forward blocks"),
        (parent.has_shared_blocks, "blocks that share weights"),
        (_has_confusable_attention(parent), "attention blocks that differ in theta, scale, biases or norms alone"),
    )
    return next((what for is_fault, what in faults if is_fault), None)


def _has_confusable_attention(parent: Architecture) -> bool:
    """Whether two attention blocks look the same to `CutTable.align` and compute otherwise."""
    computed = dict[object, object]()
    for block in parent.blocks:
        if isinstance(block, Attention):
            bias, rotary = parent.attention_bias(block), parent.rotary(block)
            alike = (block.window, parent.d_head(block), rotary is None, bool(block.qk_norm), bias == "none")
            own = (rotary, parent.attention_scale(block), block.qk_norm, bias)
            if computed.setdefault(alike, own) != own:
                return True
    return False
