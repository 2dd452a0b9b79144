"""The matrix products of one pass, as both builders run them: closed formulas over `Shapes`, by kind of product.

Multiply-accumulates are counted; `core.architectures.cost.costs` counts two FLOPs for each,
`core.measurement.prediction.features` predicts latency from those of each kind. By what they belong to, for n new
tokens of each of B sequences after M earlier ones, and a source of S tokens:

- Linear layers at the B·n new tokens. Other tokens that an attention sees are projected to keys and values: a source of
  S tokens in forward and prefill, a segment memory of M in forward. Under a cache (decode) nothing is projected twice.
- Attention's scores and weighted values, for n queries and all keys: M + n of its own (with a window of w at most w - 1
  of M), S of the source, or both. Causal masks hide part of it, but ordinary kernels compute it all the same.
- Relative positions (Dai et al. 2019, §3.3): a map of each distance, 0 to M + n or to the clamp, once for the whole
  batch, and a product with every query for M + n + 1 distances. In decode the few queries go through that map instead
  of the many distances, and then meet 0 to M + n, or to the clamp. (PyTorch goes by the queries, not by the mode:
  it does so for fewer than d_head in the batch.)
- The embedding's projections, for every cluster at every new token (each cluster looks all tokens up, masked).
- The output layer with its projections and cluster rows, at the positions that `logits` names: all, the last one of
  each sequence, or none. Pooled outputs read the first position, whichever are named.
- All of the source (its states, no output) in forward and prefill.

Left out: gathers, biases and other additions, norms, activations, softmaxes, masks, rotations, the elementwise
recurrence of SRU and the elementwise convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edgefront.core.architectures.cost.columns import Pass
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

# How much models that generate keep of the tokens before: closed formulas over `Shapes`.
#
# Numbers in a cache after M tokens of each of B sequences, and a source of S:
#
# - attention: 2·B·K·n_kv_head·d_head, of K = M tokens, S of the source, or both; with a window of w at most w - 1 of M.
# - SRU++: 2·B·K·d_attn where it attends, and as SRU a cell of B·d_model.
# - short convolution: B·(kernel - 1)·d_model.
#
# The number of tokens seen, which some positions need, is one number for all and left out.


class Kept(NamedTuple):
    """(n,) numbers in a cache."""

    keys_and_values: Numbers
    cells: Numbers
    """Numbers in the states of recurrences and convolutions."""


def kept(shapes: Shapes, batch: int, tokens: int, source: int = 0) -> Kept:
    """What all blocks keep after so many tokens; 0 for a model that sees all tokens at once."""
    keeps = shapes.causal[:, None] & ~shapes.of_source
    keys = shapes.own_keys * earlier(shapes, tokens) + shapes.source_keys * source
    recurrent, convolution = (shapes.kind == SRU) | (shapes.kind == SRUPP), shapes.kind == SHORT_CONV
    cells = recurrent + convolution * (shapes.width - 1)
    return Kept(
        2 * batch * (keys * shapes.kv_width * keeps).sum(axis=1),
        batch * shapes.d_model * (cells * keeps).sum(axis=1),
    )


def earlier(shapes: Shapes, tokens: int) -> Numbers | int:
    """How many of so many tokens before it a token sees, (n, L) or one number for all: those that a window keeps."""
    if not shapes.window.any():
        return tokens
    return np.where(shapes.window > 0, np.minimum(shapes.window - 1, tokens), tokens)


def kept_bytes(kept: Kept, width: int, kv_cache: KvCache | None) -> Numbers:
    """(n,) bytes of a cache whose numbers have `width` bytes each; of llama.cpp's with keys and values in the format
    `kv_cache`, rounded up, cells are float32.
    """
    if kv_cache is None:
        return width * (kept.keys_and_values + kept.cells)
    each = KV_CACHE_BYTES[kv_cache]
    return np.asarray(-(-kept.keys_and_values * each.numerator // each.denominator) + 4 * kept.cells)


def products(shapes: Shapes, run: Pass) -> Numbers:
    """(n,) multiply-accumulates of all matrix products of this pass."""
    (_, embedding), (_, output) = products_of_ends(shapes, run)
    total = embedding + output
    for _, values in products_of_blocks(run_blocks(shapes, run), run):
        total = total + values.sum(axis=1)
    return total


def run_blocks(shapes: Shapes, run: Pass) -> Shapes:
    """The shapes without the blocks that this pass leaves out: in decode those of the source, which has been run."""
    if run.mode != "decode" or not shapes.of_source.any():
        return shapes
    return replace(shapes, kind=np.where(shapes.of_source, np.int8(-1), shapes.kind))


@dataclass(frozen=True)
class Tokens:
    """Tokens of each sequence that blocks work on: (n, L) each, or one number for all blocks that attend."""

    new: Numbers | int
    """Tokens that go through the block."""
    own: Numbers | int
    """New tokens that the block attends to: none where it attends to the source alone."""
    keys: Numbers | int
    """Keys that each query meets."""
    projected: Numbers | int
    """Tokens of which keys and values are computed."""

    @classmethod
    def of(cls, shapes: Shapes, run: Pass) -> Tokens:
        """Those of `run_blocks`."""
        new, memory = run.tokens, earlier(shapes, run.memory)
        if not (shapes.of_source.any() or shapes.source_keys.any()):
            return cls(new, new, memory + new, new if run.mode == "decode" else memory + new)
        of_block = np.where(shapes.of_source, run.source, new)
        own = shapes.own_keys * of_block
        all_own = own + shapes.own_keys * np.where(shapes.of_source, 0, memory)
        of_source = shapes.source_keys * run.source
        return cls(of_block, own, all_own + of_source, own if run.mode == "decode" else all_own + of_source)


def products_of_ends(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Numbers]]:
    """Name and (n,) multiply-accumulates of the embedding, that of the source included, and of the output layer."""
    source = 0 if run.mode == "decode" else run.batch * run.source
    yield (
        "embedding_products",
        run.batch * run.tokens * shapes.embedding_weights + source * shapes.source_embedding_weights,
    )
    pooled = 0 if run.logits == "none" else run.batch
    yield "output_products", np.where(shapes.pooled, pooled, run.positions) * shapes.output_weights


def products_of_blocks(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Numbers]]:
    """Name and (n, L) multiply-accumulates of each kind of product in `run_blocks`; kinds of blocks that no row has are
    left out.
    """
    tokens = Tokens.of(shapes, run)
    linear = run.batch * tokens.new * shapes.linear_weights
    attention, srupp = shapes.kind == ATTENTION, shapes.kind == SRUPP
    if attention.any():
        yield from _of_attention(shapes, run, tokens, attention, linear)
    for name, kind in _LINEAR:
        these = shapes.kind == kind
        if these.any():
            yield name, linear * these
    if srupp.any():
        yield from _of_srupp(shapes, run, tokens, srupp, linear)


_LINEAR = (("feed_forward_products", FEED_FORWARD), ("sru_products", SRU), ("convolution_products", SHORT_CONV))
"""Blocks whose products are those of their linear layers at the new tokens."""


def _of_attention(
    shapes: Shapes, run: Pass, tokens: Tokens, attention: Flags, linear: Numbers
) -> Iterator[tuple[str, Numbers]]:
    d, width = shapes.d_model[:, None], shapes.width * attention
    maps = linear * attention
    further = tokens.projected - tokens.new
    if np.any(further):
        # Of the keys' and values' part of the first layer all tokens that are projected count, not only the new ones.
        maps = maps + run.batch * further * 2 * d * (shapes.kv_width * attention)
    scores = 2 * run.batch * tokens.new * tokens.keys * width
    # Without shared keys their number and the products with them grow alike, so that only one of the two is counted.
    grouped = attention & (shapes.kv_width < shapes.width)
    if grouped.any():
        yield "grouped_scores", scores * grouped
        scores = scores * ~grouped
    relative = shapes.relative & attention
    if relative.any():
        reach = np.where(shapes.clamp > 0, np.minimum(tokens.keys, shapes.clamp), tokens.keys)
        if run.mode == "decode":
            of_queries = width * d + shapes.heads * d * (reach + 1)
            maps = maps + run.batch * tokens.new * of_queries * relative
        else:
            maps = maps + (reach + 1) * d * width * relative
            scores = scores + run.batch * tokens.new * (tokens.keys + 1) * width * relative
    yield "attention_products", maps
    yield "attention_scores", scores


def _of_srupp(
    shapes: Shapes, run: Pass, tokens: Tokens, srupp: Flags, linear: Numbers
) -> Iterator[tuple[str, Numbers]]:
    attends, width = srupp & shapes.attends, shapes.width
    # The new tokens' own keys come from their queries; those of other inputs go through the first layer first.
    others = (tokens.projected - tokens.own) * shapes.d_model[:, None]
    further = (others + (tokens.projected - tokens.new) * 2 * width) * width
    yield "srupp_products", linear * srupp + run.batch * further * attends
    yield "srupp_scores", 2 * run.batch * tokens.new * tokens.keys * width * attends
