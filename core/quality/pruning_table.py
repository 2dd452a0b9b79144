"""Losses of single cuts of a trained model, and the alignment of a submodel's blocks with the parent's blocks.

A submodel has some of the parent's blocks in order, each with some of the block's heads or inner units, on some of the
channels of the residual stream. The submodel's description does not name the parent's blocks, so `PruningTable.align`
finds the blocks with the least expected loss by dynamic programming. The same alignment selects the weights
(`core.training.pruning.prune`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import BLOCK_KINDS, Attention, Block
from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, IDENTITY, SHORT_CONV, Shapes
from edgefront.core.common.errors import InvalidInput

Floats = NDArray[np.float64]
Share = Annotated[FiniteFloat, Field(gt=0, le=1)]
Loss = Annotated[FiniteFloat, Field(ge=0, le=1e6)]
"""Added loss in nats per token."""
MIN_STEP = 1e-6
"""Minimum difference between neighbouring shares of a cut."""
KINDS = (ATTENTION, FEED_FORWARD, SHORT_CONV, IDENTITY)
"""Kinds of blocks that can be pruned."""
_ALIKE = ("kind", "window", "gated", "qk_norm", "biased")
"""Columns of `Shapes` in which a block of the child must equal the parent's block."""
_CHUNK = 1024
"""Maximum number of models per batch, so that a batch fits into the CPU's caches."""
_CELLS = 1 << 24
"""Maximum number of losses in memory at once (128 MiB)."""
_MAY_SHRINK = ("d_model", "embedding.vocab_size", "positions.length")
"""Fields of a model, other than `blocks`, that may be smaller than the parent's."""
_STATED = ("version", "context_length")
"""Fields without an effect on scores; all other fields must equal the parent's."""
_WIDTHS = {"n_head", "d_head", "n_kv_head", "d_inner"}
"""Fields in which a block may differ from the parent's; the effective d_head is compared separately."""


@dataclass(frozen=True)
class Cut:
    """Loss, in nats per token, of a model with one part narrowed to a share of the full width and the rest complete.

    `shares` rise to 1, where the loss is 0. The loss is piecewise linear, and extrapolated below the least share.
    """

    shares: Annotated[tuple[Share, ...], Field(min_length=2, max_length=64)]
    losses: Annotated[tuple[Loss, ...], Field(min_length=2, max_length=64)]
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        rises = all(high - low >= MIN_STEP for low, high in pairwise(self.shares))
        if not rises or len(self.shares) != len(self.losses) or self.shares[-1] != 1 or self.losses[-1] != 0:
            raise InvalidInput(
                "a cut must have a loss for each share; the shares must rise to 1, where the loss must be 0",
                field="shares",
                value=list(self.shares),
                allowed=f"numbers above 0 that rise by at least {MIN_STEP:g} and end with 1",
            )

    def __call__(self, share: Floats) -> Floats:
        """Loss at each share, in nats per token, at least 0."""
        shares, losses = np.array(self.shares), np.array(self.losses)
        slope = (losses[1] - losses[0]) / (shares[1] - shares[0])
        below = np.minimum(share - shares[0], 0.0) * slope
        return np.asarray(np.maximum(np.interp(share, shares, losses) + below, 0.0))


WHOLE = Cut((0.5, 1.0), (0.0, 0.0))
"""The cut of a part that cannot be narrowed."""


