"""Bytes of the weights of architectures, as closed formulas over `Shapes`."""

from __future__ import annotations

from typing import cast

import numpy as np

from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, SHORT_CONV, Flags, Numbers, Shapes
from edgefront.core.architectures.gguf_mixtures import formats_of, is_raised
from edgefront.core.common.number_formats import GGUF_BLOCKS, GGUF_QUANTISED, GgufBlocks, GgufQuantisation, Quantisation


def linear_layers(shapes: Shapes) -> Numbers:
    """Number of linear layers in all blocks of each model, (n,); in int8 each linear layer has one scale."""
    return np.asarray(np.add.reduce([(out > 0).sum(axis=1) for out, _ in shapes.linear_layers]))


def weight_bytes(shapes: Shapes, width: int, quantisation: Quantisation, block_size: int) -> Numbers:
    """Bytes of all weights of each model, (n,); an unquantised weight has `width` bytes.

    int8: one byte per weight of a linear layer, and one scale per layer. int4: 4 bits per weight of a linear layer, and
    one scale per block of `block_size` weights in a row, the final block padded. GGUF formats: the bytes in the file,
    where positions and vectors are float32.
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
    """Bytes of the tensors of each model's GGUF file, (n,), without zeros in place of a layer's missing block."""
    d, table = shapes.d_model, shapes.vocab_size * shapes.d_model
    tied = shapes.embedding_parameters < 2 * table
    total = (shapes.total_parameters - table * np.where(tied, 1, 2) - shapes.linear_weights.sum(axis=1)) * 4
    total = total + _bytes_of_rows(table, d, formats_of(numbers, "output"))
    total = total + _bytes_of_rows(table * ~tied, d, formats_of(numbers, "other"))

    width = np.broadcast_to(d[:, None], shapes.kind.shape)
    attention, feed_forward = shapes.kind == ATTENTION, shapes.kind == FEED_FORWARD
    (out, _), (second, inner), _ = shapes.linear_layers
    # Without gated feed-forward blocks llama.cpp has queries, keys and values as one matrix.
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
    """Whether each attention's value matrix, and each feed-forward's down projection, has more bits: (n, L) each."""
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
    index, n_attention = attention.cumsum(axis=1) - 1 + zeros, attention.sum(axis=1, keepdims=True) + zeros
    values = is_raised(numbers, "values", index, n_attention, group)
    down = is_raised(numbers, "down", layer, last[:, None] + 1, group)
    shape = shapes.kind.shape
    return np.broadcast_to(values, shape).astype(np.bool_), np.broadcast_to(down, shape).astype(np.bool_)


def _bytes_of_rows(weights: Numbers, width: Numbers, formats: tuple[GgufBlocks, ...]) -> Numbers:
    """Bytes of weights in rows of `width`: in the first of `formats` whose blocks fill a row, else in float16."""
    size = weights * 2
    for count, bytes_ in (GGUF_BLOCKS[blocks] for blocks in reversed(formats)):
        size = np.where(width % count == 0, weights // count * bytes_, size)
    return size
