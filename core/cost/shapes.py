"""Many architectures as arrays, one row each: what predictors of quality, latency and memory read.

All numbers are exact and those of `core.cost.parameters`. L is the most blocks of any row; rows with fewer are padded
at the end. The blocks of a translation model are its source's and then its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.flops import output_weights
from edgefront.core.cost.parameters import attention_width, block_parameters, count
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import BLOCK_KINDS, Attention, Block, FeedForward, Sru, Srupp

Integers = NDArray[np.int64]

BYTES_PER_WEIGHT = 4
"""Of float32."""
_KIND = {kind: index for index, kind in enumerate(BLOCK_KINDS)}


@dataclass(frozen=True, eq=False)
class Shapes:
    """n architectures of at most L blocks."""

    d_model: Integers
    """(n,) width of the residual stream."""
    d_embed: Integers
    """(n,) width of the first embedding cluster."""
    div: Integers
    """(n,) factor by which each further cluster is narrower."""
    vocab_size: Integers
    """(n,) tokens."""
    embedding_parameters: Integers
    """(n,) what touches tokens, on the way in and out."""
    position_parameters: Integers
    """(n,) learned positions, or u and v where all blocks share them."""
    decoder_parameters: Integers
    """(n,) blocks and final norm."""
    output_weights: Integers
    """(n,) weights that are multiplied for the scores of one position: tables, projections and cluster rows."""
    kind: NDArray[np.int8]
    """(n, L) index into `BLOCK_KINDS`; -1 where there is no block."""
    heads: NDArray[np.int32]
    """(n, L) n_head of attention and SRU++, else 0."""
    width: NDArray[np.int32]
    """(n, L) attention: n_head·d_head; feed-forward: d_inner; SRU: d_proj or 0; SRU++: d_attn; else 0."""
    attends: NDArray[np.bool_]
    """(n, L) whether the block attends: attention, and SRU++ whose `attends` is not none."""
    parameters: Integers
    """(n, L) decoder parameters of each block."""

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> Shapes:
        """These architectures, a row each, in their order."""
        counts = [count(one) for one in architectures]
        rows = [_blocks(one) for one in architectures]
        longest = max(map(len, rows), default=0)

        def column(values: list[int]) -> Integers:
            return np.array(values, dtype=np.int64)

        def grid(index: int, padding: int, dtype: Any) -> NDArray[Any]:
            filled = np.full((len(rows), longest), padding, dtype=dtype)
            for place, row in enumerate(rows):
                filled[place, : len(row)] = [block[index] for block in row]
            return filled

        return cls(
            d_model=column([one.d_model for one in architectures]),
            d_embed=column([one.d_embed for one in architectures]),
            div=column([one.embedding.div for one in architectures]),
            vocab_size=column([one.embedding.vocab_size for one in architectures]),
            embedding_parameters=column([one.embedding for one in counts]),
            position_parameters=column([one.position for one in counts]),
            decoder_parameters=column([one.decoder for one in counts]),
            output_weights=column([output_weights(one) for one in architectures]),
            kind=grid(0, -1, np.int8),
            heads=grid(1, 0, np.int32),
            width=grid(2, 0, np.int32),
            attends=grid(3, 0, np.bool_),
            parameters=grid(4, 0, np.int64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Shapes]) -> Shapes:
        """The rows of all parts, in their order."""
        longest = max((part.kind.shape[1] for part in parts), default=0)
        padded = [part.padded(longest) for part in parts] or [cls.of([])]
        return cls(**{field.name: np.concatenate([getattr(part, field.name) for part in padded]) for field in _FIELDS})

    def __len__(self) -> int:
        return len(self.d_model)

    @property
    def total_parameters(self) -> Integers:
        """(n,) all parameters."""
        return self.decoder_parameters + self.position_parameters + self.embedding_parameters

    @property
    def weight_bytes(self) -> Integers:
        """(n,) bytes of all parameters in float32."""
        return BYTES_PER_WEIGHT * self.total_parameters

    def take(self, indices: NDArray[Any] | Sequence[int] | slice) -> Shapes:
        """The rows of these indices, or of a mask, in their order; L stays."""
        return Shapes(**{field.name: getattr(self, field.name)[indices] for field in _FIELDS})

    def padded(self, longest: int) -> Shapes:
        """The same rows with room for so many blocks."""
        missing = longest - self.kind.shape[1]
        if missing <= 0:
            return self
        wide = {
            name: np.pad(getattr(self, name), ((0, 0), (0, missing)), constant_values=-1 if name == "kind" else 0)
            for name in ("kind", "heads", "width", "attends", "parameters")
        }
        return Shapes(**{field.name: getattr(self, field.name) for field in _FIELDS} | wide)


_FIELDS = fields(Shapes)


def _blocks(architecture: Architecture) -> list[tuple[int, int, int, bool, int]]:
    """(kind, heads, width, attends, parameters) of each block."""
    own = [
        (_KIND[block.kind], *_shape(block, architecture), block_parameters(block, architecture))
        for block in architecture.blocks
    ]
    return own if architecture.source is None else _blocks(architecture.source) + own


def _shape(block: Block, architecture: Architecture) -> tuple[int, int, bool]:
    if isinstance(block, Attention):
        return block.n_head, attention_width(block, architecture), True
    if isinstance(block, FeedForward):
        return 0, block.d_inner, False
    if isinstance(block, Sru):
        return 0, block.d_proj or 0, False
    if isinstance(block, Srupp):
        return block.n_head, block.d_attn, block.attends != "none"
    return 0, 0, False
