"""The pass that is counted, and the numbers that `core.architectures.cost.shapes.Shapes` has of one architecture: a row
for each block, and one for its ends.

What linear layers have is counted there, for many architectures at once; here is what depends on more of the
description than its widths: norms, biases, clusters of the vocabulary, kinds of output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from edgefront.core.architectures.architecture import Architecture, NormKind
from edgefront.core.architectures.block import BLOCK_KINDS, Attention, Biases, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import LearnedPositions, RelativePositions

Mode = Literal["forward", "prefill", "decode"]
Logits = Literal["all", "last", "none"]
Number = TypeVar("Number", int, Any)
"""An integer, or an array of integers: widths of one block, or of many."""

_KIND = {kind: index for index, kind in enumerate(BLOCK_KINDS)}


@dataclass(frozen=True)
class Pass:
    """`batch` sequences of `tokens` new tokens each, after `memory` earlier ones.

    In forward a memory is a segment memory of layer inputs, in decode a cache of keys and values. `source` tokens
    stand on the other side of a translation model.
    """

    batch: int
    tokens: int
    memory: int = 0
    source: int = 0
    mode: Mode = "forward"
    logits: Logits = "all"

    @property
    def positions(self) -> int:
        """Positions that `logits` names, of all sequences together."""
        return {"all": self.batch * self.tokens, "last": self.batch, "none": 0}[self.logits]


class BlockRow(NamedTuple):
    """One block; the fields are columns of `Shapes`, except for `d_model` and `other_parameters`."""

    d_model: int
    kind: int
    other_parameters: int
    """Parameters beside the weights of its linear layers: norm, biases, recurrence, kernel, distances."""
    heads: int = 0
    width: int = 0
    own_keys: bool = False
    kv_width: int = 0
    window: int = 0
    turned: int = 0
    gated: bool = False
    qk_norm: bool = False
    biased: bool = False
    relative: bool = False
    clamp: int = 0
    source_keys: bool = False
    of_source: bool = False
    twice_normed: bool = False


class EndsRow(NamedTuple):
    """What is no block; the fields are columns of `Shapes`, except for `final_norms`."""

    d_model: int
    d_embed: int
    div: int
    vocab_size: int
    embedding_parameters: int
    position_parameters: int
    final_norms: int
    """Parameters of the norm after the last block, and of the source's."""
    output_weights: int
    embedding_weights: int
    source_embedding_weights: int
    pooled: bool
    causal: bool


NO_BLOCK = BlockRow(d_model=0, kind=-1, other_parameters=0)


def block_rows(architecture: Architecture) -> tuple[list[BlockRow], list[int]]:
    """The different blocks, and which of them follow each other: the source's blocks, then its own."""
    rows, order = ([], []) if architecture.source is None else block_rows(architecture.source)
    rows, first = [row._replace(of_source=True) for row in rows], len(rows)
    places: dict[Block, int] = {}
    order = order + [places.setdefault(block, first + len(places)) for block in architecture.blocks]
    return rows + [_block_row(block, architecture) for block in places], order


def ends_row(architecture: Architecture) -> EndsRow:
    """The ends of the model, with the parameters of its source's."""
    source = None if architecture.source is None else ends_row(architecture.source)
    d, tables = architecture.d_model, architecture.tables
    projections = [table.width * d for table in tables] if architecture.projected else []
    weights = sum(table.size * table.width for table in tables)
    embedding = _embedding_parameters(architecture, weights, projections)
    output = _output_parameters(architecture, weights, projections)
    return EndsRow(
        d_model=d,
        d_embed=architecture.d_embed,
        div=architecture.embedding.div,
        vocab_size=architecture.embedding.vocab_size,
        embedding_parameters=embedding + output + (source.embedding_parameters if source else 0),
        position_parameters=_position_parameters(architecture) + (source.position_parameters if source else 0),
        final_norms=(norm_parameters(architecture.norm_kind, d) if architecture.has_final_norm else 0)
        + (source.final_norms if source else 0),
        output_weights=_output_weights(architecture, weights, projections),
        embedding_weights=sum(projections),
        source_embedding_weights=source.embedding_weights if source else 0,
        pooled=architecture.output.kind in ("pooled", "classes"),
        causal=architecture.causal,
    )


# Blocks --------------------------------------------------------------------------------------------------------------


def attention_width(block: Attention, architecture: Architecture) -> int:
    """A = n_head·d_head: width of the queries, and of the keys and the values, of all heads together."""
    return block.n_head * architecture.d_head(block)


def _block_row(block: Block, architecture: Architecture) -> BlockRow:
    kind, d, twice_normed = _KIND[block.kind], architecture.d_model, architecture.norm == "both"
    if isinstance(block, Attention):
        return _attention_row(block, architecture)
    if isinstance(block, FeedForward):
        other = block_norm_parameters(architecture, shares=block.parallel == "shared_norm")
        other += feed_forward_biases(d, block.d_inner, gated=block.gated) if block.bias else 0
        return BlockRow(
            d,
            kind,
            other,
            width=block.d_inner,
            gated=block.gated,
            biased=block.bias,
            twice_normed=twice_normed,
        )
    if isinstance(block, Sru):
        return BlockRow(d, kind, 4 * d, width=block.d_proj or 0)
    if isinstance(block, Srupp):
        attends = block.attends != "none"
        return BlockRow(
            d,
            kind,
            2 * block.d_attn + 4 * d + attends,
            heads=block.n_head,
            width=block.d_attn,
            own_keys=block.attends in ("self", "both"),
            source_keys=block.attends in ("source", "both"),
            kv_width=block.d_attn if attends else 0,
        )
    if isinstance(block, ShortConv):
        other = block_norm_parameters(architecture) + block.kernel * d + (5 * d if block.bias else 0)
        return BlockRow(d, kind, other, width=block.kernel, biased=block.bias, twice_normed=twice_normed)
    return BlockRow(d, kind, 0)


