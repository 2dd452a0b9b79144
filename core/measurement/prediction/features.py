"""Features for the prediction of latency: exact counts of the operations of one forward pass of an architecture.

A feature counts multiply-accumulates (MAC) of one kind of product, elements that are read and written, or calls (each
call has a fixed cost). A device's latency is nearly a weighted sum of features (`core.measurement.prediction.latency`),
so features also attribute latency to blocks.

Symbols: each of B sequences has n new tokens after M earlier tokens (at most w - 1 with a window of w), and K = M + n.
The products are those of `core.architectures.cost.flops`. Blocks of a translation model's source count as blocks of the
model with the source's tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.cost.flops import Tokens, block_macs, embedding_and_output_macs, executed_blocks
from edgefront.core.architectures.cost.passes import Pass
from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, IDENTITY, SHORT_CONV, SRU, SRUPP, Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.generation import parts
from edgefront.core.measurement.passes import source_length
from edgefront.core.measurement.protocol import MeasurementProtocol

Floats = NDArray[np.float64]


class Feature(NamedTuple):
    """Description of one column of `features`."""

    name: str
    unit: Literal["calls", "MAC", "elements"]
    belongs_to: Literal["ends", "blocks"]
    meaning: str


FEATURES = (
    Feature("pass", "calls", "ends", "1: what every pass costs"),
    Feature("stream", "elements", "ends", "B·n·d_model: embedding and final norm"),
    Feature("embedding_products", "MAC", "ends", "projections of the embedding, of all clusters"),
    Feature("output_products", "MAC", "ends", "weights of the output layer at the positions that `logits` names"),
    Feature("block_stream", "elements", "blocks", "B·n·d_model a block: norm and residual sum; twice with two norms"),
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
    """(n, len(FEATURES)) features, summed over the forward passes that the latency includes; exact up to 2^53."""
    counted, floats = np.zeros((len(shapes), len(FEATURES))), shapes.astype(float)
    for times, part in parts(protocol):
        run = pass_of(part)
        for name, values in _of_ends(floats, run):
            counted[:, _COLUMN[name]] += times * values
        for name, values in _of_blocks(floats, run):
            counted[:, _COLUMN[name]] += times * values.sum(axis=1)
    return counted


def features_by_block(shapes: Shapes, protocol: MeasurementProtocol) -> Floats:
    """(n, L + 1, len(FEATURES)) features of L blocks, then of embedding and head. Their sum is `features(…)`."""
    blocks, floats = shapes.kind.shape[1], shapes.astype(float)
    counted = np.zeros((len(shapes), blocks + 1, len(FEATURES)))
    for times, part in parts(protocol):
        run = pass_of(part)
        for name, values in _of_ends(floats, run):
            counted[:, blocks, _COLUMN[name]] += times * values
        for name, values in _of_blocks(floats, run):
            counted[:, :blocks, _COLUMN[name]] += times * values
    return counted


def pass_of(protocol: MeasurementProtocol) -> Pass:
    """The forward pass that the protocol measures. The protocol's mode must not be generate."""
    assert protocol.mode != "generate"
    return Pass(
        protocol.batch,
        protocol.sequence_length,
        protocol.memory_length,
        source_length(protocol),
        protocol.mode,
        protocol.logits,
    )


def descriptors(shapes: Shapes, counted: Floats) -> Floats:
    """(n, 9) inputs of the Gaussian process: logarithms of size and depth, and shares of the multiply-accumulates.

    Similar architectures have similar residuals of the weighted sum. `counted` is `features(shapes)`.
    """
    products = [counted[:, column] for column, feature in enumerate(FEATURES) if feature.unit == "MAC"]
    total = np.maximum(np.sum(products, axis=0), 1.0)
    present = (shapes.kind >= 0) & (shapes.kind != IDENTITY)
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


def _of_ends(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Floats]]:
    yield "pass", np.ones(len(shapes))
    yield "stream", run.batch * run.tokens * shapes.d_model
    yield from embedding_and_output_macs(shapes, run)


