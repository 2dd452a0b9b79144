"""Differences of an architecture from the models of published training results (tables) in features that no table
varies, and the possible effects of these differences on ln perplexity.

The tables cannot determine the effects, so each has a stated prior: the standard deviation of a slope over the
difference. Effects that two architectures share cancel in the ratio of the two perplexities. The owner's own trainings
narrow the priors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, IDENTITY, SHORT_CONV, SRU, SRUPP, Shapes

Floats = NDArray[np.float64]
SLACK = 0.01
"""Absolute difference below which a difference counts as 0."""


@dataclass(frozen=True)
class Difference:
    """A feature in which a model can differ from all models of a study's tables."""

    name: str
    unit: str
    deviation: float
    """Standard deviation of the slope, in ln perplexity per unit."""
    source: str
    """Source of published effects. About 95 % of these effects are within two standard deviations."""


@dataclass(frozen=True)
class ControlledVariables:
    """Values that all models of a study's tables share; None for a value that varies."""

    kv_share: float | None
    """Number of key/value heads divided by the number of heads."""
    inner_ratio: float | None
    """Inner width divided by d_model; the inner width of a gated block counts 1.5 times."""
    gated: float
    """Share of the feed-forward blocks that have a gate."""
    vocab_size: float | None
    kinds: frozenset[str]
    """Block kinds of the models, from `core.quality.features.BLOCK_NAMES`."""


_ASSUMED = "assumed: no published loss was found"
DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "kv_share",
        "octave of key/value heads by heads",
        0.012,
        "marin-community/marin issues 5151 and 4371: .006 to .013 nats a halving, models of 512 to 768 units; "
        "openai/parameter-golf pull 2000: .003",
    ),
    Difference(
        "inner_ratio",
        "ln of inner width by d_model",
        0.02,
        "arXiv 2510.18245, Tables 1 and 2, as quoted elsewhere: .005 to .021 nats, with d_model changed too",
    ),
    Difference(
        "attention_width",
        "ln of attention's width by d_model, mean of the attention blocks",
        0.02,
        "as inner_ratio, whose sweep is of feed-forward by attention (.005 to .021 nats); of attention alone none",
    ),
    Difference(
        "window",
        "octaves by which windows are below the context, mean of the attention blocks",
        0.015,
        "marin-community/marin issue 5338: .011 to .021 nats, three of four layers windowed",
    ),
    Difference(
        "short_conv",
        "share of the layers whose attention is a short convolution",
        0.05,
        "none of short convolutions; long ones with two attention layers kept: .02 worse to .05 better (H3, "
        "arXiv 2212.14052); without any attention up to .19 worse (Zoology, 2312.04927)",
    ),
    Difference(
        "left_out",
        "share of the layers that lack attention or feed-forward",
        0.05,
        "PAR Transformer (arXiv 2009.04534v1, Table 1): .00 to .05 nats from 7 to 3 of 16 attention blocks; of layers "
        "without feed-forward none",
    ),
    Difference(
        "recurrence",
        "share of the blocks that are recurrent",
        0.4,
        "SRU++ (arXiv 2102.12459, Table 2): .12 nats a character without attention; a token has about four",
    ),
    Difference(
        "gate",
        "share of the feed-forward blocks with a gate",
        0.02,
        "GLU variants (arXiv 2002.05202) and later repetitions: .01 to .04 nats better with one",
    ),
    Difference("vocabulary", "ln of tokens", 0.2, _ASSUMED),
)
NAMES = tuple(difference.name for difference in DIFFERENCES)
DEVIATIONS = np.array([difference.deviation for difference in DIFFERENCES])


def differences(shapes: Shapes, controlled: ControlledVariables) -> Floats:
    """(n, len(DIFFERENCES)) differences of n architectures from the tables' models; 0 for no difference."""
    attention = shapes.kind == ATTENTION
    inner = shapes.kind == FEED_FORWARD
    convolution = shapes.kind == SHORT_CONV
    blocks = np.maximum(((shapes.kind >= 0) & (shapes.kind != IDENTITY)).sum(1), 1)
    mixing = (attention | convolution).sum(1)
    heads, feeding = np.maximum(attention.sum(1), 1), np.maximum(inner.sum(1), 1)
    layers = np.maximum(np.maximum(mixing, inner.sum(1)), 1)
    share = np.log2(np.where(attention, np.maximum(shapes.kv_width, 1) / np.maximum(shapes.width, 1), 1.0))
    attended = np.log(np.where(attention, np.maximum(shapes.width, 1) / shapes.d_model[:, None], 1.0))
    widths = np.where(inner, shapes.width * (1 + 0.5 * shapes.gated), 0.0).sum(1) / feeding
    windows = np.where(attention & (shapes.window > 0), np.log2(_CONTEXT / np.clip(shapes.window, 1, _CONTEXT)), 0.0)
    columns = {
        "kv_share": 0.0 if controlled.kv_share is None else share.sum(1) / heads - np.log2(controlled.kv_share),
        "inner_ratio": 0.0
        if controlled.inner_ratio is None
        else np.log(np.maximum(widths, 1.0) / shapes.d_model / controlled.inner_ratio),
        "attention_width": attended.sum(1) / heads,
        "window": windows.sum(1) / heads,
        "short_conv": convolution.sum(1) / layers,
        "left_out": np.abs(mixing - inner.sum(1)) / layers,
        "recurrence": ((shapes.kind == SRU) | (shapes.kind == SRUPP)).sum(1) / blocks,
        "gate": (shapes.gated & inner).sum(1) / feeding - controlled.gated,
        "vocabulary": 0.0
        if controlled.vocab_size is None
        else np.log(np.maximum(shapes.vocab_size, 1) / controlled.vocab_size),
    }
    columns["kv_share"] = np.where(attention.any(1), columns["kv_share"], 0.0)
    columns["inner_ratio"] = np.where(inner.any(1), columns["inner_ratio"], 0.0)
    columns["gate"] = np.where(inner.any(1), columns["gate"], 0.0)
    values = np.column_stack([np.broadcast_to(columns[name], len(shapes)) for name in NAMES]).astype(np.float64)
    return np.where(np.abs(values) > SLACK, values, 0.0)


_CONTEXT = 2048
"""Context of the tables' models in tokens. A window of at least this size has no effect."""
