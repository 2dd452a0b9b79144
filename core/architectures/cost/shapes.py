"""Architectures as arrays, one row each: the basis of exact costs, and of the predictors of quality, latency and
memory.

L is the largest number of blocks in any row; shorter rows are padded at the end. The blocks of a translation model are
the blocks of its encoder (`source`), followed by its own. Every formula over `Shapes` holds for any number of rows; one
architecture is a batch of one.

Numbers are int64. That is large enough for every column of the largest permitted model (1,024 blocks of 2⁵¹
parameters), but not for every product of columns. `of(…, dtype=object)` has Python's ints, of any size, for exact
costs, and `astype(float)` has float64, exact to 2⁵³, for features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import BLOCK_KINDS, Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.architectures.parameters import block_parameters, embedding_parameters, head_parameters

Numbers = NDArray[Any]
"""Array of int64; of object (Python's ints) or float64 if requested."""
Flags = NDArray[np.bool_]
Row = dict[str, int]
"""Values of one block, or of one model's embedding and output layer, in the columns of `Shapes` of these names."""
LinearLayers = tuple[tuple[Numbers, Numbers], ...]
"""Pairs (out, in) for the first, second and third linear layer of every block, arrays (n, L); out 0 means no layer."""

ATTENTION, FEED_FORWARD, SRU, SRUPP, IDENTITY, SHORT_CONV = range(len(BLOCK_KINDS))
"""Values of `Shapes.kind`, in the order of `BLOCK_KINDS`."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Arrays for n architectures of at most L blocks."""

    d_model: Numbers
    """(n,) width of the residual stream."""
    d_embed: Numbers
    """(n,) width of the first embedding cluster."""
    div: Numbers
    """(n,) factor by which each next cluster is narrower."""
    vocab_size: Numbers
    """(n,) number of tokens of the vocabulary."""
    embedding_parameters: Numbers
    """(n,) number of parameters of embedding and output head."""
    position_parameters: Numbers
    """(n,) number of parameters of learned positions, or of u and v if all blocks share them."""
    decoder_parameters: Numbers
    """(n,) number of parameters of blocks and final norm."""
    output_weights: Numbers
    """(n,) weights of the output layer that one position is multiplied with: tables, projections and cluster rows."""
    embedding_weights: Numbers
    """(n,) weights of the embedding that one token is multiplied with: projections of all clusters."""
    source_embedding_weights: Numbers
    """(n,) weights of the encoder's embedding that one token is multiplied with."""
    pooled: Flags
    """(n,) whether the output reads only the first position of each sequence."""
    causal: Flags
    """(n,) whether tokens see only earlier tokens and themselves."""
    kind: NDArray[np.int8]
    """(n, L) index into `BLOCK_KINDS`; -1 for no block."""
    heads: Numbers
    """(n, L) n_head of attention and SRU++, else 0."""
    width: Numbers
    """(n, L) width of each block: n_head·d_head of attention, d_inner of feed-forward, d_proj (or 0) of SRU, d_attn of
    SRU++, kernel of a short convolution; else 0.
    """
    self_attention: Flags
    """(n, L) whether an attention or SRU++ block attends to its own sequence."""
    parameters: Numbers
    """(n, L) number of decoder parameters of each block."""
    linear_weights: Numbers
    """(n, L) weights of the linear layers of each block, without projections of distances."""
    kv_width: Numbers
    """(n, L) n_kv_head·d_head, the width of a token's keys and of its values; 0 without attention."""
    window: Numbers
    """(n, L) maximum number of keys that a token of an attention block sees; 0 for all keys."""
    rotary_dim: Numbers
    """(n, L) number of features of a token's queries and keys that rotary positions rotate."""
    gated: Flags
    """(n, L) whether the block is a gated feed-forward block."""
    qk_norm: Flags
    """(n, L) whether an attention block has norms of queries and keys."""
    biased: Flags
    """(n, L) whether linear layers of the block have biases."""
    relative: Flags
    """(n, L) whether an attention block has a projection of relative distances."""
    max_relative_distance: Numbers
    """(n, L) distance to which larger distances are clamped; 0 for no clamping."""
    cross_attention: Flags
    """(n, L) whether the block attends to the encoder's output."""
    is_encoder: Flags
    """(n, L) whether the block belongs to the encoder."""
    pre_and_post_norm: Flags
    """(n, L) whether the block has a norm of its input and another of its update."""

    @classmethod
    def of(cls, architectures: Sequence[Architecture], dtype: Any = np.int64) -> Shapes:
        """Converts architectures to arrays with one row each, in their order; numbers have the type `dtype`."""
        rows: list[Row] = [{"kind": -1}]
        orders = []
        for architecture in architectures:
            different, order = _block_rows(architecture)
            orders.append([len(rows) + number for number in order])
            rows += different
        lengths = np.array([len(order) for order in orders], dtype=np.int64)
        row_of = np.zeros((len(orders), lengths.max(initial=0)), dtype=np.int64)
        row_of[np.arange(row_of.shape[1]) < lengths[:, None]] = [number for order in orders for number in order]
        columns = _columns(rows, ("d_model", *BLOCK_COLUMNS), dtype)
        layers = _linear_layers(columns["d_model"], **{name: columns[name] for name in _OF_LAYERS})
        columns["linear_weights"] = np.asarray(sum(out * inputs for out, inputs in layers))
        blocks = {name: columns[name][row_of] for name in BLOCK_COLUMNS}
        outer = _columns([_embedding_head_row(architecture) for architecture in architectures], _MODEL_COLUMNS, dtype)
        outer["decoder_parameters"] += blocks["parameters"].sum(axis=1)
        return cls(**outer, **blocks)

    @classmethod
    def concatenate(cls, parts: Sequence[Shapes]) -> Shapes:
        """Joins the rows of all `parts`, in their order."""
        longest = max((part.kind.shape[1] for part in parts), default=0)
        padded = [part.padded(longest) for part in parts] or [cls.of([])]
        return cls(**{name: np.concatenate([getattr(part, name) for part in padded]) for name in _NAMES})

    def __len__(self) -> int:
        return len(self.d_model)

    @property
    def attends(self) -> Flags:
        """Whether each block attends, (n, L): attention blocks, and SRU++ blocks whose `attends` is not none."""
        return self.self_attention | self.cross_attention

    @property
    def total_parameters(self) -> Numbers:
        """Number of parameters of each model, (n,)."""
        return self.decoder_parameters + self.position_parameters + self.embedding_parameters

    @property
    def linear_layers(self) -> LinearLayers:
        """Weight shapes (out, in) of the linear layers in every block."""
        return _linear_layers(self.d_model[:, None], **{name: getattr(self, name) for name in _OF_LAYERS})

    def take(self, indices: NDArray[Any] | Sequence[int] | slice) -> Shapes:
        """Selects rows (architectures) by index, slice or mask, in the given order; the number of blocks L stays."""
        return Shapes(**{name: getattr(self, name)[indices] for name in _NAMES})

    def astype(self, dtype: Any) -> Shapes:
        """Converts the numbers to another type."""
        return replace(self, **{name: getattr(self, name).astype(dtype) for name in _NUMBERS})

    def padded(self, longest: int) -> Shapes:
        """Pads the rows to `longest` blocks."""
        missing = longest - self.kind.shape[1]
        if missing <= 0:
            return self
        wide = {
            name: np.pad(getattr(self, name), ((0, 0), (0, missing)), constant_values=-1 if name == "kind" else 0)
            for name in BLOCK_COLUMNS
        }
        return replace(self, **wide)


_NAMES = tuple(field.name for field in fields(Shapes))
BLOCK_COLUMNS = _NAMES[_NAMES.index("kind") :]
"""Names of the fields that have a number for each block."""
DERIVED = ("parameters", "linear_weights")
"""Names of the fields that follow from other fields."""
_MODEL_COLUMNS = _NAMES[: _NAMES.index("kind")]
_TYPES = {"kind": np.int8} | {field.name: np.bool_ for field in fields(Shapes) if field.type == "Flags"}
_NUMBERS = tuple(name for name in _NAMES if name not in _TYPES)


def _columns(rows: Sequence[Row], names: Sequence[str], dtype: Any) -> dict[str, Any]:
    """Field name → array with this field's value in each row; 0 where a row has none."""
    table = np.array([[row.get(name, 0) for name in names] for row in rows], dtype=dtype).reshape(len(rows), len(names))
    return {name: column.astype(_TYPES.get(name, dtype)) for name, column in zip(names, table.T, strict=True)}


_OF_LAYERS = ("kind", "width", "kv_width", "gated", "self_attention", "cross_attention")


def _linear_layers(
    d: Numbers,
    kind: NDArray[np.int8],
    width: Numbers,
    kv_width: Numbers,
    gated: Flags,
    self_attention: Flags,
    cross_attention: Flags,
) -> LinearLayers:
    """Weight shapes (out, in) of the linear layers in every block; layers with the same input count as one layer.

    Attention has queries, keys and values (A + 2·K, D) and the output projection (D, A); feed-forward (f, D), gated
    (2·f, D), and (D, f); SRU (3·D, D), or (p, D) and (3·D, p); SRU++ (p, D), (3·D, p) and with attention (2·p, p); a
    short convolution (3·D, D) and (D, D). Letters as in `core.architectures.parameters`.
    """
    attention, srupp, convolution = kind == ATTENTION, kind == SRUPP, kind == SHORT_CONV
    unprojected = (kind == SRU) & (width == 0)
    through = srupp | (kind == SRU) & (width > 0)
    to_and_from = attention | (kind == FEED_FORWARD)
    first = (1 + gated) * width * (to_and_from | through)
    first = first + 2 * kv_width * attention + 3 * d * (convolution | unprojected)
    second = d * (to_and_from | convolution) + 3 * d * through
    third = 2 * width * (srupp & (self_attention | cross_attention))
    return (first, d), (second, np.where(convolution, d, width)), (third, width)


def _block_rows(architecture: Architecture) -> tuple[list[Row], list[int]]:
    """Returns a pair: the distinct blocks, and the number in that list of each block, encoder's blocks first."""
    rows, order = ([], []) if architecture.source is None else _block_rows(architecture.source)
    rows, first = [{**row, "is_encoder": True} for row in rows], len(rows)
    numbers: dict[Block, int] = {}
    order = order + [numbers.setdefault(block, first + len(numbers)) for block in architecture.blocks]
    return rows + [_block_row(block, architecture) for block in numbers], order


def _block_row(block: Block, architecture: Architecture) -> Row:
    both_norms = architecture.norm == "both"
    row: Row = {
        "d_model": architecture.d_model,
        "kind": BLOCK_KINDS.index(block.kind),
        "parameters": sum(spec.size for spec in block_parameters(block, architecture)),
    }
    if isinstance(block, Attention):
        positions, d_head, rotary = architecture.positions, architecture.d_head(block), architecture.rotary(block)
        return row | {
            "heads": block.n_head,
            "width": block.n_head * d_head,
            "self_attention": block.attends != "source",
            "cross_attention": block.attends != "self",
            "kv_width": block.kv_heads * d_head,
            "window": block.window or 0,
            "rotary_dim": 0 if rotary is None else (block.n_head + block.kv_heads) * rotary.width(d_head),
            "qk_norm": bool(block.qk_norm),
            "biased": architecture.attention_bias(block) != "none",
            "relative": isinstance(positions, RelativePositions),
            "max_relative_distance": (positions.clamp or 0) if isinstance(positions, RelativePositions) else 0,
            "pre_and_post_norm": both_norms,
        }
    if isinstance(block, FeedForward):
        return row | {
            "width": block.d_inner,
            "gated": block.gated,
            "biased": block.bias,
            "pre_and_post_norm": both_norms,
        }
    if isinstance(block, ShortConv):
        return row | {"width": block.kernel, "biased": block.bias, "pre_and_post_norm": both_norms}
    if isinstance(block, Sru):
        return row | {"width": block.d_proj or 0}
    if isinstance(block, Srupp):
        return row | {
            "heads": block.n_head,
            "width": block.d_attn,
            "self_attention": block.attends in ("self", "both"),
            "cross_attention": block.attends in ("source", "both"),
            "kv_width": 0 if block.attends == "none" else block.d_attn,
        }
    return row


def _embedding_head_row(architecture: Architecture) -> Row:
    """Values of one model's embedding and output layer; `decoder_parameters` counts the final norms."""
    encoder = {} if architecture.source is None else _embedding_head_row(architecture.source)
    sizes = {"embedding": 0, "position": 0, "decoder": 0}
    for spec in (*embedding_parameters(architecture), *head_parameters(architecture)):
        sizes[spec.group] += spec.size
    projections = architecture.d_model * sum(table.width for table in architecture.tables) * architecture.projected
    return {
        "d_model": architecture.d_model,
        "d_embed": architecture.d_embed,
        "div": architecture.embedding.div,
        "vocab_size": architecture.embedding.vocab_size,
        "embedding_parameters": sizes["embedding"] + encoder.get("embedding_parameters", 0),
        "position_parameters": sizes["position"] + encoder.get("position_parameters", 0),
        "decoder_parameters": sizes["decoder"] + encoder.get("decoder_parameters", 0),
        "output_weights": _output_weights(architecture, projections),
        "embedding_weights": projections,
        "source_embedding_weights": encoder.get("embedding_weights", 0),
        "pooled": architecture.output.kind in ("pooled", "classes"),
        "causal": architecture.causal,
    }


def _output_weights(architecture: Architecture, projections: int) -> int:
    """Number of weights multiplied to score one position, or one sequence if the output is pooled."""
    d, output, tails = architecture.d_model, architecture.output, len(architecture.embedding.cutoffs)
    if output.kind == "spans":
        return 2 * d
    if output.kind in ("pooled", "classes"):
        return d * d + d * (output.classes or 0)
    if not architecture.scores_tokens:
        return 0
    total = sum(table.size * table.width for table in architecture.tables) + tails * architecture.d_embed + projections
    if output.kind == "masked_tokens":
        total += d * d
    # One table for all clusters needs two projections if the head has its own and the tails use the embedding's.
    own_head = output.tied and output.tied_projections == "tails"
    if projections and own_head and architecture.embedding.div == 1 and tails:
        total += d * architecture.d_embed
    return total