def _attention_row(block: Attention, architecture: Architecture) -> BlockRow:
    d, positions, d_head = architecture.d_model, architecture.positions, architecture.d_head(block)
    width, kv_width = attention_width(block, architecture), block.kv_heads * d_head
    bias: Biases = "none"
    of_heads = {False: 0, True: 2 * d_head, "whole": width + kv_width}[block.qk_norm]
    other = block_norm_parameters(architecture) + of_heads
    relative = isinstance(positions, RelativePositions)
    if isinstance(positions, RelativePositions):
        other += width * d + (0 if positions.shared else 2 * width)
    else:
        bias = architecture.attention_bias(block)
        other += attention_biases(bias, d, width, kv_width)
    rotary = architecture.rotary(block)
    turned = 0 if rotary is None else rotary.width(d_head)
    return BlockRow(
        d,
        _KIND[block.kind],
        other,
        heads=block.n_head,
        width=width,
        own_keys=block.attends != "source",
        source_keys=block.attends != "self",
        kv_width=kv_width,
        window=block.window or 0,
        turned=(block.n_head + block.kv_heads) * turned,
        qk_norm=bool(block.qk_norm),
        biased=bias != "none",
        relative=relative,
        clamp=(positions.clamp or 0) if isinstance(positions, RelativePositions) else 0,
        twice_normed=architecture.norm == "both",
    )


def block_norm_parameters(architecture: Architecture, *, shares: bool = False) -> int:
    """Parameters of the norms of a block; `shares`: it reads what another block has normed."""
    count = (0 if shares else 1) + (1 if architecture.norm == "both" else 0)
    of_one: int = norm_parameters(architecture.norm_kind, architecture.d_model)
    return count * of_one


def norm_parameters(kind: NormKind, width: Number) -> Number:
    """Parameters of a norm over so many features."""
    return width if kind == "rms" else 2 * width


def attention_biases(biases: Biases, d: int, width: int, kv_width: int) -> int:
    """Biases of the linear layers of attention."""
    return {"none": 0, "qkv": width + 2 * kv_width, "all": width + 2 * kv_width + d}[biases]


def feed_forward_biases(d: int, inner: Number, *, gated: bool) -> Number:
    """Biases of the linear layers of a feed-forward block."""
    return (2 if gated else 1) * inner + d


# Ends ----------------------------------------------------------------------------------------------------------------


def _position_parameters(architecture: Architecture) -> int:
    positions = architecture.positions
    if isinstance(positions, LearnedPositions):
        return (positions.length + positions.offset) * architecture.d_model
    if isinstance(positions, RelativePositions) and positions.shared:
        return next((2 * attention_width(b, architecture) for b in architecture.blocks if isinstance(b, Attention)), 0)
    return 0


def _embedding_parameters(architecture: Architecture, weights: int, projections: Sequence[int]) -> int:
    """`weights` are those of all embedding matrices, `projections` those of the projection of each."""
    d, embedding = architecture.d_model, architecture.embedding
    norm = norm_parameters(architecture.norm_kind, d) if embedding.norm else 0
    return weights + sum(projections) + embedding.segments * d + norm


def _output_parameters(architecture: Architecture, weights: int, projections: Sequence[int]) -> int:
    """What the output layer has of its own."""
    d, output = architecture.d_model, architecture.output
    total = 0
    if output.kind == "masked_tokens":
        total += d * d + d + norm_parameters(architecture.norm_kind, d)
    if output.kind in ("pooled", "classes"):
        total += d * d + d
    if output.classes is not None:
        total += d * output.classes + output.classes
    if output.kind == "spans":
        total += 2 * d + 2
    if not architecture.scores_tokens:
        return total
    if not output.tied:
        total += weights
    # Without projections there are none to be tied.
    own = {"tails": 1, "all": 0, "none": len(projections)}["none" if not output.tied else output.tied_projections]
    total += sum(projections[:own])
    if architecture.output_bias:
        total += architecture.embedding.vocab_size
    tails = len(architecture.embedding.cutoffs)
    return total + tails * architecture.d_embed + tails


def _output_weights(architecture: Architecture, weights: int, projections: Sequence[int]) -> int:
    """Weights that are multiplied for the scores of one position, or of one sequence where the output is pooled."""
    d, output, tails = architecture.d_model, architecture.output, len(architecture.embedding.cutoffs)
    if output.kind == "spans":
        return 2 * d
    if output.kind in ("pooled", "classes"):
        return d * d + d * (output.classes or 0)
    if not architecture.scores_tokens:
        return 0
    total = weights + tails * architecture.d_embed + sum(projections)
    if output.kind == "masked_tokens":
        total += d * d
    # One table for all clusters needs two projections where the head has its own and tails have the embedding's.
    head_apart = output.tied and output.tied_projections == "tails"
    if projections and head_apart and architecture.embedding.div == 1 and tails:
        total += d * architecture.d_embed
    return total
