"""The matrix products of one pass, as both builders run them: closed formulas over the description.

Multiply-accumulates are counted; `core.cost.costs` counts two FLOPs for each. By what they belong to, for n new tokens
of each of B sequences after M earlier ones, and a source of S tokens:

- Linear layers at the B·n new tokens. Other tokens that an attention sees are projected to keys and values: a source of
  S tokens
  in forward and prefill, a segment memory of M in forward. Under a cache (decode) nothing is projected twice.
- Attention's scores and weighted values, for n queries and all keys: M + n of its own, S of the source, or both. Causal
  masks hide part of it, but ordinary kernels compute it all the same.
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

from dataclasses import dataclass, replace
from typing import Literal

from edgefront.core.cost.parameters import attention_width, clusters, kv_width, projected, scores_tokens, tables
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.spaces.embeddings_and_head import RelativePositions

Mode = Literal["forward", "prefill", "decode"]
Logits = Literal["all", "last", "none"]


@dataclass(frozen=True)
class Pass:
    """What is run: `batch` sequences of `tokens` new tokens each, after `memory` earlier ones.

    In forward a memory is a segment memory of layer inputs, in decode a cache of keys and values. `source` tokens
    stand on the other side of a translation model.
    """

    batch: int
    tokens: int
    memory: int = 0
    source: int = 0
    mode: Mode = "forward"
    logits: Logits = "all"


def products(architecture: Architecture, run: Pass) -> int:
    """Multiply-accumulates of all matrix products of this pass."""
    new = run.batch * run.tokens
    total = new * _embedding(architecture)
    total += sum(_block(block, architecture, run) for block in architecture.blocks)
    if run.logits != "none":
        total += _output(architecture, run.batch * (run.tokens if run.logits == "all" else 1), run.batch)
    if architecture.source is not None and run.mode != "decode":
        total += products(architecture.source, Pass(run.batch, run.source, logits="none"))
    return total


def output_weights(architecture: Architecture) -> int:
    """Weights that are multiplied for the scores of one position: multiply-accumulates of the output layer there."""
    return _output(architecture, 1, 1)


# Blocks --------------------------------------------------------------------------------------------------------------


def _block(block: Block, architecture: Architecture, run: Pass) -> int:
    d, new = architecture.d_model, run.batch * run.tokens
    if isinstance(block, Attention):
        return _attention(block, architecture, run)
    if isinstance(block, FeedForward):
        return new * (3 if block.gated else 2) * d * block.d_inner
    if isinstance(block, Sru):
        return new * (3 * d * d if block.d_proj is None else 4 * d * block.d_proj)
    if isinstance(block, Srupp):
        return _srupp(block, d, run)
    if isinstance(block, ShortConv):
        return new * 4 * d * d
    return 0


def _attention(block: Attention, architecture: Architecture, run: Pass) -> int:
    d, width = architecture.d_model, attention_width(block, architecture)
    if block.window is not None:
        run = replace(run, memory=min(run.memory, block.window - 1))
    keys = _keys(block.attends, run)
    total = 2 * run.batch * run.tokens * d * width
    total += 2 * run.batch * _projected_keys(block.attends, run) * d * kv_width(block, architecture)
    total += 2 * run.batch * run.tokens * keys * width
    positions = architecture.positions
    if isinstance(positions, RelativePositions):
        distinct = 1 + (keys if positions.clamp is None else min(keys, positions.clamp))
        if run.mode == "decode":
            total += run.batch * run.tokens * (width * d + block.n_head * d * distinct)
        else:
            total += distinct * d * width + run.batch * run.tokens * (keys + 1) * width
    return total


def _srupp(block: Srupp, d: int, run: Pass) -> int:
    new, width = run.batch * run.tokens, block.d_attn
    total = new * 4 * d * width
    if block.attends == "none":
        return total
    projected_keys = _projected_keys(block.attends, run)
    # The new tokens' own keys come from their queries; those of other inputs go through W^q first.
    others = projected_keys - (0 if block.attends == "source" else run.tokens)
    total += run.batch * (others * d * width + projected_keys * 2 * width * width)
    return total + 2 * new * _keys(block.attends, run) * width


def _keys(attends: str, run: Pass) -> int:
    """Keys that each query meets."""
    own = 0 if attends == "source" else run.memory + run.tokens
    return own + (0 if attends == "self" else run.source)


def _projected_keys(attends: str, run: Pass) -> int:
    """Inputs of each sequence that this pass makes keys and values of."""
    own = 0 if attends == "source" else run.tokens
    if run.mode == "decode":
        return own
    return own + (run.memory if attends != "source" else 0) + (run.source if attends != "self" else 0)


# Ends ----------------------------------------------------------------------------------------------------------------


def _embedding(architecture: Architecture) -> int:
    """For one token on the way in."""
    if not projected(architecture):
        return 0
    return sum(width * architecture.d_model for _, width in tables(architecture))


def _output(architecture: Architecture, rows: int, sequences: int) -> int:
    """At `rows` positions, of so many sequences."""
    d, output = architecture.d_model, architecture.output
    if output.kind == "spans":
        return rows * 2 * d
    if output.kind in ("pooled", "classes"):
        return sequences * (d * d + d * (output.classes or 0))
    if not scores_tokens(architecture):
        return 0
    transform = d * d if output.kind == "masked_tokens" else 0
    return rows * (transform + _token_scores(architecture))


def _token_scores(architecture: Architecture) -> int:
    """For one position: projections, embedding matrices, and a row for each tail."""
    d, output = architecture.d_model, architecture.output
    total = sum(size * width for size, width in clusters(architecture))
    total += len(architecture.embedding.cutoffs) * architecture.d_embed
    if not projected(architecture):
        return total
    total += sum(d * width for _, width in tables(architecture))
    # One table for all clusters needs two projections where the head has its own and tails have the embedding's.
    head_apart = output.tied and output.tied_projections == "tails"
    if head_apart and architecture.embedding.div == 1 and architecture.embedding.cutoffs:
        total += d * architecture.d_embed
    return total
