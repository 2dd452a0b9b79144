"""How measurements agree with the predictions that were made before them, and where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgefront.core.prediction.calibration import HARD, beyond_chance

MIN_PREDICTIONS = 10
"""Fewer predictions say little about a device by their mean error."""
_SPANS = 3


class Checked(NamedTuple):
    """A prediction with its 95 % interval, and the value measured afterwards; all positive and in one unit."""

    id: str
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def held(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Span:
    """Predictions from `low` to `high`: how many were measured, how many of these lie in their interval, and their mean
    relative error."""

    low: float
    high: float
    measured: int
    held: int
    error: float


@dataclass(frozen=True)
class Agreement:
    """Agreement of at least one prediction."""

    measured: int
    held: int
    error: float
    """Mean of |measured / predicted - 1|."""
    spans: tuple[Span, ...]
    """Spans by rising prediction, with about equally many in each; a single one if predictions are few."""
    missed: tuple[str, ...]
    """Ids of measurements outside their interval."""

    @classmethod
    def of(cls, checked: Sequence[Checked]) -> Agreement:
        order = sorted(checked, key=lambda check: (check.predicted, check.id))
        parts = np.array_split(np.arange(len(order)), _SPANS if len(order) >= MIN_PREDICTIONS else 1)
        return cls(
            measured=len(order),
            held=sum(check.held for check in order),
            error=_error(order),
            spans=tuple(_span([order[row] for row in rows]) for rows in parts),
            missed=tuple(check.id for check in order if not check.held),
        )

    @property
    def hard(self) -> bool:
        """Whether more lie outside than chance explains, or the error is large."""
        return beyond_chance(self.measured - self.held, self.measured) or (
            self.measured >= MIN_PREDICTIONS and self.error > HARD
        )


def _span(checked: Sequence[Checked]) -> Span:
    held = sum(check.held for check in checked)
    return Span(checked[0].predicted, checked[-1].predicted, len(checked), held, _error(checked))


def _error(checked: Sequence[Checked]) -> float:
    return float(np.mean([abs(check.measured / check.predicted - 1) for check in checked]))