def _of_blocks(shapes: Shapes, run: Pass) -> Iterator[tuple[str, Floats]]:
    """Yields the name and the (n, L) values of each feature of blocks, except features of absent kinds of block."""
    shapes = executed_blocks(shapes, run)
    tokens = Tokens.of(shapes, run)
    new, kept = run.batch * tokens.new, run.batch * tokens.keys
    d, present = shapes.d_model[:, None], (shapes.kind >= 0) & (shapes.kind != IDENTITY)
    yield from block_macs(shapes, run)
    yield "block_stream", new * d * (present * (1 + shapes.pre_and_post_norm))
    yield "block_biases", (shapes.biased | shapes.relative) * present
    yield "attention_weights", new * tokens.keys * (shapes.heads * (shapes.attends & present))
    attention = shapes.kind == ATTENTION
    if attention.any():
        grouped = attention & (shapes.kv_width < shapes.width)
        yield "attention_calls", attention
        yield "grouped_kept", 2 * kept * (shapes.kv_width * grouped)
        yield "attention_turned", new * (shapes.rotary_dim * attention)
        yield "attention_norms", 2 * (shapes.qk_norm & attention)
    feed_forward = shapes.kind == FEED_FORWARD
    if feed_forward.any():
        inner = new * (shapes.width * feed_forward)
        yield "feed_forward_calls", feed_forward
        yield "feed_forward_width", inner
        yield "feed_forward_gates", inner * shapes.gated
    recurrent = (shapes.kind == SRU) | (shapes.kind == SRUPP)
    if recurrent.any():
        yield "recurrence_calls", recurrent
        yield "recurrence", new * d * recurrent
        yield "srupp_calls", (shapes.kind == SRUPP) & shapes.attends
    convolution = shapes.kind == SHORT_CONV
    if convolution.any():
        yield "convolution_calls", convolution
        yield "convolution_taps", new * d * shapes.width * convolution


# Checks and selection of rows ----------------------------------------------------------------------------------------

MIN_ARCHITECTURES = 3
"""Minimum number of different architectures to fit a predictor."""
_DIGITS = 9


def positive(name: str, values: ArrayLike, count: int) -> Floats:
    """Converts values to (count,) finite numbers above zero. Raises `InvalidInput`, which names the first wrong row."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (count,):
        raise InvalidInput(
            f"{name}: {count} architectures need {count} values, not the shape {numbers.shape}",
            field=name,
            value=list(numbers.shape),
            allowed=f"{count} numbers",
        )
    for row in np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))[:1]:
        raise InvalidInput(
            f"{name}.{row}: must be a number above zero, not {numbers[row]}",
            field=f"{name}.{row}",
            value=float(numbers[row]),
            allowed="a finite number above zero",
        )
    return numbers


def enough_different(features: Floats) -> None:
    """Raises `InvalidInput`, which names the final duplicate row, if there are fewer than three different rows."""
    _, first = np.unique(features, axis=0, return_index=True)
    if len(first) >= MIN_ARCHITECTURES:
        return
    repeated = np.setdiff1d(np.arange(len(features)), first)
    row = int(repeated[-1]) if len(repeated) else max(0, len(features) - 1)
    why = f": row {row} equals an earlier row" if len(repeated) else ""
    raise InvalidInput(
        f"shapes: at least {MIN_ARCHITECTURES} different architectures are needed, not {len(first)}{why}",
        field=f"shapes.{row}",
        value=len(first),
        allowed=f"{MIN_ARCHITECTURES} or more",
    )


def standardised(rows: Floats) -> tuple[Floats, Floats]:
    """(q,) mean and (q,) standard deviation of the columns; the standard deviation of a constant column is 1."""
    width = rows.std(axis=0)
    return rows.mean(axis=0), np.where(width > 1e-9 * np.abs(rows).max(axis=0, initial=1.0), width, 1.0)


def farthest(rows: Floats, count: int) -> NDArray[np.int64]:
    """Indices of `count` rows by farthest-point sampling (Gonzalez 1985), central row first; earlier rows win ties."""
    centre, width = standardised(rows)
    scaled = np.round((rows - centre) / width, _DIGITS)  # equal on every platform
    chosen = [int(np.argmin(np.round((scaled**2).sum(axis=1), _DIGITS)))]
    nearest = np.full(len(rows), np.inf)
    while len(chosen) < min(count, len(rows)):
        distance = np.round(((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1), _DIGITS)
        nearest = np.minimum(nearest, distance)
        nearest[chosen[-1]] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return np.array(chosen, dtype=np.int64)
