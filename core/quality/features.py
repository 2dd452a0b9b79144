"""Features of an architecture for scaling laws (twelve exact numbers), and trends (parametric parts of scaling laws).

All features are natural logarithms of counts and widths, or ratios. An empty sum (no feed-forward blocks, no attention)
counts as one, with the logarithm 0, and 0 is far from the values in published tables of trained models. A short
convolution is half a layer, like the attention that the convolution replaces. The inner width of a gated block counts
1.5 times, because an ungated block of this width has as many parameters.

A trend is a sum of power laws in nats per token, up to an offset and a scale of each table.

| symbol | here | meaning |
| --- | --- | --- |
| d | `_WIDTH` | d_model |
| L | `_DEPTH` | layers |
| f | `_INNER` | mean inner width |
| r | `_RANK` | rank of the embedding |
| N | `_DECODER` | block parameters |
| D | `log_tokens` | training tokens; D₀ is `LOG_TOKENS` |
| w | | √(N / 15L), the width of a Gemstones layer with as many parameters |
| E, a, b, c | `floor`, `width`, `depth`, `data` | fitted coefficients |
| p, q, γ, r | `…_power` | fitted exponents |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.block import BLOCK_KINDS
from edgefront.core.architectures.cost.shapes import Shapes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feature:
    """Description of one column of `features`."""

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
"""Kinds of blocks for scaling laws: block kinds, gated feed-forward, and attention with shared keys or a window."""


def names_of_blocks(shapes: Shapes) -> NDArray[np.int64]:
    """(n, L) index into `BLOCK_NAMES` of each block of n models with at most L blocks; -1 for no block."""
    grouped = (shapes.kind == _ATTENTION) & ((shapes.kv_width < shapes.width) | (shapes.window > 0))
    kinds = np.where(shapes.gated, BLOCK_NAMES.index("gated_feed_forward"), shapes.kind)
    return np.where(grouped, BLOCK_NAMES.index("grouped_attention"), kinds).astype(np.int64)


def features(shapes: Shapes) -> Floats:
    """(n, 12) features of n architectures, with the columns of `FEATURES`. Finite for every architecture."""
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
    """(n, 12) features to 6 decimals. Scaling laws treat models with equal rounded features as equal."""
    return np.round(features(shapes), 6)


def _log(values: NDArray[np.generic], least: float = 1.0) -> Floats:
    logs: Floats = np.log(np.maximum(values.astype(np.float64), least))
    return logs


def _trend(inner: NDArray[np.bool_], apart: Floats) -> Floats:
    """(n,) correlation, over a model's feed-forward blocks, of inner width and position; 0 if all widths are equal."""
    place = np.where(inner, np.cumsum(inner, 1), 0).astype(np.float64)
    place = np.where(inner, place - (place.sum(1) / np.maximum(inner.sum(1), 1))[:, None], 0.0)
    norm = np.sqrt((place**2).sum(1) * (apart**2).sum(1))
    trend: Floats = np.divide((place * apart).sum(1), norm, out=np.zeros_like(norm), where=norm > 1e-9)
    return trend


_DECODER, _DEPTH, _WIDTH, _INNER, _RANK = (
    NAMES.index(name) for name in ("log_decoder", "log_depth", "log_d_model", "log_d_inner", "log_rank")
)
_PARAMETERS = 15.0
"""Parameters of a Gemstones layer divided by w²: 12 for feed-forward, 3 for attention."""


@dataclass(frozen=True)
class ShapeTrend:
    """Trend for one training budget: .34 (d/256)^-.58 + .99 (L/8)^-.18 + 1.66 (f/1300)^-.065 + .70 (r/256)^-.15.

    Fitted to the trained models of LiteTransformerSearch (arXiv 2203.02094) on WikiText-103 and LM1B together.
    """

    def __call__(self, inputs: Floats, log_tokens: Floats) -> Floats:
        """(n,) trend, in nats, of models with (n, 12) features."""
        wide, deep, inner, rank = (inputs[:, column] for column in (_WIDTH, _DEPTH, _INNER, _RANK))
        return np.asarray(
            0.34 * np.exp(-0.58 * (wide - np.log(256)))
            + 0.99 * np.exp(-0.18 * (deep - np.log(8)))
            + 1.66 * np.exp(-0.065 * (inner - np.log(1300)))
            + 0.70 * np.exp(-0.15 * (rank - np.log(256)))
        )


@dataclass(frozen=True)
class BudgetTrend:
    """Trend of loss by shape and training tokens: E + a (w/512)^-p + b (L/16)^-q + c (N/10⁸)^γ (D/D₀)^-r, D₀ = 3·10¹⁰.

    w equals d_model in the Gemstones. The trend uses w because d_model does not transfer: on 51 small models with free
    widths, the rank correlation ρ is .26 with d_model and .58 with w (docs/decisions/0022-quality-laws.md).

    The form is Kaplan's and Hoffmann's (arXiv 2001.08361, 2203.15556) with separate depth and width (2502.06857) and a
    cross term of size and data (γ), which reduces the error of perplexity on the Gemstones from 4.4 % to 1.7 %.
    """

    floor: float
    width: float
    width_power: float
    depth: float
    depth_power: float
    data: float
    size_power: float
    data_power: float

    def __call__(self, inputs: Floats, log_tokens: Floats) -> Floats:
        """(n,) trend, in nats, of models with (n, 12) features and exp(log_tokens) (n,) training tokens."""
        size = inputs[:, _DECODER] - np.log(1e8)
        width = (inputs[:, _DECODER] - inputs[:, _DEPTH] - np.log(_PARAMETERS)) / 2
        return np.asarray(
            self.floor
            + self.width * np.exp(-self.width_power * (width - np.log(512)))
            + self.depth * np.exp(-self.depth_power * (inputs[:, _DEPTH] - np.log(16)))
            + self.data * np.exp(self.size_power * size - self.data_power * (log_tokens - LOG_TOKENS))
        )


Trend = ShapeTrend | BudgetTrend

LOG_TOKENS = float(np.log(3e10))
"""ln D₀, at which a table's slope over tokens has no effect."""
