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

Products of two widths are the weights of linear layers (`Shapes.linear_layers`), all others `core.cost.columns` counts.

Decoder parameters are the blocks' and the final norm's: the proxy of LTS (arXiv 2203.02094), Σ(4·D² + 9·D + 2·D·f + f)
+ 2·D for GPT-2 (Tables 6 and 7), Σ(5·D² + 7·D + 2·D·f + f) for Transformer-XL as LTS has it (Tables 4 and 5: u and v in
each layer, no final norm). Position parameters are the table of learned positions, or u and v where all blocks share
them. Embedding parameters are everything else: what touches tokens, on the way in and out. Of a translation model, the
source's count in the same groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgefront.core.cost.shapes import Numbers, Shapes
from edgefront.core.number_formats import GGUF_BLOCK, GGUF_BLOCK_BYTES, GGUF_QUANTISED, Quantisation
from edgefront.core.spaces.architecture import Architecture


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
    """(n,) number of the linear layers of all blocks: each has a scale in int8."""
    return np.asarray(np.add.reduce([(out > 0).sum(axis=1) for out, _ in shapes.linear_layers]))


def weight_bytes(shapes: Shapes, width: int, quantisation: Quantisation, block_size: int) -> Numbers:
    """(n,) bytes of all weights, of `width` bytes each where they are not quantised.

    int8: of linear layers one byte for each weight, and a scale for each layer. int4: of them 4 bits a weight and a
    scale for each block of `block_size` weights of a row, the last block padded. q8_0 and q4_0: of all matrices but
    positions, whose rows blocks of 32 fill; all others are float32.
    """
    total = shapes.total_parameters
    if quantisation == "full":
        return width * total
    weights: Numbers = shapes.linear_weights.sum(axis=1)
    if quantisation in GGUF_QUANTISED:
        matrices = weights + shapes.embedding_parameters
        return np.asarray((total - matrices) * 4 + matrices // GGUF_BLOCK * GGUF_BLOCK_BYTES[quantisation])
    if quantisation == "int4":
        blocks = [(out * -(-inputs // block_size)).sum(axis=1) for out, inputs in shapes.linear_layers]
        return np.asarray((total - weights) * width + np.add.reduce(blocks) * (block_size // 2 + 4))
    return np.asarray((total - weights + linear_layers(shapes)) * width + weights)
