"""What is expected of ln perplexity by shape and training tokens, before a process corrects it.

A trend is a sum of power laws. It gives nats a token, and is right up to a shift and a scale of each table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.gaussian_process import rounded
from edgefront.core.quality.features import NAMES

Floats = NDArray[np.float64]

_DECODER, _DEPTH, _WIDTH, _INNER, _RANK = (
    NAMES.index(name) for name in ("log_decoder", "log_depth", "log_d_model", "log_d_inner", "log_rank")
)
_PARAMETERS = 15.0
"""Of a layer of the Gemstones by w²: 12 of the feed-forward block, 3 of attention."""
_ROBUST_SCALE = 0.02
"""Nats: residuals beyond it pull the fit less (soft L1)."""


@dataclass(frozen=True)
class ShapeTrend:
    """Trend over models trained for one budget, by width d, layers L, inner width f and rank r of the embedding:
    .34 (d/256)^-.58 + .99 (L/8)^-.18 + 1.66 (f/1300)^-.065 + .70 (r/256)^-.15.

    Fitted to the trained models of LiteTransformerSearch (arXiv 2203.02094) on WikiText-103 and LM1B together.
    """

    def __call__(self, inputs: Floats, log_tokens: Floats) -> Floats:
        """(n,) nats of (n, 12) features."""
        wide, deep, inner, rank = (inputs[:, column] for column in (_WIDTH, _DEPTH, _INNER, _RANK))
        return np.asarray(
            0.34 * np.exp(-0.58 * (wide - np.log(256)))
            + 0.99 * np.exp(-0.18 * (deep - np.log(8)))
            + 1.66 * np.exp(-0.065 * (inner - np.log(1300)))
            + 0.70 * np.exp(-0.15 * (rank - np.log(256)))
        )


@dataclass(frozen=True)
class BudgetTrend:
    """Trend by layers L, block parameters N and training tokens D, with the width w = √(N/15L):
    E + a (w/512)^-p + b (L/16)^-q + c (N/10⁸)^γ (D/D₀)^-r, D₀ = 3·10¹⁰.

    w is d_model where layers are as the Gemstones' are. Elsewhere it is the width of such layers with as many
    parameters: among the tables' models d_model and parameters cannot be separated, and a wide residual stream between
    narrow layers is worth no more than these (ρ .26 by d_model, .58 by w, with 51 small models whose widths are free;
    docs/decisions/0022-quality-laws.md).

    Kaplan's and Hoffmann's sums (arXiv 2001.08361, 2203.15556) with depth and width apart (2502.06857) and a cross term
    of size and data: without γ the error of perplexity on the Gemstones is 4.4 %, with it 1.7 %.
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
        """(n,) nats of (n, 12) features, trained on exp(log_tokens) (n,) tokens."""
        size = inputs[:, _DECODER] - np.log(1e8)
        width = (inputs[:, _DECODER] - inputs[:, _DEPTH] - np.log(_PARAMETERS)) / 2
        return np.asarray(
            self.floor
            + self.width * np.exp(-self.width_power * (width - np.log(512)))
            + self.depth * np.exp(-self.depth_power * (inputs[:, _DEPTH] - np.log(16)))
            + self.data * np.exp(self.size_power * size - self.data_power * (log_tokens - LOG_TOKENS))
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def fit(cls, inputs: Floats, log_tokens: Floats, log_perplexity: Floats, table: NDArray[np.int64]) -> BudgetTrend:
        """The trend of several tables at once (n rows, `table` from 0), each with a shift and a slope over tokens of
        its own against the first. Robust least squares; parameters are rounded, so that what is stored is what is used.
        """
        from scipy.optimize import least_squares

        tables = int(table.max()) + 1
        start = np.array([2.0, np.log(0.6), 0.3, np.log(0.2), 0.5, np.log(0.4), 0.0, 0.4])
        low = np.array([0, -8, 0.02, -8, 0.02, -8, -1, 0.05])
        high = np.array([4, 2, 2, 2, 2, 3, 1, 2])
        own = np.zeros(2 * (tables - 1))

        def residuals(parameters: Floats) -> Floats:
            shift, slope = np.split(parameters[8:], 2)
            expected = cls._of(parameters[:8])(inputs, log_tokens)
            expected = expected + np.r_[0, shift][table] + np.r_[0, slope][table] * (log_tokens - LOG_TOKENS)
            # A little weight on the start keeps terms that a table does not tell apart where they are.
            return np.asarray(np.r_[expected - log_perplexity, 1e-3 * (parameters[:8] - start)])

        fitted = least_squares(
            residuals,
            np.r_[start, own],
            bounds=(np.r_[low, own - 1], np.r_[high, own + 1]),
            loss="soft_l1",
            f_scale=_ROBUST_SCALE,
        )
        return cls(*(rounded(value) for value in asdict(cls._of(fitted.x[:8])).values()))

    @classmethod
    def _of(cls, parameters: Floats) -> BudgetTrend:
        floor, width, width_power, depth, depth_power, data, size_power, data_power = parameters.tolist()
        return cls(
            floor, float(np.exp(width)), width_power, float(np.exp(depth)), depth_power, float(np.exp(data)),
            size_power, data_power,
        )  # fmt: skip


Trend = ShapeTrend | BudgetTrend

LOG_TOKENS = float(np.log(3e10))
"""ln of the tokens at which a table's slope over tokens turns."""