@dataclass(frozen=True)
class BlockPruning:
    """Losses of the possible cuts of one block of the parent model."""

    dropped: Loss
    """Loss after dropping the block, in nats per token."""
    narrowed: Cut
    """Loss by the remaining share of the block's heads or inner units."""
    influence: FiniteFloat
    """Block influence: 1 - mean cosine of the block's input and output (Men et al. 2024, arXiv 2403.03853, eq. 1)."""
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, eq=False)
class Alignment:
    """Alignment of n models of at most L blocks with one parent."""

    blocks: NDArray[np.int64]
    """(n, L) index of the parent's block for each block; -1 if there is no block, or if the model is no submodel."""
    dropped: Floats
    """(n,) loss of dropped blocks in nats per token; inf for models that are no submodels of the parent."""
    narrowed: Floats
    """(n,) loss of removed heads and inner units in nats per token."""
    width: Floats
    """(n,) loss of removed channels in nats per token."""
    count: NDArray[np.int64]
    """(n,) number of cuts: dropped or narrowed blocks, plus one if channels are removed."""

    @property
    def is_part(self) -> NDArray[np.bool_]:
        """(n,) mask of the models that are submodels of the parent."""
        return np.isfinite(self.dropped)

    @property
    def loss(self) -> Floats:
        """(n,) sum of the losses measured for each cut of a model alone, in nats per token."""
        return np.asarray(self.dropped + self.narrowed + self.width)


