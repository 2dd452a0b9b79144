"""What a quality law reads of an architecture: twelve exact numbers that any description has.

All are natural logarithms of counts and widths, or pure numbers. A sum of nothing (a stack without feed-forward blocks,
without attention) counts as one, so that its logarithm is 0: far from every table of such models, and said to be so.
A short convolution is half a layer, as the attention is whose place it takes. The inner width of a gated block counts
half as wide again: so wide a block without a gate has as many parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.spaces.block import BLOCK_KINDS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feature:
    """One column. `unit` says what its number is."""

    name: str
    unit: str
    meaning: str


FEATURES: tuple[Feature, ...] = (
    Feature("log_decoder", "ln of parameters", "blocks and final norm"),
    Feature("log_depth", "ln of layers", "layers; an attention and a feed-forward block are half a layer each"),
    Feature("log_d_model", "ln of units", "width of the residual stream"),
    Feature("log_d_inner", "ln of units", "mean inner width of the feed-forward blocks"),
    Feature("log_attention", "ln of parameters", "blocks that attend"),
    Feature("log_feed_forward", "ln of parameters", "blocks that do not attend"),
    Feature("log_embedding", "ln of parameters", "tables and projections of tokens, in and out"),
    Feature("log_div", "ln of a factor", "by which each further cluster of the embedding is narrower"),
    Feature("log_rank", "ln of units", "the smaller of the embedding's width and d_model"),
    Feature("log_heads", "ln of heads", "mean number of heads of the blocks that attend"),
    Feature("inner_variation", "ratio", "standard deviation of the inner widths by their mean"),
    Feature("inner_trend", "correlation", "of the inner widths with their depth, -1 to 1"),
)
NAMES = tuple(feature.name for feature in FEATURES)

_ATTENTION, _FEED_FORWARD, _IDENTITY, _SHORT_CONV = (
    BLOCK_KINDS.index(name) for name in ("attention", "feed_forward", "identity", "short_conv")
)

BLOCK_NAMES = (*BLOCK_KINDS, "gated_feed_forward", "grouped_attention")
"""What a law distinguishes among blocks: their kinds, feed-forward blocks with a gate, and attention whose heads share
keys or which has a window.
"""


def names_of_blocks(shapes: Shapes) -> NDArray[np.int64]:
    """(n, L) index into `BLOCK_NAMES`; -1 where there is no block."""
    grouped = (shapes.kind == _ATTENTION) & ((shapes.kv_width < shapes.width) | (shapes.window > 0))
    kinds = np.where(shapes.gated, BLOCK_NAMES.index("gated_feed_forward"), shapes.kind)
    return np.where(grouped, BLOCK_NAMES.index("grouped_attention"), kinds).astype(np.int64)


def features(shapes: Shapes) -> Floats:
    """(n, 12): a row for each architecture, columns as in `FEATURES`. Finite for every description."""
    inner = shapes.kind == _FEED_FORWARD
    blocks = (shapes.kind >= 0) & (shapes.kind != _IDENTITY)
    halves = (shapes.kind == _ATTENTION) | (shapes.kind == _SHORT_CONV) | inner
    widths = np.where(inner, shapes.width * (1 + 0.5 * shapes.gated), 0.0)
    count = np.maximum(inner.sum(1), 1)
    mean = widths.sum(1) / count
    apart = np.where(inner, widths - mean[:, None], 0.0)
    spread = np.sqrt((apart**2).sum(1) / count)
    return np.column_stack(
        [
            _log(shapes.decoder_parameters),
            _log(blocks.sum(1) - halves.sum(1) / 2, least=0.5),
            _log(shapes.d_model),
            _log(mean),
            _log(np.where(shapes.attends, shapes.parameters, 0).sum(1)),
            _log(np.where(blocks & ~shapes.attends, shapes.parameters, 0).sum(1)),
            _log(shapes.embedding_parameters),
            _log(shapes.div),
            _log(np.minimum(shapes.d_embed, shapes.d_model)),
            _log(np.where(shapes.attends, shapes.heads, 0).sum(1) / np.maximum(shapes.attends.sum(1), 1)),
            spread / np.maximum(mean, 1.0),
            _trend(inner, apart),
        ]
    )


def rounded_features(shapes: Shapes) -> Floats:
    """(n, 12) to 6 decimals: models with equal ones are the same to a law."""
    return np.round(features(shapes), 6)


def _log(values: NDArray[np.generic], least: float = 1.0) -> Floats:
    logs: Floats = np.log(np.maximum(values.astype(np.float64), least))
    return logs


def _trend(inner: NDArray[np.bool_], apart: Floats) -> Floats:
    """Correlation of the inner widths with their place among the feed-forward blocks; 0 where all are alike."""
    place = np.where(inner, np.cumsum(inner, 1), 0).astype(np.float64)
    place = np.where(inner, place - (place.sum(1) / np.maximum(inner.sum(1), 1))[:, None], 0.0)
    norm = np.sqrt((place**2).sum(1) * (apart**2).sum(1))
    trend: Floats = np.divide((place * apart).sum(1), norm, out=np.zeros_like(norm), where=norm > 1e-9)
    return trend
