"""What is known of perplexities after some were seen: the posterior of a Gaussian process with the covariance of
`core.quality.covariance` (Rasmussen & Williams 2006, §2.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.quality.covariance import Covariance, LengthScales, Rows

Floats = NDArray[np.float64]

_CHUNK = 4096
"""Rows that are predicted at once: what fits into a cache of the CPU."""


class Posterior:
    """What is known after rows were seen (Rasmussen & Williams 2006, §2.2)."""

    def __init__(
        self, covariance: Covariance | LengthScales, rows: Rows, residuals: Floats, inverse: Floats, factor: float
    ) -> None:
        self.covariance, self.rows, self.residuals, self.factor = covariance, rows, residuals, factor
        self.inverse = inverse
        """Inverse of the lower Cholesky factor of the rows' covariance."""
        self.weights = inverse.T @ (inverse @ residuals)

    @classmethod
    def of(
        cls, covariance: Covariance | LengthScales, rows: Rows, log_perplexity: Floats, factor: float = 1.0
    ) -> Posterior:
        """Posterior after these rows; `factor` widens all variances."""
        inverse = np.linalg.inv(np.linalg.cholesky(_noisy(covariance, rows)))
        return cls(covariance, rows, log_perplexity - rows.trend, inverse, factor)

    def after(self, rows: Rows, log_perplexity: Floats, factor: float) -> Posterior:
        """Posterior after these rows too; `factor` widens all variances. The factor of the former rows is kept."""
        seen, count = len(self.residuals), len(log_perplexity)
        near = self.covariance.between(rows, self.rows) @ self.inverse.T
        corner = np.linalg.inv(np.linalg.cholesky(_noisy(self.covariance, rows) - near @ near.T))
        inverse = np.zeros((seen + count, seen + count))
        inverse[:seen, :seen] = self.inverse
        inverse[seen:, :seen] = -corner @ (near @ self.inverse)
        inverse[seen:, seen:] = corner
        residuals = np.concatenate([self.residuals, log_perplexity - rows.trend])
        return Posterior(self.covariance, Rows.joined(self.rows, rows), residuals, inverse, factor)

    def expected(self, asked: Rows) -> Floats:
        """(n,) mean of perplexities in ln."""
        parts = (asked.take(np.arange(start, min(start + _CHUNK, len(asked.trend)))) for start in self._starts(asked))
        means = [part.trend + self.covariance.between(part, self.rows) @ self.weights for part in parts]
        return np.concatenate([np.empty(0), *means])

    def _starts(self, asked: Rows) -> range:
        return range(0, len(asked.trend), _CHUNK)

    def predict(self, asked: Rows) -> tuple[Floats, Floats]:
        """(n,) mean and variance of perplexities in ln."""
        mean, variance = np.empty(len(asked.trend)), np.empty(len(asked.trend))
        for start in self._starts(asked):
            part = asked.take(np.arange(start, min(start + _CHUNK, len(mean))))
            near = self.covariance.between(part, self.rows)
            mean[start : start + _CHUNK] = part.trend + near @ self.weights
            left = self.covariance.variance(part) - ((near @ self.inverse.T) ** 2).sum(1)
            variance[start : start + _CHUNK] = np.maximum(left, self.covariance.row_variance)
        return mean, variance * self.factor

    def ratio(self, asked: Rows, other: Rows) -> tuple[Floats, Floats]:
        """(n,) mean and variance of ln of perplexities by that of `other` (one row), each with its training's noise."""
        base_near = self.covariance.between(other, self.rows)
        base_seen = self.inverse @ base_near[0]
        base_variance = float(self.covariance.variance(other)[0] - base_seen @ base_seen)
        base_mean = float(other.trend[0] + base_near[0] @ self.weights)
        mean, variance = np.empty(len(asked.trend)), np.empty(len(asked.trend))
        for start in self._starts(asked):
            part = asked.take(np.arange(start, min(start + _CHUNK, len(mean))))
            near = self.covariance.between(part, self.rows)
            seen = near @ self.inverse.T
            mean[start : start + _CHUNK] = part.trend + near @ self.weights - base_mean
            own = self.covariance.variance(part) - (seen**2).sum(1)
            together = self.covariance.between(part, other)[:, 0] - seen @ base_seen
            variance[start : start + _CHUNK] = np.maximum(own + base_variance - 2 * together, 0.0)
        return mean, variance * self.factor

    def covariances(self, asked: Rows) -> tuple[Floats, Floats]:
        """(n, n) covariance of perplexities without noise, and (n,) the noise of a training and its evaluation."""
        near = self.covariance.between(asked, self.rows) @ self.inverse.T
        prior = self.covariance.between(asked, asked)
        noise = self.covariance.variance(asked) - np.diagonal(prior)
        return (prior - near @ near.T) * self.factor, noise * self.factor

    def squared_mahalanobis(self, asked: Rows, log_perplexity: Floats) -> float:
        """Squared Mahalanobis distance of what was seen next from what was expected of it."""
        near = self.covariance.between(asked, self.rows) @ self.inverse.T
        expected = _noisy(self.covariance, asked) - near @ near.T
        residual = log_perplexity - asked.trend - self.covariance.between(asked, self.rows) @ self.weights
        return float(residual @ np.linalg.solve(expected, residual))


def _noisy(covariance: Covariance | LengthScales, rows: Rows) -> Floats:
    """(n, n) covariance of what was observed."""
    observed = covariance.between(rows, rows)
    observed[np.diag_indices_from(observed)] += covariance.row_variance
    return observed
