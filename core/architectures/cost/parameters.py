"""How many parameters architectures have, and the bytes of their weights: closed formulas over `Shapes`.

D is d_model, A = n_head·d_head, K = n_kv_head·d_head (A unless queries are grouped), f = d_inner, p = d_proj or d_attn,
V the vocabulary, E = d_embed. A layer norm over w features has 2·w, an RMS norm w. By block:

- attention: 2·A·D + 2·K·D, biases of A + 2·K for "qkv" and D more for "all", and a norm over D; with qk_norm 2·d_head,
  or A + K where it is "whole".
  Under relative positions, which bring a map of the distances and take the biases away, 5·A·D and the norm, and 2·A for
  u and v where they are not shared.
- feed-forward: 2·D·f, biases of f + D, and a norm over D unless it shares the attention's; gated D·f more, and f of
  biases. With norm "both" these two and short convolutions have another norm over D.
- SRU: 3·D² + 4·D, or through a projection 4·D·p + 4·D.
- SRU++: 4·D·p + 2·p + 4·D, and 2·p² + 1 with attention.
- short convolution: 4·D² + kernel·D, biases of 5·D, and a norm over D.
- identity: nothing.

Products of two widths are the weights of linear layers (`Shapes.linear_layers`), all others
`core.architectures.cost.columns` counts.

Decoder parameters are the blocks' and the final norm's: the proxy of LTS (arXiv 2203.02094), Σ(4·D² + 9·D + 2·D·f + f)
+ 2·D for GPT-2 (Tables 6 and 7), Σ(5·D² + 7·D + 2·D·f + f) for Transformer-XL as LTS has it (Tables 4 and 5: u and v in
each layer, no final norm). Position parameters are the table of learned positions, or u and v where all blocks share
them. Embedding parameters are everything else: what touches tokens, on the way in and out. Of a translation model, the
source's count in the same groups.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, SHORT_CONV, Flags, Numbers, Shapes
from edgefront.core.architectures.gguf_mixtures import formats_of, is_raised
from edgefront.core.architectures.models.published import expressed
from edgefront.core.architectures.published import PublishedModel, PublishedView
from edgefront.core.common.number_formats import GGUF_BLOCKS, GGUF_QUANTISED, GgufBlocks, GgufQuantisation, Quantisation


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
    return count_of(Shapes.of([architecture]))


def count_of(shapes: Shapes) -> Parameters:
    """Parameters of a batch of one."""
    columns = (shapes.decoder_parameters, shapes.position_parameters, shapes.embedding_parameters)
    return Parameters(*(int(column[0]) for column in columns))


def linear_layers(shapes: Shapes) -> Numbers:
    """(n,) number of the linear layers of all blocks that have weights: each has a scale in int8."""
    return np.asarray(np.add.reduce([(out > 0).sum(axis=1) for out, _ in shapes.linear_layers]))


def weight_bytes(shapes: Shapes, width: int, quantisation: Quantisation, block_size: int) -> Numbers:
    """(n,) bytes of all weights, of `width` bytes each where they are not quantised.

    int8: of linear layers one byte for each weight, and a scale for each layer. int4: of them 4 bits a weight and a
    scale for each block of `block_size` weights of a row, the last block padded. Formats of GGUF files: those of the
    file, in which positions and all that is no matrix are float32.
    """
    if quantisation in GGUF_QUANTISED:
        return _gguf_bytes(shapes, cast(GgufQuantisation, quantisation))
    total = shapes.total_parameters
    if quantisation == "full":
        return np.asarray(width * total)
    weights: Numbers = shapes.linear_weights.sum(axis=1)
    if quantisation == "int4":
        blocks = [(out * -(-inputs // block_size)).sum(axis=1) for out, inputs in shapes.linear_layers]
        return np.asarray((total - weights) * width + np.add.reduce(blocks) * (block_size // 2 + 4))
    return np.asarray((total - weights + linear_layers(shapes)) * width + weights)


def _gguf_bytes(shapes: Shapes, numbers: GgufQuantisation) -> Numbers:
    """(n,) bytes of the tensors of GGUF files, without the zeros that stand for a part which a layer lacks."""
    d, table = shapes.d_model, shapes.vocab_size * shapes.d_model
    tied = shapes.embedding_parameters < 2 * table
    total = (shapes.total_parameters - table * np.where(tied, 1, 2) - shapes.linear_weights.sum(axis=1)) * 4
    total = total + _bytes_of_rows(table, d, formats_of(numbers, "output"))
    total = total + _bytes_of_rows(table * ~tied, d, formats_of(numbers, "other"))

    width = np.broadcast_to(d[:, None], shapes.kind.shape)
    attention, feed_forward = shapes.kind == ATTENTION, shapes.kind == FEED_FORWARD
    (out, _), (second, inner), _ = shapes.linear_layers
    # Where feed_forwards have no gate, llama.cpp has queries, keys and values as one matrix.
    fused = (feed_forward & ~shapes.gated).any(axis=1, keepdims=True)
    values = np.where(fused, out, shapes.kv_width) * attention
    down_weights = second * feed_forward
    blocks = _bytes_of_rows((out - values) * width, width, formats_of(numbers, "other"))
    blocks = blocks + _bytes_of_rows((second - down_weights) * inner, inner, formats_of(numbers, "other"))
    raised_values, raised_down = _raised(shapes, numbers)
    for raised, more_values, more_down in ((False, ~raised_values, ~raised_down), (True, raised_values, raised_down)):
        blocks = blocks + _bytes_of_rows(values * width * more_values, width, formats_of(numbers, "values", raised))
        blocks = blocks + _bytes_of_rows(down_weights * inner * more_down, inner, formats_of(numbers, "down", raised))
    return np.asarray(total + blocks.sum(axis=1))


def _raised(shapes: Shapes, numbers: GgufQuantisation) -> tuple[Flags, Flags]:
    """(n, L) whether the values of an attention, and the down projection of a feed-forward, have more bits."""
    attention, feed_forward = shapes.kind == ATTENTION, shapes.kind == FEED_FORWARD
    mixer = attention | (shapes.kind == SHORT_CONV)
    layer, lacks = np.zeros(shapes.kind.shape, np.int64), np.zeros(len(shapes), np.bool_)
    last = np.full(len(shapes), -1)
    for block in range(mixer.shape[1]):  # a feed-forward joins the mixer before it (`core.architectures.gguf`)
        last = last + (mixer[:, block] | feed_forward[:, block] & ~lacks)
        lacks = mixer[:, block] | lacks & ~feed_forward[:, block]
        layer[:, block] = last
    first = mixer & (layer == 0)
    zeros = ~first.any(axis=1, keepdims=True)  # a first layer without a mixer gets an attention of zeros
    group = (shapes.width // np.maximum(shapes.kv_width, 1) * (first & attention)).sum(axis=1, keepdims=True)
    place, places = attention.cumsum(axis=1) - 1 + zeros, attention.sum(axis=1, keepdims=True) + zeros
    values = is_raised(numbers, "values", place, places, group)
    down = is_raised(numbers, "down", layer, last[:, None] + 1, group)
    shape = shapes.kind.shape
    return np.broadcast_to(values, shape).astype(np.bool_), np.broadcast_to(down, shape).astype(np.bool_)


def _bytes_of_rows(weights: Numbers, width: Numbers, formats: tuple[GgufBlocks, ...]) -> Numbers:
    """Bytes of so many weights in rows of this width, in the first of these formats whose blocks fill a row, else
    float16.
    """
    size = weights * 2
    for count, bytes_ in (GGUF_BLOCKS[blocks] for blocks in reversed(formats)):
        size = np.where(width % count == 0, weights // count * bytes_, size)
    return size


def published_view(model: PublishedModel) -> PublishedView:
    """The facts about a published model with its digest and its parameters, or why it has none."""
    architecture = expressed(model)
    facts = dict(model)
    if not isinstance(architecture, Architecture):
        return PublishedView(**facts, not_expressible=architecture)
    return PublishedView(**facts, digest=architecture.digest, counted_parameters=count(architecture).total)