@dataclass(frozen=True)
class PruningTable:
    """Losses of single cuts of one parent, measured on one text."""

    parent: Architecture
    blocks: tuple[BlockPruning, ...]
    width: Cut
    """Loss by the remaining share of channels."""

    @classmethod
    def trivial(cls, parent: Architecture) -> PruningTable:
        """Returns a table with equal losses of all cuts, to align models with a parent without measured losses."""
        return cls(parent, tuple(BlockPruning(1.0, WHOLE, 0.0) for _ in parent.blocks), WHOLE)

    def align(self, shapes: Shapes) -> Alignment:
        """Finds the alignment of each model with the least expected loss. 100,000 models take some seconds."""
        size = max(1, min(_CHUNK, _CELLS // (len(self.blocks) * max(1, shapes.kind.shape[1]))))
        parts = [
            self._aligned(shapes.take(slice(start, start + size))) for start in range(0, max(1, len(shapes)), size)
        ]
        return Alignment(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    def align_one(self, child: Architecture) -> Alignment:
        """Finds the alignment of one model with the least expected loss."""
        return self.align(Shapes.of([child]))

    def align_part(self, child: Architecture) -> Alignment:
        """Finds the alignment of one model and checks all fields. Raises `InvalidInput` if the model is no submodel."""
        _check_frame(child, self.parent)
        alignment = self.align_one(child)
        if not alignment.is_part[0]:
            raise _not_aligned(child, self.parent)
        for index, place in enumerate(alignment.blocks[0].tolist()):
            _check_block(index, child, self.parent, place)
        return alignment

    @cached_property
    def shapes(self) -> Shapes:
        """Shape of the parent (one row)."""
        return Shapes.of([self.parent])

    def _aligned(self, shapes: Shapes) -> Alignment:
        parent, count = self.shapes, len(shapes)
        lengths = (shapes.kind >= 0).sum(1)
        longest = shapes.kind.shape[1]
        # best[:, i]: least loss of the parent's blocks so far, if i of these blocks are the child's first i blocks.
        best = np.full((count, longest + 1), np.inf)
        best[:, 0] = 0.0
        keeps = np.zeros((len(self.blocks), count, longest + 1), dtype=np.bool_)
        costs = np.zeros((len(self.blocks), count, longest))
        for place, cuts in enumerate(self.blocks):
            share = np.ones(shapes.kind.shape)  # share of heads or inner units
            if parent.kind[0, place] in (ATTENTION, FEED_FORWARD):
                share = shapes.width / parent.width[0, place]
            costs[place] = np.where(self._fits(place, shapes), cuts.narrowed(share), np.inf)
            kept = np.full_like(best, np.inf)
            kept[:, 1:] = best[:, :-1] + costs[place]
            left = best + cuts.dropped
            keeps[place] = kept <= left
            best = np.minimum(kept, left)
        is_part = np.isfinite(best[np.arange(count), lengths]) & (lengths > 0)
        is_part &= (shapes.d_model <= parent.d_model[0]) & (shapes.vocab_size <= parent.vocab_size[0])
        if self.parent.scaled_embedding:  # the factor depends on d_model
            is_part &= shapes.d_model == parent.d_model[0]
        blocks = np.full((count, longest), -1, dtype=np.int64)
        dropped, narrowed, cuts_made = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
        rows, at = np.arange(count), lengths.copy()
        for place in range(len(self.blocks) - 1, -1, -1):
            keep = keeps[place, rows, at] & (at > 0) & is_part
            blocks[rows[keep], at[keep] - 1] = place
            narrowed[keep] += costs[place, rows[keep], at[keep] - 1]
            dropped[~keep] += self.blocks[place].dropped
            cuts_made += ~keep
            cuts_made[keep] += shapes.width[rows[keep], at[keep] - 1] < self.shapes.width[0, place]
            at = at - keep
        share = np.asarray(shapes.d_model / parent.d_model[0], dtype=np.float64)
        return Alignment(
            blocks,
            np.where(is_part, dropped, np.inf),
            np.where(is_part, narrowed, np.inf),
            np.where(is_part, self.width(share), np.inf),
            cuts_made + (share < 1),
        )

    def _fits(self, place: int, shapes: Shapes) -> NDArray[np.bool_]:
        """(n, L) mask of the models' blocks that equal the parent's block `place`, but may be narrower."""
        parent = self.shapes
        fits = shapes.width <= parent.width[0, place]
        for name in _ALIKE:
            fits &= getattr(shapes, name) == getattr(parent, name)[0, place]
        if parent.kind[0, place] == SHORT_CONV:
            fits &= shapes.width == parent.width[0, place]
        if parent.kind[0, place] == ATTENTION:
            heads, kv_width, width = (getattr(parent, name)[0, place] for name in ("heads", "kv_width", "width"))
            fits &= shapes.width * heads == width * shapes.heads  # equal d_head
            fits &= shapes.kv_width <= kv_width
            fits &= (shapes.rotary_dim > 0) == (parent.rotary_dim[0, place] > 0)  # rotary positions or none
            fits &= shapes.width * kv_width <= width * shapes.kv_width  # no more heads per key/value head
        return np.asarray(fits)


_COLUMNS = ("blocks", "dropped", "narrowed", "width", "count")


def cannot_be_cut(parent: Architecture) -> str | None:
    """Name of a feature that prevents pruning of this model; None if the model can be pruned."""
    kinds = {BLOCK_KINDS[kind] for kind in KINDS}
    other = next((block.kind for block in parent.blocks if block.kind not in kinds), None)
    faults: Sequence[tuple[bool, str]] = (
        (other is not None, f"blocks of {other}"),
        (parent.source is not None, "a source"),
        (not parent.causal or parent.output.kind != "tokens", f"output {parent.output.kind}"),
        (bool(parent.embedding.cutoffs), "an adaptive embedding"),
        (parent.positions.kind == "relative", "positions relative"),
        (parent.has_parallel_blocks, "parallel feed-forward blocks"),
        (_has_confusable_attention(parent), "attention blocks that differ in theta, scale, biases or norms alone"),
    )
    return next((what for is_fault, what in faults if is_fault), None)


def _has_confusable_attention(parent: Architecture) -> bool:
    """Whether the parent has two different attention blocks that `PruningTable.align` cannot distinguish."""
    computed = dict[object, object]()
    for block in parent.blocks:
        if isinstance(block, Attention):
            bias, rotary = parent.attention_bias(block), parent.rotary(block)
            alike = (block.window, parent.d_head(block), rotary is None, bool(block.qk_norm), bias == "none")
            own = (rotary, parent.attention_scale(block), block.qk_norm, bias)
            if computed.setdefault(alike, own) != own:
                return True
    return False


# Errors --------------------------------------------------------------------------------------------------------------


def _check_frame(child: Architecture, parent: Architecture) -> None:
    """Raises `InvalidInput` if a field of the child, except for `blocks`, does not permit a submodel of the parent."""
    if child.embedding_factor != parent.embedding_factor:
        what = "the embedding is scaled by √d_model, which a narrower model changes"
        raise no_part(what, "embedding.scaled", child.embedding_factor)
    own, whole = _frame(child), _frame(parent)
    for name in dict.fromkeys((*own, *whole)):
        value, of = own.get(name), whole.get(name)
        if name in _MAY_SHRINK and isinstance(value, int) and isinstance(of, int):
            if value > of:
                raise no_part(f"{name} {value} is more than the parent's {of}", name, value)
        elif name == "output.tied" and of:
            pass  # an untied head is initialised with the embedding
        elif value != of:
            raise no_part(f"{name} is {value}, and the parent model's is {of}", name, value)


def _frame(architecture: Architecture) -> dict[str, Any]:
    """Path of a field → value, for all fields of the architecture except for `blocks`, with defaults resolved."""
    frame = architecture.model_dump(mode="json", exclude={"blocks", *_STATED})
    frame["final_norm"] = architecture.has_final_norm
    frame["embedding"] |= {
        "d_embed": None if architecture.d_embed == architecture.d_model else architecture.d_embed,
        "scaled": architecture.scaled_embedding,
    }
    frame["output"]["bias"] = architecture.output_bias
    paths: dict[str, Any] = {}
    for name, value in frame.items():
        paths |= {f"{name}.{part}": of for part, of in value.items()} if isinstance(value, dict) else {name: value}
    return paths


def _check_block(index: int, child: Architecture, parent: Architecture, place: int) -> None:
    part, whole = child.blocks[index], parent.blocks[place]
    pairs = [
        (name, getattr(part, name), getattr(whole, name)) for name in type(part).model_fields if name not in _WIDTHS
    ]
    if isinstance(part, Attention) and isinstance(whole, Attention):
        pairs = [pair for pair in pairs if pair[0] not in ("bias", "theta", "scale")]
        pairs += [
            ("bias", child.attention_bias(part), parent.attention_bias(whole)),
            ("theta", child.rotary(part), parent.rotary(whole)),
            ("scale", child.attention_scale(part), parent.attention_scale(whole)),
        ]
    for name, own, other in pairs:
        if own != other:
            field = f"blocks.{index}.{name}"
            raise no_part(f"{field} is {own}, but {other} in the parent's blocks.{place}", field, str(own))


def _not_aligned(child: Architecture, parent: Architecture) -> InvalidInput:
    """Returns the error for the first block that fits no block of the parent, or for blocks in another order."""
    for index, block in enumerate(child.blocks):
        alike = [other for other in parent.blocks if other.kind == block.kind]
        if not alike:
            return no_part(
                f"blocks.{index} is {block.kind}, a kind that the parent lacks", f"blocks.{index}", block.kind
            )
        if not any(_is_part(block, other, child, parent) for other in alike):
            said = block.model_dump(exclude_defaults=True)
            return no_part(
                f"blocks.{index}, {block.kind} {said}, fits no block of the parent: it is wider, has more heads "
                "for each key/value head, or has other heads, window, norms, gate or biases",
                f"blocks.{index}",
                said,
            )
    return no_part("blocks must be some of the parent's blocks in the same order", "blocks", len(child.blocks))


def _is_part(block: Block, other: Block, child: Architecture, parent: Architecture) -> bool:
    child_alone, parent_alone = (
        Architecture.parse({**model.canonical, "blocks": [model.canonical["blocks"][model.blocks.index(part)]]})
        for model, part in ((child, block), (parent, other))
    )
    return bool(PruningTable.trivial(parent_alone).align_one(child_alone).is_part[0])


def no_part(what: str, field: str, value: object) -> InvalidInput:
    return InvalidInput(
        f"the model is no part of its parent: {what}",
        field=field,
        value=value,
        allowed="fewer blocks, heads, key/value heads, inner units or channels of the parent's, and nothing else",
    )
