"""Matrix products and cache size of one forward pass, as in the torch and ONNX models: closed formulas over `Shapes`.

The formulas count multiply-accumulates (MACs). `core.architectures.cost.costs` counts two FLOPs for each MAC, and
`core.measurement.prediction.features` predicts latency from the MACs of each kind. For n new tokens of each of B
sequences after M past tokens, and an encoder over S tokens:

- Linear layers at the B·n new tokens. Keys and values are also projected for other tokens: the encoder's S in forward
  and prefill, a segment memory of M in forward. With a cache (decode) each token is projected only once.
- Attention's scores and weighted values, for n queries and all keys: M + n of its own sequence (with a window of w at
  most w - 1 of M), S of the encoder, or both. A causal mask hides some keys, but ordinary kernels compute all of them.
- Relative positions (Dai et al. 2019, §3.3): a projection of each distance, 0 to M + n or to the maximum, once for the
  whole batch, and a product with every query for M + n + 1 distances. In decode the few queries are projected instead
  of the many distances, and then multiplied with 0 to M + n, or to the maximum. (PyTorch decides by the number of
  queries instead of the mode, and projects queries if the batch has fewer than d_head.)
- The embedding's projections, for every cluster at every new token (each cluster looks up all tokens, masked).
- The output layer with its projections and cluster rows, at the positions that `logits` selects: all, the final one of
  each sequence, or none. Pooled outputs always read the first position.
- The whole encoder (its hidden states, no output) in forward and prefill.

Not counted: gathers, biases and other additions, norms, activations, softmaxes, masks, rotations, the elementwise
recurrence of SRU and the elementwise convolution.

Numbers in a cache of T tokens of each of B sequences:

- attention: 2·B·K·n_kv_head·d_head, for K = T tokens, S of the encoder, or both; with a window of w at most w - 1 of T.
- SRU++: 2·B·K·d_attn where it attends, and as SRU a cell of B·d_model.
- short convolution: B·(kernel - 1)·d_model.

The number of tokens seen, which some positions need, is a single number and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edgefront.core.architectures.cost.passes import Pass
from edgefront.core.architectures.cost.shapes import (
    ATTENTION,
    FEED_FORWARD,
    SHORT_CONV,
    SRU,
    SRUPP,
    Flags,
    Numbers,
    Shapes,
)
from edgefront.core.common.number_formats import KV_CACHE_BYTES, KvCache


class CacheSize(NamedTuple):
    """How many numbers the cache of each of n models contains; every field is an array (n,)."""

    keys_and_values: Numbers
    cells: Numbers
    """How many numbers the cells of recurrences and the cached inputs of convolutions have."""


def cache_size(shapes: Shapes, batch: int, tokens: int, encoder_tokens: int = 0) -> CacheSize:
    """Size of each model's cache for all blocks after `tokens` tokens; 0 for a model that is not causal."""
    cached = shapes.causal[:, None] & ~shapes.is_encoder
    keys = shapes.self_attention * past_tokens(shapes, tokens) + shapes.cross_attention * encoder_tokens
    recurrent, convolution = (shapes.kind == SRU) | (shapes.kind == SRUPP), shapes.kind == SHORT_CONV
    cells = recurrent + convolution * (shapes.width - 1)
    return CacheSize(
        2 * batch * (keys * shapes.kv_width * cached).sum(axis=1),
        batch * shapes.d_model * (cells * cached).sum(axis=1),
    )


def past_tokens(shapes: Shapes, tokens: int) -> Numbers | int:
    """How many of `tokens` past tokens a block's window includes: (models, blocks), or one number for all blocks."""
    if not shapes.window.any():
        return tokens
    return np.where(shapes.window > 0, np.minimum(shapes.window - 1, tokens), tokens)


