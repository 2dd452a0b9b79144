"""Many architectures as arrays, one row each: what costs are counted from, and predictors of quality, latency and
memory read.

L is the most blocks of any row; rows with fewer are padded at the end. The blocks of a translation model are its
source's and then its own. Every formula over `Shapes` holds for any number of rows; one architecture is a batch of one.

Numbers are int64, which holds every column of the largest model that a description allows (1,024 blocks of 2⁵¹
parameters), but not every product of them: `of(…, dtype=object)` has Python's ints, of any size, for exact costs, and
`astype(float)` has float64, exact to 2⁵³, for features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import BLOCK_KINDS
from edgefront.core.architectures.cost.columns import NO_BLOCK, BlockRow, EndsRow, block_rows, ends_row

Numbers = NDArray[Any]
"""int64; object (Python's ints) or float64 where asked for."""
Flags = NDArray[np.bool_]
LinearLayers = tuple[tuple[Numbers, Numbers], ...]
"""(out, in), (n, L) each, of the first, second and third linear layer of every block; an out of 0 is no layer."""

ATTENTION, FEED_FORWARD, SRU, SRUPP, IDENTITY, SHORT_CONV = range(len(BLOCK_KINDS))
"""Values of `Shapes.kind`, in the order of `BLOCK_KINDS`."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """n architectures of at most L blocks."""

    d_model: Numbers
    """(n,) width of the residual stream."""
    d_embed: Numbers
    """(n,) width of the first embedding cluster."""
    div: Numbers
    """(n,) factor by which each further cluster is narrower."""
    vocab_size: Numbers
    """(n,) tokens."""
    embedding_parameters: Numbers
    """(n,) what touches tokens, on the way in and out."""
    position_parameters: Numbers
    """(n,) learned positions, or u and v where all blocks share them."""
    decoder_parameters: Numbers
    """(n,) blocks and final norm."""
    output_weights: Numbers
    """(n,) weights that are multiplied for the scores of one position: tables, projections and cluster rows."""
    embedding_weights: Numbers
    """(n,) weights that are multiplied for one token on the way in: projections of all clusters."""
    source_embedding_weights: Numbers
    """(n,) the same for a token of the source."""
    pooled: Flags
    """(n,) whether the output reads the first position of each sequence alone."""
    causal: Flags
    """(n,) whether no token sees a later one."""
    kind: NDArray[np.int8]
    """(n, L) index into `BLOCK_KINDS`; -1 where there is no block."""
    heads: Numbers
    """(n, L) n_head of attention and SRU++, else 0."""
    width: Numbers
    """(n, L) attention: n_head·d_head; feed-forward: d_inner; SRU: d_proj or 0; SRU++: d_attn; short
    convolution: its kernel; else 0."""
    own_keys: Flags
    """(n, L) whether the block attends to its own sequence: attention and SRU++, unless to the source or none."""
    parameters: Numbers
    """(n, L) decoder parameters of each block."""
    linear_weights: Numbers
    """(n, L) weights of the linear layers of each block, projections of distances apart."""
    kv_width: Numbers
    """(n, L) n_kv_head·d_head: width of the keys, and of the values, that a block which attends makes of a token; else
    0."""
    window: Numbers
    """(n, L) keys that a token of an attention block sees at most; 0 where it sees all."""
    turned: Numbers
    """(n, L) features of a token's queries and keys that rotary positions turn."""
    gated: Flags
    """(n, L) whether it is a gated feed-forward block."""
    qk_norm: Flags
    """(n, L) whether an attention block has norms of queries and keys."""
    biased: Flags
    """(n, L) whether linear layers of the block have biases."""
    relative: Flags
    """(n, L) whether an attention block has a map of the distances."""
    clamp: Numbers
    """(n, L) distance which all farther ones count as, in that map; 0 where each counts as itself."""
    source_keys: Flags
    """(n, L) whether the block attends to the states of the source."""
    of_source: Flags
    """(n, L) whether it is a block of the source."""
    twice_normed: Flags
    """(n, L) whether there is a norm of what the block reads, and another of what it adds."""

    @classmethod
    def of(cls, architectures: Sequence[Architecture], dtype: Any = np.int64) -> Shapes:
        """These architectures, a row each, in their order; numbers are of this type."""
        rows, orders = [NO_BLOCK], []
        for architecture in architectures:
            different, order = block_rows(architecture)
            orders.append([len(rows) + place for place in order])
            rows += different
        lengths = np.array([len(order) for order in orders], dtype=np.int64)
        places = np.zeros((len(orders), lengths.max(initial=0)), dtype=np.int64)
        places[np.arange(places.shape[1]) < lengths[:, None]] = [place for order in orders for place in order]
        blocks = block_columns(**_columns(rows, BlockRow, dtype))
        ends = _columns([ends_row(architecture) for architecture in architectures], EndsRow, dtype)
        return cls.from_columns({name: column[places] for name, column in blocks.items()}, **ends)

    @classmethod
    def from_columns(cls, blocks: Mapping[str, Numbers], *, final_norms: Numbers, **ends: Numbers) -> Shapes:
        """Shapes made of (n, L) `block_columns`, and (n,) columns by `EndsRow`."""
        ends |= {name: ends[name].astype(np.bool_) for name in _FLAGS_OF_ENDS}
        return cls(**ends, **blocks, decoder_parameters=final_norms + blocks["parameters"].sum(axis=1))

    @classmethod
    def concatenate(cls, parts: Sequence[Shapes]) -> Shapes:
        """The rows of all parts, in their order."""
        longest = max((part.kind.shape[1] for part in parts), default=0)
        padded = [part.padded(longest) for part in parts] or [cls.of([])]
        return cls(**{name: np.concatenate([getattr(part, name) for part in padded]) for name in _NAMES})

    def __len__(self) -> int:
        return len(self.d_model)

    @property
    def attends(self) -> Flags:
        """(n, L) whether the block attends: attention, and SRU++ whose `attends` is not none."""
        return self.own_keys | self.source_keys

    @property
    def total_parameters(self) -> Numbers:
        """(n,) all parameters."""
        return self.decoder_parameters + self.position_parameters + self.embedding_parameters

    @property
    def linear_layers(self) -> LinearLayers:
        """The linear layers of every block."""
        return _linear_layers(self.d_model[:, None], **{name: getattr(self, name) for name in _OF_LAYERS})

    def take(self, indices: NDArray[Any] | Sequence[int] | slice) -> Shapes:
        """The rows of these indices, or of a mask, in their order; L stays."""
        return Shapes(**{name: getattr(self, name)[indices] for name in _NAMES})

    def astype(self, dtype: Any) -> Shapes:
        """The same with numbers of another type."""
        return replace(self, **{name: getattr(self, name).astype(dtype) for name in _NUMBERS})

    def padded(self, longest: int) -> Shapes:
        """The same rows with room for so many blocks."""
        missing = longest - self.kind.shape[1]
        if missing <= 0:
            return self
        wide = {
            name: np.pad(getattr(self, name), ((0, 0), (0, missing)), constant_values=-1 if name == "kind" else 0)
            for name in GRIDS
        }
        return replace(self, **wide)


_NAMES = tuple(field.name for field in fields(Shapes))
GRIDS = _NAMES[_NAMES.index("kind") :]
"""The fields that have a number for each block."""
DERIVED = ("parameters", "linear_weights")
"""Those that follow from the others."""
_FLAGS = ("own_keys", "gated", "qk_norm", "biased", "relative", "source_keys", "of_source", "twice_normed")
_FLAGS_OF_ENDS = ("pooled", "causal")
_NUMBERS = tuple(name for name in _NAMES if name not in ("kind", *_FLAGS, *_FLAGS_OF_ENDS))


def block_columns(*, d_model: Numbers, other_parameters: Numbers, **columns: Numbers) -> dict[str, Numbers]:
    """All columns of blocks, in any arrangement of them, from those of `BlockRow`; what is left out is 0 everywhere."""
    nothing = np.zeros_like(columns["kind"])
    blocks = {name: columns.get(name, nothing) for name in GRIDS if name not in DERIVED}
    blocks["kind"] = blocks["kind"].astype(np.int8)
    blocks |= {name: blocks[name].astype(np.bool_) for name in _FLAGS}
    first, second, third = _linear_layers(d_model, **{name: blocks[name] for name in _OF_LAYERS})
    weights = first[0] * first[1] + second[0] * second[1] + third[0] * third[1]
    return blocks | {"linear_weights": weights, "parameters": other_parameters + weights}


def _columns(rows: Sequence[tuple[int, ...]], form: Any, dtype: Any) -> dict[str, Numbers]:
    """Field → (rows,)."""
    table = np.array(rows, dtype=dtype).reshape(len(rows), len(form._fields))
    return dict(zip(form._fields, table.T, strict=True))


_OF_LAYERS = ("kind", "width", "kv_width", "gated", "own_keys", "source_keys")


def _linear_layers(
    d: Numbers,
    kind: NDArray[np.int8],
    width: Numbers,
    kv_width: Numbers,
    gated: Flags,
    own_keys: Flags,
    source_keys: Flags,
) -> LinearLayers:
    """Layers of the same inputs are one: attention has queries, keys and values (A + 2·K, D) and the way out (D, A);
    feed-forward (f, D), gated (2·f, D), and (D, f); SRU (3·D, D), or (p, D) and (3·D, p); SRU++ (p, D), (3·D, p) and
    with attention (2·p, p); a short convolution (3·D, D) and (D, D). Letters as in
    `core.architectures.cost.parameters`.
    """
    attention, srupp, convolution = kind == ATTENTION, kind == SRUPP, kind == SHORT_CONV
    unprojected = (kind == SRU) & (width == 0)
    through = srupp | (kind == SRU) & (width > 0)
    to_and_from = attention | (kind == FEED_FORWARD)
    first = (1 + gated) * width * (to_and_from | through)
    first = first + 2 * kv_width * attention + 3 * d * (convolution | unprojected)
    second = d * (to_and_from | convolution) + 3 * d * through
    third = 2 * width * (srupp & (own_keys | source_keys))
    return (first, d), (second, np.where(convolution, d, width)), (third, width)
