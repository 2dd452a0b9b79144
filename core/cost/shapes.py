"""Many architectures as arrays, one row each: what predictors of quality, latency and memory read.

All numbers are exact and those of `core.cost.parameters`. L is the most blocks of any row; rows with fewer are padded
at the end. The blocks of a translation model are its source's and then its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.flops import output_weights
from edgefront.core.cost.parameters import attention_width, block_parameters, count, kv_width
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import BLOCK_KINDS, Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.spaces.embeddings_and_head import RelativePositions, RotaryPositions

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
    """(n, L) attention: n_head·d_head; feed-forward: d_inner; SRU: d_proj or 0; SRU++: d_attn; short
    convolution: its kernel; else 0."""
    attends: NDArray[np.bool_]
    """(n, L) whether the block attends: attention, and SRU++ whose `attends` is not none."""
    parameters: Integers
    """(n, L) decoder parameters of each block."""
    kv_width: NDArray[np.int32]
    """(n, L) width of the keys, and of the values, that a block which attends makes of a token; else 0."""
    window: NDArray[np.int32]
    """(n, L) keys that a token of an attention block sees at most; 0 where it sees all."""
    turned: NDArray[np.int32]
    """(n, L) features of a token's queries and keys that rotary positions turn."""
    gated: NDArray[np.bool_]
    """(n, L) whether it is a gated feed-forward block."""
    qk_norm: NDArray[np.bool_]
    """(n, L) whether an attention block has norms of queries and keys."""
    biased: NDArray[np.bool_]
    """(n, L) whether linear layers of the block have biases."""
    relative: NDArray[np.bool_]
    """(n, L) whether an attention block has a map of the distances."""

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> Shapes:
        """These architectures, a row each, in their order."""
        counts = [count(one) for one in architectures]
        rows = [_blocks(one) for one in architectures]
        longest = max(map(len, rows), default=0)

        def column(values: list[int]) -> Integers:
            return np.array(values, dtype=np.int64)

        def grid(name: str, dtype: Any) -> NDArray[Any]:
            filled = np.full((len(rows), longest), -1 if name == "kind" else 0, dtype=dtype)
            for place, row in enumerate(rows):
                filled[place, : len(row)] = [getattr(block, name) for block in row]
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
            **{name: grid(name, dtype) for name, dtype in _GRIDS.items()},
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
            for name in GRIDS
        }
        return Shapes(**{field.name: getattr(self, field.name) for field in _FIELDS} | wide)


_FIELDS = fields(Shapes)
_GRIDS: Mapping[str, Any] = {
    "kind": np.int8,
    "heads": np.int32,
    "width": np.int32,
    "attends": np.bool_,
    "parameters": np.int64,
    "kv_width": np.int32,
    "window": np.int32,
    "turned": np.int32,
    "gated": np.bool_,
    "qk_norm": np.bool_,
    "biased": np.bool_,
    "relative": np.bool_,
}
GRIDS = tuple(_GRIDS)
"""The fields that have a number for each block."""


class _Row(NamedTuple):
    """One block, by the fields of `GRIDS`."""

    kind: int
    parameters: int
    heads: int = 0
    width: int = 0
    attends: bool = False
    kv_width: int = 0
    window: int = 0
    turned: int = 0
    gated: bool = False
    qk_norm: bool = False
    biased: bool = False
    relative: bool = False


def _blocks(architecture: Architecture) -> list[_Row]:
    own = [_row(block, architecture) for block in architecture.blocks]
    return own if architecture.source is None else _blocks(architecture.source) + own


def _row(block: Block, architecture: Architecture) -> _Row:
    row = _Row(_KIND[block.kind], block_parameters(block, architecture))
    if isinstance(block, Attention):
        heads, width, positions = block.n_head, attention_width(block, architecture), architecture.positions
        turned = positions.width(architecture.d_head(block)) if isinstance(positions, RotaryPositions) else 0
        return row._replace(
            heads=heads,
            width=width,
            attends=True,
            kv_width=kv_width(block, architecture),
            window=block.window or 0,
            turned=(heads + block.kv_heads) * turned,
            qk_norm=block.qk_norm,
            biased=architecture.attention_bias(block) != "none",
            relative=isinstance(positions, RelativePositions),
        )
    if isinstance(block, FeedForward):
        return row._replace(width=block.d_inner, gated=block.gated, biased=block.bias)
    if isinstance(block, Sru):
        return row._replace(width=block.d_proj or 0)
    if isinstance(block, ShortConv):
        return row._replace(width=block.kernel, biased=block.bias)
    if isinstance(block, Srupp):
        attends = block.attends != "none"
        return row._replace(
            heads=block.n_head, width=block.d_attn, attends=attends, kv_width=block.d_attn if attends else 0
        )
    return row