def cache_bytes(size: CacheSize, width: int, kv_cache: KvCache | None) -> Numbers:
    """Bytes of each model's cache, (n,), with `width` bytes per number.

    With `kv_cache` the cache is llama.cpp's: keys and values in this format, rounded up, and cells in float32.
    """
    if kv_cache is None:
        return width * (size.keys_and_values + size.cells)
    each = KV_CACHE_BYTES[kv_cache]
    return np.asarray(-(-size.keys_and_values * each.numerator // each.denominator) + 4 * size.cells)


def macs(shapes: Shapes, run: Pass) -> Numbers:
    """Multiply-accumulates of all matrix products of this forward pass, (n,) for n models."""
    (_, embedding), (_, output) = embedding_and_output_macs(shapes, run)
    total = embedding + output
    for _, values in block_macs(executed_blocks(shapes, run), run):
        total = total + values.sum(axis=1)
    return total


def executed_blocks(shapes: Shapes, run: Pass) -> Shapes:
    """Shapes of the blocks that this forward pass runs: in decode without the encoder's blocks, otherwise all."""
    if run.mode != "decode" or not shapes.is_encoder.any():
        return shapes
    return replace(shapes, kind=np.where(shapes.is_encoder, np.int8(-1), shapes.kind))


@dataclass(frozen=True)
class Tokens:
    """Tokens per sequence that each block processes: arrays (models, blocks), or one number for all blocks."""

    new: Numbers | int
    """Number of tokens that the block computes."""
    attended: Numbers | int
    """Number of new tokens that the block attends to; 0 if it attends only to the encoder."""
    keys: Numbers | int
    """Number of keys with which each query is multiplied."""
    projected: Numbers | int
    """Number of tokens whose keys and values are computed."""

    @classmethod
    def of(cls, shapes: Shapes, run: Pass) -> Tokens:
        """Numbers of tokens per sequence in this forward pass, for the blocks of `executed_blocks`."""
        new, memory, decode = run.tokens, past_tokens(shapes, run.memory), run.mode == "decode"
        if not (shapes.is_encoder.any() or shapes.cross_attention.any()):
            return cls(new, new, memory + new, new if decode else memory + new)
        of_block = np.where(shapes.is_encoder, run.encoder_tokens, new)
        attended = shapes.self_attention * of_block
        keys = attended + shapes.self_attention * np.where(shapes.is_encoder, 0, memory)
        keys = keys + shapes.cross_attention * run.encoder_tokens
        return cls(of_block, attended, keys, attended if decode else keys)


def embedding_and_output_macs(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Numbers]]:
    """Yields the embedding (with the encoder's) and the output layer: name and multiply-accumulates (n,) of each."""
    encoder = 0 if run.mode == "decode" else run.batch * run.encoder_tokens
    embedding = run.batch * run.tokens * shapes.embedding_weights + encoder * shapes.source_embedding_weights
    yield "embedding_products", embedding
    pooled = 0 if run.logits == "none" else run.batch
    yield "output_products", np.where(shapes.pooled, pooled, run.positions) * shapes.output_weights


def block_macs(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Numbers]]:
    """Yields name and multiply-accumulates (models, blocks) of each kind of matrix product in the blocks."""
    tokens = Tokens.of(shapes, run)
    linear = run.batch * tokens.new * shapes.linear_weights
    attention, srupp = shapes.kind == ATTENTION, shapes.kind == SRUPP
    if attention.any():
        yield from _attention_macs(shapes, run, tokens, attention, linear)
    for name, kind in _LINEAR:
        these = shapes.kind == kind
        if these.any():
            yield name, linear * these
    if srupp.any():
        yield from _srupp_macs(shapes, run, tokens, srupp, linear)


_LINEAR = (("feed_forward_products", FEED_FORWARD), ("sru_products", SRU), ("convolution_products", SHORT_CONV))
"""Kinds of blocks whose only matrix products are their linear layers at the new tokens."""


def _attention_macs(
    shapes: Shapes, run: Pass, tokens: Tokens, attention: Flags, linear: Numbers
) -> Iterator[tuple[str, Numbers]]:
    d, width = shapes.d_model[:, None], shapes.width * attention
    projections = linear * attention
    others = tokens.projected - tokens.new
    if np.any(others):
        projections = projections + run.batch * others * 2 * d * (shapes.kv_width * attention)
    scores = 2 * run.batch * tokens.new * tokens.keys * width
    # Without grouped queries the number of keys and the products with keys grow alike, so that only one is counted.
    grouped = attention & (shapes.kv_width < shapes.width)
    if grouped.any():
        yield "grouped_scores", scores * grouped
        scores = scores * ~grouped
    relative = shapes.relative & attention
    if relative.any():
        maximum = shapes.max_relative_distance
        distances = np.where(maximum > 0, np.minimum(tokens.keys, maximum), tokens.keys) + 1
        if run.mode == "decode":
            of_queries = width * d + shapes.heads * d * distances
            projections = projections + run.batch * tokens.new * of_queries * relative
        else:
            projections = projections + distances * d * width * relative
            scores = scores + run.batch * tokens.new * (tokens.keys + 1) * width * relative
    yield "attention_products", projections
    yield "attention_scores", scores


def _srupp_macs(
    shapes: Shapes, run: Pass, tokens: Tokens, srupp: Flags, linear: Numbers
) -> Iterator[tuple[str, Numbers]]:
    attends, width = srupp & shapes.attends, shapes.width
    # Keys of the new tokens come from their queries; keys of other tokens need the first projection too.
    others = (tokens.projected - tokens.attended) * shapes.d_model[:, None]
    further = (others + (tokens.projected - tokens.new) * 2 * width) * width
    yield "srupp_products", linear * srupp + run.batch * further * attends
    yield "srupp_scores", 2 * run.batch * tokens.new * tokens.keys * width * attends
