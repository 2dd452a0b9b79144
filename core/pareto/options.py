"""Measured models that may be chosen, and limits on what they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgefront.core.pareto.ratio import Figure, Ratio
from edgefront.core.units import MB, plain

MEMORY_SPREAD = 0.005
"""Half-width of the 95 % interval of a peak memory, on the logarithm: launches of one model differ by less."""
TRAINING_SPREAD = 0.012
"""Half-width of the 95 % interval of a perplexity after one training, on the logarithm: by so much do models that were
trained alike scatter around a smooth law of their shapes.
"""

By = Literal["trained", "predicted", "proxy"]


LimitName = Literal["latency_ms", "memory_mb", "first_token_ms", "token_ms"]


@dataclass(frozen=True)
class OptionLimits:
    """What an `Option` may take at most; None: without a limit. Memory in MB; the last two: times of a generation."""

    latency_ms: float | None = None
    memory_mb: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None

    @property
    def given(self) -> dict[LimitName, float]:
        return {name: limit for name in UNITS if (limit := getattr(self, name)) is not None}

    def violation(self, option: Option) -> float:
        """How far an option exceeds the limits: the sum of ln(value / limit) over those exceeded; 0 within them."""
        return sum(max(0.0, math.log(option.value(name) / limit)) for name, limit in self.given.items())

    def __str__(self) -> str:
        words = {name: f"{plain(limit)} {UNITS[name]}" for name, limit in self.given.items()}
        if {"first_token_ms", "token_ms"} <= words.keys():
            words["first_token_ms"] = words["first_token_ms"].removesuffix(" token")
        *first, last = words.values() or [""]
        return f"{', '.join(first)} and {last}" if first else last


UNITS: dict[LimitName, str] = {
    "latency_ms": "ms",
    "memory_mb": "MB",
    "first_token_ms": "ms to the first token",
    "token_ms": "ms a further token",
}
NAMES: dict[LimitName, str] = {
    "latency_ms": "latency",
    "memory_mb": "memory",
    "first_token_ms": "first-token",
    "token_ms": "further-token",
}


@dataclass(frozen=True)
class Option:
    """A measured model that may be chosen."""

    id: str
    digest: str
    """Of its architecture."""
    stock: bool
    """Whether it is one of the layer-scaled baselines."""
    name: str
    """Name for people, such as `4 layers`."""
    parameters: int
    """Parameters of the decoder."""
    score: float
    """Score by the job's proxy; higher is better."""
    latency: Figure
    """Latency in ms."""
    memory: Figure
    """Peak memory in bytes."""
    first_token_ms: float | None = None
    """Time to the first token of a generation; `token_ms` is that of each further one."""
    token_ms: float | None = None
    predicted: Figure | None = None
    """Perplexity, or its ratio to that of a model of the law's choice."""
    relative: bool = False
    """Whether `predicted` is a ratio."""
    label: str = ""
    """What `predicted` is of, in a few words."""
    trained: float | None = None
    """Perplexity after training; only of models that were trained alike."""
    bits: int = 32
    """Bits of a weight."""

    def value(self, limit: LimitName) -> float:
        """The figure that a limit bounds, in the limit's unit; ∞ if it is unknown."""
        if limit == "latency_ms":
            return self.latency.value
        if limit == "memory_mb":
            return self.memory.value / MB
        figure: float | None = getattr(self, limit)
        return math.inf if figure is None else figure

    @property
    def perplexity(self) -> Figure | None:
        return self.predicted if self.trained is None else Figure(self.trained, TRAINING_SPREAD)


@dataclass(frozen=True)
class Move:
    """A limit that would have to be moved for `option` to be within."""

    limit: LimitName
    to: float
    option: Option


QualityRatio = Callable[[Option, Option], Ratio]
"""Predicted perplexity of the first by that of the second."""


def independent(option: Option, other: Option) -> Ratio:
    """The ratio if the errors of the two predictions had nothing in common."""
    assert option.predicted is not None
    assert other.predicted is not None
    return option.predicted.over(other.predicted)


def difference(option: Option, other: Option, ratio: QualityRatio) -> Ratio | None:
    """Perplexity of one by that of the other, after training or as predicted; None where neither is known of both."""
    if option.trained is not None and other.trained is not None:
        return Figure(option.trained, TRAINING_SPREAD).over(Figure(other.trained, TRAINING_SPREAD))
    if option.predicted is not None and other.predicted is not None:
        return ratio(option, other)
    return None
