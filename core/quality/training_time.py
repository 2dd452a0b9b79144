"""A time of training on a worker of known pace: each architecture sees its own number of tokens in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.cost.flops import products
from edgefront.core.cost.one_pass import Pass
from edgefront.core.cost.shapes import Shapes
from edgefront.core.token_counts import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS

Floats = NDArray[np.float64]

ALIKE = 2.0
"""Factor up to which FLOPs a token are too alike to tell a time a token from a time a FLOP."""


@dataclass(frozen=True)
class Pace:
    """How fast a worker trains: seconds_per_token + seconds_per_flop · FLOPs of a token."""

    seconds_per_token: float
    seconds_per_flop: float
    segment: int
    """Tokens of a sequence, which decide the FLOPs of attention."""

    @classmethod
    def fitted(cls, flops: ArrayLike, seconds: ArrayLike, segment: int) -> Pace:
        """The pace of trainings of so many FLOPs and seconds a token: least squares of the relative errors, neither
        part below zero. Trainings of nearly the same size tell the time of a FLOP alone, by their median.
        """
        from scipy.optimize import nnls

        work, taken = np.asarray(flops, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        if work.max() <= ALIKE * work.min():
            return cls(0.0, float(np.median(taken / work)), segment)
        scale = float(np.median(work))
        (of_token, of_flop), _ = nnls(np.column_stack([1 / taken, work / taken / scale]), np.ones(len(work)))
        return cls(float(of_token), float(of_flop) / scale, segment)

    def seconds(self, shapes: Shapes) -> Floats:
        """(n,) seconds of training for each token."""
        return np.asarray(self.seconds_per_token + self.seconds_per_flop * flops_per_token(shapes, self.segment))


@dataclass(frozen=True)
class TrainingTime:
    """So long a model is trained on a worker."""

    hours: float
    trainer: str
    pace: Pace

    def tokens(self, shapes: Shapes) -> Floats:
        """(n,) tokens that each architecture sees in this time."""
        return np.clip(3600 * self.hours / self.pace.seconds(shapes), MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS)

    def __str__(self) -> str:
        return f"{self.hours:g} {'hour' if self.hours == 1 else 'hours'} on {self.trainer}"


def flops_per_token(shapes: Shapes, segment: int) -> Floats:
    """(n,) FLOPs of training for each token of a sequence of `segment` tokens: two for each multiply-accumulate, and
    the backward pass has two products for each of the forward one.
    """
    return np.asarray(6 * products(shapes, Pass(batch=1, tokens=segment)) / segment, dtype=np.float64)
