"""Rows of two published tables of trained models, HW-GPT-Bench and the Gemstones, with a description of each model; and
the trend of the Gemstones.
"""

from __future__ import annotations

from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from edgefront.core.common.gaussian_process import rounded
from edgefront.core.quality.features import LOG_TOKENS, BudgetTrend
from edgefront.core.training.proxies.table import Row, read_table


def read_published(path: Path) -> list[Row]:
    """The rows of a table in `golden/`, each with the field `architecture`."""
    return [
        {**row, "architecture": _gemstone(row["width"], row["depth"]) if "depth" in row else _hwgpt(row)}
        for row in read_table(path)
    ]


def _hwgpt(row: Row) -> dict[str, Any]:
    """The decoder in a row of HW-GPT-Bench (arXiv 2405.10299): heads of 64, inner width mlp_ratio·embed_dim.

    Blocks and widths are correct; rotary positions and parallel residuals of the real model are left out.
    """
    width = row["embed_dim"]
    heads, ratios = (map(int, str(row[name]).split("-")) for name in ("n_head", "mlp_ratio"))
    return {
        "d_model": width,
        "positions": {"kind": "learned", "length": 1024},
        "embedding": {"vocab_size": 50254},
        "blocks": [
            block
            for n_head, ratio in zip(heads, ratios, strict=True)
            for block in (
                {"kind": "attention", "n_head": n_head, "d_head": 64},
                {"kind": "feed_forward", "d_inner": ratio * width},
            )
        ],
    }


@cache
def _gemstone(width: int, depth: int) -> dict[str, Any]:
    """A decoder of the Gemstones (arXiv 2502.06857).

    Heads have width 128, with half as many (rounded down) key/value heads; the gated inner width is 4 times d_model;
    RMSNorm, rotary positions, untied embeddings of 50,304 tokens.
    """
    layer = [
        {"kind": "attention", "n_head": width // 128, "n_kv_head": width // 256, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 4 * width, "gated": True, "bias": False},
    ]
    return {
        "d_model": width,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "gelu_tanh",
        "embedding": {"vocab_size": 50304},
        "output": {"kind": "tokens", "tied": False},
        "blocks": layer * depth,
    }


Floats = NDArray[np.float64]
_ROBUST_SCALE = 0.02
"""Scale of the soft L1 loss, in nats."""


def fit_trend(inputs: Floats, log_tokens: Floats, log_perplexity: Floats, table: NDArray[np.int64]) -> BudgetTrend:
    """Fits the trend by robust least squares to n rows of several tables (`table`: index of each row's table).

    Each later table has an offset and a slope over tokens relative to the first table. Parameters are rounded, so that
    stored parameters are exact.
    """
    tables = int(table.max()) + 1
    start = np.array([2.0, np.log(0.6), 0.3, np.log(0.2), 0.5, np.log(0.4), 0.0, 0.4])
    low = np.array([0, -8, 0.02, -8, 0.02, -8, -1, 0.05])
    high = np.array([4, 2, 2, 2, 2, 3, 1, 2])
    own = np.zeros(2 * (tables - 1))

    def residuals(parameters: Floats) -> Floats:
        shift, slope = np.split(parameters[8:], 2)
        expected = _trend_of(parameters[:8])(inputs, log_tokens)
        expected = expected + np.r_[0, shift][table] + np.r_[0, slope][table] * (log_tokens - LOG_TOKENS)
        # A weak prior around the start values, for terms that the tables do not determine.
        return np.asarray(np.r_[expected - log_perplexity, 1e-3 * (parameters[:8] - start)])

    fitted = least_squares(
        residuals,
        np.r_[start, own],
        bounds=(np.r_[low, own - 1], np.r_[high, own + 1]),
        loss="soft_l1",
        f_scale=_ROBUST_SCALE,
    )
    return BudgetTrend(*(rounded(value) for value in astuple(_trend_of(fitted.x[:8]))))


def _trend_of(parameters: Floats) -> BudgetTrend:
    values = parameters.copy()
    values[[1, 3, 5]] = np.exp(values[[1, 3, 5]])
    return BudgetTrend(*values.tolist())
