"""Which few trainings would tell most about one ratio of two perplexities.

The posterior variance of a Gaussian process does not depend on the values that are observed (Rasmussen & Williams 2006,
eq. 2.26): so trainings can be chosen before any is made (Cohn 1996, active learning by variance). They are added one by
one, each the one that narrows the ratio most after those before (Krause et al. 2008). The first two are chosen
together where nothing is trained yet: a single training tells the shift of the data, which no ratio depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.shared_law import SharedLaw
from edgefront.core.statistics import Z_95

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Probes:
    """Trainings in the order in which they were chosen."""

    chosen: tuple[int, ...]
    """Places among the candidates; at most as many as were asked for."""
    half_widths: tuple[float, ...]
    """Half widths of the 95 % interval of the ratio in ln: before any training, and as expected after all."""


@dataclass(frozen=True, eq=False)
class Question:
    """The ratio of the perplexities of two models after some tokens, and what may be trained to answer it."""

    law: SharedLaw
    pair: Shapes
    """Two rows: the ratio is that of the first by the second."""
    candidates: Shapes
    tokens: float
    """Tokens of each training."""

    def __post_init__(self) -> None:
        if len(self.pair) != 2:
            raise ValueError(f"a ratio is that of two models, not of {len(self.pair)}")

    def half_width(self) -> float:
        """Half width of the interval of the ratio as it is known now."""
        return float(self.law.ratio(self.pair.take([0]), self.pair.take([1])).half_width[0])


def choose(question: Question, count: int, costs: Sequence[float] | None = None, weight: float = 0.0) -> Probes:
    """Chooses at most `count` different candidates. Each is the one with the largest gain in variance by cost to the
    power of `weight`: 0 takes no notice of `costs`, which are of one training each, in any unit.
    """
    law = replace(question.law, same_recipe=False)  # as `SharedLaw.refined` has it
    shapes = Shapes.concatenate([question.pair, question.candidates])
    at = law.log_tokens(shapes)
    at[2:] = np.log(question.tokens) if law.study.budgets else law.log_train_tokens
    covariance, noise = law.uncertainty(shapes, at)
    prices = np.ones(len(question.candidates)) if costs is None else np.asarray(costs, dtype=np.float64)
    seen, chosen, gained = _Seen(covariance, noise), list[int](), 0.0
    while len(chosen) < min(count, len(question.candidates)):
        together = not chosen and law.own is None and min(count, len(prices)) > 1
        for place in _pair(seen, prices, weight) if together else (_next(seen, prices, weight, chosen),):
            gained += seen.observe(place)
            chosen.append(place)
    before = question.half_width()
    left = max(before**2 - Z_95**2 * gained, 0.0)
    return Probes(tuple(chosen), (before, float(np.sqrt(left))))


class _Seen:
    """What is known after the trainings that were chosen; rows 0 and 1 are the pair, the candidates follow."""

    def __init__(self, covariance: Floats, noise: Floats) -> None:
        self.covariance, self.noise = covariance.copy(), noise

    @property
    def with_ratio(self) -> Floats:
        """(n,) covariance of each candidate with the ratio."""
        return np.asarray(self.covariance[0, 2:] - self.covariance[1, 2:])

    @property
    def variance(self) -> Floats:
        """(n,) of what a training of each candidate would come to."""
        return np.asarray(np.diagonal(self.covariance)[2:] + self.noise[2:])

    def observe(self, place: int) -> float:
        """Conditions on a training; returns by how much it shrinks the variance of the ratio."""
        gain = float(self.with_ratio[place] ** 2 / self.variance[place])
        column = self.covariance[:, place + 2].copy()
        self.covariance -= np.outer(column, column) / self.variance[place]
        return gain


def _next(seen: _Seen, prices: Floats, weight: float, chosen: Sequence[int]) -> int:
    score = seen.with_ratio**2 / seen.variance / prices**weight
    score[list(chosen)] = -np.inf
    return _first_best(score)


def _pair(seen: _Seen, prices: Floats, weight: float) -> tuple[int, ...]:
    """The two candidates that together tell most."""
    count = len(prices)
    with_ratio, variance, between = seen.with_ratio, seen.variance, seen.covariance[2:, 2:]
    determinant = np.outer(variance, variance) - between**2
    first, second = with_ratio[:, None], with_ratio[None]
    gain = first**2 * variance[None] + second**2 * variance[:, None] - 2 * first * second * between
    score = gain / np.maximum(determinant, 1e-300) / (prices[:, None] + prices[None]) ** weight
    score[np.tril_indices(count)] = -np.inf
    place = _first_best(score.reshape(-1))
    return place // count, place % count


def _first_best(score: Floats) -> int:
    """The first of those that are equal but for rounding: the same on every machine."""
    best = score.max()
    return int(np.argmax(score >= best - 1e-9 * abs(best)))
