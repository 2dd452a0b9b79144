"""What one pass of an architecture has to do, counted exactly: the features from which latency is predicted.

Each feature is a number of things of one kind that a runtime does: multiply-accumulates (MAC) of a kind of product,
elements that are read and written, or calls, each of which costs something however little it computes. A device's
latency is nearly a sum of them, each times a cost of its own (`core.prediction.latency`), so they tell as well where
the milliseconds go, block by block.

For n new tokens of each of B sequences after M earlier ones, K = M + n, as `core.cost.flops` counts (with a window of w
at most w - 1 earlier ones): the sums of products are its sums. Two things a description knows and `Shapes` does not:
relative positions are counted without their clamp, and of an embedding's projections only the widest cluster's. The
source of a translation model counts as blocks of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.measurement.generation import parts
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.block import BLOCK_KINDS

Floats = NDArray[np.float64]

_ATTENTION, _FEED_FORWARD, _SRU, _SRUPP, _IDENTITY, _SHORT_CONV = range(len(BLOCK_KINDS))


class Feature(NamedTuple):
    """A column of `features`."""

    name: str
    unit: Literal["calls", "MAC", "elements"]
    belongs_to: Literal["ends", "blocks"]
    meaning: str


FEATURES = (
    Feature("pass", "calls", "ends", "1: what every pass costs"),
    Feature("stream", "elements", "ends", "B·n·d_model: embedding and final norm"),
    Feature("embedding_products", "MAC", "ends", "B·n·d_embed·d_model where the embedding is projected"),
    Feature("output_products", "MAC", "ends", "weights of the output layer at the positions that `logits` names"),
    Feature("block_stream", "elements", "blocks", "B·n·d_model a block: norm and residual sum"),
    Feature("block_biases", "calls", "blocks", "1 a block with biases or with a map of relative positions"),
    Feature("attention_calls", "calls", "blocks", "1 an attention block"),
    Feature("attention_products", "MAC", "blocks", "linear layers of attention, keys of a segment memory included"),
    Feature("attention_scores", "MAC", "blocks", "scores and weighted values: 2·B·n·K·n_head·d_head; keys not shared"),
    Feature("attention_weights", "elements", "blocks", "softmax: B·n·K·n_head, of attention and SRU++"),
    Feature("feed_forward_calls", "calls", "blocks", "1 a feed-forward block"),
    Feature("feed_forward_products", "MAC", "blocks", "2·B·n·d_model·d_inner, 3· where gated"),
    Feature("feed_forward_width", "elements", "blocks", "activations: B·n·d_inner"),
    Feature("recurrence_calls", "calls", "blocks", "1 an SRU or SRU++ block"),
    Feature("recurrence", "elements", "blocks", "steps of SRU and SRU++, one after another: B·n·d_model"),
    Feature("sru_products", "MAC", "blocks", "linear layers of SRU"),
    Feature("srupp_products", "MAC", "blocks", "linear layers of SRU++"),
    Feature("srupp_calls", "calls", "blocks", "1 an SRU++ block that attends"),
    Feature("srupp_scores", "MAC", "blocks", "scores and weighted values of SRU++: 2·B·n·K·d_attn"),
    Feature("grouped_scores", "MAC", "blocks", "attention_scores of attention whose heads share keys"),
    Feature("grouped_kept", "elements", "blocks", "its keys and values: 2·B·K·n_kv_head·d_head"),
    Feature("attention_turned", "elements", "blocks", "queries and keys that rotary positions turn: B·n·features"),
    Feature("attention_norms", "calls", "blocks", "2 an attention block with norms of queries and keys"),
    Feature("feed_forward_gates", "elements", "blocks", "products of gated blocks: B·n·d_inner"),
    Feature("convolution_calls", "calls", "blocks", "1 a short convolution"),
    Feature("convolution_products", "MAC", "blocks", "linear layers of short convolutions: 4·B·n·d_model²"),
    Feature("convolution_taps", "elements", "blocks", "products of short convolutions: B·n·d_model·kernel"),
)
NAMES = tuple(feature.name for feature in FEATURES)
_COLUMN = {name: column for column, name in enumerate(NAMES)}


def features(shapes: Shapes, protocol: MeasurementProtocol) -> Floats:
    """(n, len(FEATURES)) of a pass under the protocol, or of the passes that its latency is made of; exact whole
    numbers up to 2^53.
    """
    found = np.zeros((len(shapes), len(FEATURES)))
    for times, one in parts(protocol):
        for name, values in _of_ends(shapes, one):
            found[:, _COLUMN[name]] += times * values
        for name, values in _of_blocks(shapes, one):
            found[:, _COLUMN[name]] += times * values.sum(axis=1)
    return found


def features_by_block(shapes: Shapes, protocol: MeasurementProtocol) -> Floats:
    """(n, L + 1, len(FEATURES)): the same by block, what belongs to the ends at the last place; sums are `features`."""
    blocks = shapes.kind.shape[1]
    found = np.zeros((len(shapes), blocks + 1, len(FEATURES)))
    for times, one in parts(protocol):
        for name, values in _of_ends(shapes, one):
            found[:, blocks, _COLUMN[name]] += times * values
        for name, values in _of_blocks(shapes, one):
            found[:, :blocks, _COLUMN[name]] += times * values
    return found


def descriptors(shapes: Shapes, counted: Floats) -> Floats:
    """(n, 9) what architectures are near to each other by: logarithms of size and depth, and shares of the products.

    What the sum of features leaves unexplained is alike where these are alike. `counted` are the shapes' `features`.
    """
    products = [counted[:, column] for column, feature in enumerate(FEATURES) if feature.unit == "MAC"]
    total = np.maximum(np.sum(products, axis=0), 1.0)
    present = (shapes.kind >= 0) & (shapes.kind != _IDENTITY)
    blocks = np.maximum(present.sum(axis=1), 1)

    def share(*names: str) -> Floats:
        return np.asarray(sum(counted[:, _COLUMN[name]] for name in names) / total)

    return np.stack(
        [
            np.log(total),
            np.log(shapes.d_model.astype(float)),
            np.log(blocks),
            np.log1p(counted[:, _COLUMN["attention_weights"]]) - np.log(blocks),
            share("attention_products", "attention_scores", "grouped_scores"),
            share("feed_forward_products"),
            share("sru_products", "convolution_products"),
            share("srupp_products", "srupp_scores"),
            share("output_products"),
        ],
        axis=1,
    )


def _of_ends(shapes: Shapes, protocol: MeasurementProtocol) -> Iterator[tuple[str, Floats]]:
    new = protocol.batch * protocol.sequence_length
    positions = {"all": new, "last": protocol.batch, "none": 0}[protocol.logits]
    d, embedded = shapes.d_model.astype(float), shapes.d_embed.astype(float)
    projected = (shapes.d_embed != shapes.d_model) | (shapes.div > 1)
    yield "pass", np.ones(len(shapes))
    yield "stream", new * d
    yield "embedding_products", new * d * embedded * projected
    yield "output_products", positions * shapes.output_weights.astype(float)


def _of_blocks(shapes: Shapes, protocol: MeasurementProtocol) -> Iterator[tuple[str, Floats]]:
    """Features of every block, (n, L) each; kinds that no row has are left out."""
    new = protocol.batch * protocol.sequence_length
    keys = earlier(shapes, protocol) + protocol.sequence_length
    d = shapes.d_model.astype(float)[:, None]
    width, heads = shapes.width.astype(float), shapes.heads.astype(float)
    present = (shapes.kind >= 0) & (shapes.kind != _IDENTITY)
    yield "block_stream", new * d * present
    yield "block_biases", (shapes.biased | shapes.relative).astype(float)
    yield "attention_weights", new * keys * (heads * shapes.attends)
    attention = shapes.kind == _ATTENTION
    if attention.any():
        yield from _of_attention(shapes, protocol, attention, width * attention, d)
    feed_forward = shapes.kind == _FEED_FORWARD
    if feed_forward.any():
        inner = width * feed_forward
        yield "feed_forward_calls", feed_forward.astype(float)
        yield "feed_forward_products", (2.0 + shapes.gated) * new * d * inner
        yield "feed_forward_width", new * inner
        yield "feed_forward_gates", new * inner * shapes.gated
    recurrent = (shapes.kind == _SRU) | (shapes.kind == _SRUPP)
    if recurrent.any():
        yield "recurrence_calls", recurrent.astype(float)
        yield "recurrence", new * d * recurrent
        yield from _of_recurrence(shapes, protocol, width, d)
    convolution = shapes.kind == _SHORT_CONV
    if convolution.any():
        yield "convolution_calls", convolution.astype(float)
        yield "convolution_products", new * 4 * d * d * convolution
        yield "convolution_taps", new * d * width * convolution


def _of_attention(
    shapes: Shapes, protocol: MeasurementProtocol, attention: NDArray[np.bool_], width: Floats, d: Floats
) -> Iterator[tuple[str, Floats]]:
    batch, tokens = protocol.batch, protocol.sequence_length
    memory = earlier(shapes, protocol)
    keys = memory + tokens
    projected = tokens + (memory if protocol.mode == "forward" else 0)
    yield "attention_calls", attention.astype(float)
    if protocol.mode == "decode":
        of_distances = batch * tokens * (d * width + shapes.heads * d * (keys + 1)) * shapes.relative
        to_queries: Floats | float = 0.0
    else:
        of_distances = (keys + 1) * d * width * shapes.relative
        to_queries = batch * tokens * (keys + 1) * width * shapes.relative
    maps = 2.0 * batch * d * (tokens * width + projected * (shapes.kv_width * attention))
    yield "attention_products", maps + of_distances
    # Without shared keys their number and the products with them grow alike, so that only one of the two is counted.
    grouped = attention & (shapes.kv_width < shapes.width)
    scores = 2.0 * batch * tokens * keys * width
    yield "attention_scores", scores * ~grouped + to_queries
    yield "grouped_scores", scores * grouped
    yield "grouped_kept", 2.0 * batch * keys * (shapes.kv_width * grouped).astype(float)
    yield "attention_turned", batch * tokens * shapes.turned.astype(float)
    yield "attention_norms", 2 * shapes.qk_norm.astype(float)


def earlier(shapes: Shapes, protocol: MeasurementProtocol) -> NDArray[np.int64]:
    """(n, L) tokens before the new ones that a block may see: with a window no more than it keeps."""
    kept = np.where(shapes.window > 0, shapes.window - 1, protocol.memory_length)
    return np.minimum(protocol.memory_length, kept).astype(np.int64)


def _of_recurrence(
    shapes: Shapes, protocol: MeasurementProtocol, width: Floats, d: Floats
) -> Iterator[tuple[str, Floats]]:
    batch, tokens = protocol.batch, protocol.sequence_length
    new, keys = batch * tokens, protocol.memory_length + tokens
    sru = shapes.kind == _SRU
    yield "sru_products", new * np.where(width > 0, 4 * d * width, 3 * d * d) * sru
    srupp = shapes.kind == _SRUPP
    attends, projected = srupp & shapes.attends, _projected_keys(protocol)
    products = new * 4 * d * width * srupp
    # The new tokens' own keys come from their queries; a segment memory's inputs go through that map first.
    products += batch * ((projected - tokens) * d * width + projected * 2 * width * width) * attends
    yield "srupp_products", products
    yield "srupp_calls", attends.astype(float)
    yield "srupp_scores", 2.0 * new * keys * width * attends


def _projected_keys(protocol: MeasurementProtocol) -> int:
    """Inputs of each sequence that a pass makes keys and values of: a cache is not projected again."""
    return protocol.sequence_length + (protocol.memory_length if protocol.mode == "forward" else 0)
