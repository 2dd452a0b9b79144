"""How many parameters an architecture has: closed formulas over its description.

D is d_model, A = n_head·d_head, K = n_kv_head·d_head (A unless queries are grouped), f = d_inner, p = d_proj or d_attn,
V the vocabulary, E = d_embed. A layer norm over w features has 2·w, an RMS norm w. By block:

- attention: 2·A·D + 2·K·D, biases of A + 2·K for "qkv" and D more for "all", and a norm over D; with qk_norm 2·d_head.
  Under relative positions, which bring a map of the distances and take the biases away, 5·A·D and the norm, and 2·A for
  u and v where they are not shared.
- feed-forward: 2·D·f, biases of f + D, and a norm over D; gated D·f more, and f of biases.
- SRU: 3·D² + 4·D, or through a projection 4·D·p + 4·D.
- SRU++: 4·D·p + 2·p + 4·D, and 2·p² + 1 with attention.
- short convolution: 4·D² + kernel·D, biases of 5·D, and a norm over D.
- identity: nothing.

Decoder parameters are the blocks' and the final norm's: the proxy of LTS (arXiv 2203.02094), Σ(4·D² + 9·D + 2·D·f + f)
+ 2·D for GPT-2 (Tables 6 and 7), Σ(5·D² + 7·D + 2·D·f + f) for Transformer-XL as LTS has it (Tables 4 and 5: u and v in
each layer, no final norm). Position parameters are the table of learned positions, or u and v where all blocks share
them. Embedding parameters are everything else: what touches tokens, on the way in and out. Of a translation model, the
source's count in the same groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.spaces.embeddings_and_head import LearnedPositions, RelativePositions


class Parameters(NamedTuple):
    """Numbers of parameters by group."""

    decoder: int
    position: int
    embedding: int

    @property
    def total(self) -> int:
        return self.decoder + self.position + self.embedding


def count(architecture: Architecture) -> Parameters:
    """Parameters of the model and of its source."""
    own = Parameters(_decoder(architecture), _positions(architecture), _embedding(architecture) + _output(architecture))
    if architecture.source is None:
        return own
    source = count(architecture.source)
    return Parameters(own.decoder + source.decoder, own.position + source.position, own.embedding + source.embedding)


class LinearMaps(NamedTuple):
    """The layers that weights "int8" and "int4" quantise: the blocks' linear layers, without biases and the projections
    of distances.
    """

    weights: int
    maps: int


def linear_maps(architecture: Architecture) -> LinearMaps:
    """The linear layers of all blocks, those of the source included."""
    shapes = list(_all_maps(architecture))
    return LinearMaps(sum(rows * width for rows, width in shapes), len(shapes))


def int4_bytes(architecture: Architecture, block_size: int) -> int:
    """Bytes of those layers in int4: for each block of a row 4 bits a weight, the last block padded, and a scale."""
    blocks = sum(rows * -(-width // block_size) for rows, width in _all_maps(architecture))
    return blocks * (block_size // 2 + 4)


def _all_maps(architecture: Architecture) -> Iterator[tuple[int, int]]:
    """(out, in) of the linear layers of all blocks, those of the source included."""
    for block in architecture.blocks:
        yield from _maps(block, architecture)
    if architecture.source is not None:
        yield from _all_maps(architecture.source)


def attention_width(block: Attention, architecture: Architecture) -> int:
    """A = n_head·d_head: width of the queries, and of the keys and the values, of all heads together."""
    return block.n_head * architecture.d_head(block)


def kv_width(block: Attention, architecture: Architecture) -> int:
    """K = n_kv_head·d_head: width of the keys, and of the values, of all heads together."""
    return block.kv_heads * architecture.d_head(block)


def norm_parameters(architecture: Architecture, width: int) -> int:
    """Of the architecture's kind of norm over so many features."""
    return width if architecture.norm_kind == "rms" else 2 * width


def clusters(architecture: Architecture) -> tuple[tuple[int, int], ...]:
    """(tokens, embedding width) of each cluster of the vocabulary; one without cut-offs."""
    embedding = architecture.embedding
    edges = pairwise((0, *embedding.cutoffs, embedding.vocab_size))
    return tuple((stop - start, architecture.d_embed // embedding.div**i) for i, (start, stop) in enumerate(edges))


def tables(architecture: Architecture) -> tuple[tuple[int, int], ...]:
    """(tokens, width) of each embedding matrix: one per cluster with div > 1, else one in total."""
    if architecture.embedding.div == 1:
        return ((architecture.embedding.vocab_size, architecture.d_embed),)
    return clusters(architecture)


def projected(architecture: Architecture) -> bool:
    """Whether there are projections between the embedding matrices and d_model."""
    return architecture.embedding.div > 1 or architecture.d_embed != architecture.d_model


def scores_tokens(architecture: Architecture) -> bool:
    """Whether the output is over the vocabulary."""
    return architecture.output.kind in ("tokens", "masked_tokens")


# By group ------------------------------------------------------------------------------------------------------------


def _decoder(architecture: Architecture) -> int:
    final_norm = norm_parameters(architecture, architecture.d_model) if architecture.has_final_norm else 0
    return sum(block_parameters(block, architecture) for block in architecture.blocks) + final_norm


def _positions(architecture: Architecture) -> int:
    positions = architecture.positions
    if isinstance(positions, LearnedPositions):
        return (positions.length + positions.offset) * architecture.d_model
    if isinstance(positions, RelativePositions) and positions.shared:
        return next((2 * attention_width(b, architecture) for b in architecture.blocks if isinstance(b, Attention)), 0)
    return 0


def _embedding(architecture: Architecture) -> int:
    d = architecture.d_model
    total = sum(size * width for size, width in tables(architecture)) + architecture.embedding.segments * d
    if projected(architecture):
        total += sum(width * d for _, width in tables(architecture))
    return total + (norm_parameters(architecture, d) if architecture.embedding.norm else 0)


def _output(architecture: Architecture) -> int:
    """What the output layer has of its own."""
    d, output = architecture.d_model, architecture.output
    total = 0
    if output.kind == "masked_tokens":
        total += d * d + d + norm_parameters(architecture, d)
    if output.kind in ("pooled", "classes"):
        total += d * d + d
    if output.classes is not None:
        total += d * output.classes + output.classes
    if output.kind == "spans":
        total += 2 * d + 2
    if not scores_tokens(architecture):
        return total
    if not output.tied:
        total += sum(size * width for size, width in tables(architecture))
    if projected(architecture):
        own = {"tails": 1, "all": 0, "none": len(tables(architecture))}[
            "none" if not output.tied else output.tied_projections
        ]
        total += sum(width * d for _, width in tables(architecture)[:own])
    if architecture.output_bias:
        total += architecture.embedding.vocab_size
    tails = len(architecture.embedding.cutoffs)
    return total + tails * architecture.d_embed + tails


# By block ------------------------------------------------------------------------------------------------------------


def block_parameters(block: Block, architecture: Architecture) -> int:
    """All parameters of a block: its linear layers, and its norm, biases and recurrence."""
    d, maps = architecture.d_model, sum(rows * width for rows, width in _maps(block, architecture))
    norm = norm_parameters(architecture, d)
    if isinstance(block, Attention):
        return maps + norm + _around_maps(block, architecture)
    if isinstance(block, FeedForward):
        return maps + norm + (block.d_inner * (2 if block.gated else 1) + d if block.bias else 0)
    if isinstance(block, Sru):
        return maps + 4 * d
    if isinstance(block, Srupp):
        return maps + 2 * block.d_attn + 4 * d + (0 if block.attends == "none" else 1)
    if isinstance(block, ShortConv):
        return maps + norm + block.kernel * d + (5 * d if block.bias else 0)
    return 0


def _around_maps(block: Attention, architecture: Architecture) -> int:
    """What an attention block has beside its linear layers and its norm."""
    d, width, positions = architecture.d_model, attention_width(block, architecture), architecture.positions
    total = 2 * architecture.d_head(block) if block.qk_norm else 0
    if isinstance(positions, RelativePositions):
        return total + width * d + (0 if positions.shared else 2 * width)
    qkv = width + 2 * kv_width(block, architecture)
    return total + {"none": 0, "qkv": qkv, "all": qkv + d}[architecture.attention_bias(block)]


def _maps(block: Block, architecture: Architecture) -> tuple[tuple[int, int], ...]:
    """(out, in) of a block's linear layers; those of the same inputs are one."""
    d = architecture.d_model
    if isinstance(block, Attention):
        width = attention_width(block, architecture)
        return (width + 2 * kv_width(block, architecture), d), (d, width)
    if isinstance(block, FeedForward):
        return ((2 if block.gated else 1) * block.d_inner, d), (d, block.d_inner)
    if isinstance(block, Sru):
        return ((3 * d, d),) if block.d_proj is None else ((block.d_proj, d), (3 * d, block.d_proj))
    if isinstance(block, Srupp):
        p = block.d_attn
        return (p, d), (3 * d, p), *(() if block.attends == "none" else ((2 * p, p),))
    if isinstance(block, ShortConv):
        return (3 * d, d), (d, d)
    return ()
