"""Predicts the perplexity that an architecture reaches, with an interval: by a `ScalingLaw`, which is learnt from
trained models, or by a `PruningPredictor`, which is learnt from the cuts of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.cost.flops import macs
from edgefront.core.architectures.cost.passes import Pass
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS, rounded

if TYPE_CHECKING:
    from typing_extensions import Self

Floats = NDArray[np.float64]

NOT_STATED = "not stated"
OWN_DATA = "your own data"
"""`Origin.data` of laws about data that no table has: they give ratios of perplexities alone."""
ALIKE = 2.0
"""Factor up to which FLOPs a token are too alike to tell a time a token from a time a FLOP."""


@dataclass(frozen=True)
class Origin:
    """What the perplexity of a law is of; `NOT_STATED` where the source does not say."""

    name: str
    title: str
    family: str = ""
    """gpt2, llama or transformer-xl; empty if it is of none of these."""
    data: str = NOT_STATED
    split: str = NOT_STATED
    tokens: str = NOT_STATED
    """What the perplexity is per: a token of which vocabulary."""
    trained: str = NOT_STATED
    """How, and for how long."""
    how: str = ""
    """The same in two or three words, such as `finished schedule`; empty where there is only one."""
    source: str = NOT_STATED
    licence: str = NOT_STATED


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for n architectures, each of a perplexity or of the ratio of two."""

    log_perplexity: Floats
    half_width: Floats
    """Half width of the 95 % interval, in ln perplexity."""
    beyond: Floats
    """How far beyond what the law knows; 0 within it."""

    @property
    def perplexity(self) -> Floats:
        """The median."""
        return np.asarray(np.exp(self.log_perplexity))

    @property
    def low(self) -> Floats:
        """The interval's lower end."""
        return np.asarray(np.exp(self.log_perplexity - self.half_width))

    @property
    def high(self) -> Floats:
        """The interval's upper end."""
        return np.asarray(np.exp(self.log_perplexity + self.half_width))

    @property
    def extrapolated(self) -> NDArray[np.bool_]:
        """Whether it lies beyond what the law knows."""
        return np.asarray(self.beyond > 0)


def in_words(tokens: float) -> str:
    """Training tokens in words: `30 billion`, `4.1 million`, `250`."""
    return _scaled(tokens, {1e12: " trillion", 1e9: " billion", 1e6: " million"})


def in_short(tokens: float) -> str:
    """Training tokens as they are written in options, to three digits: `30B`, `4.1M`, `250`."""
    return _scaled(tokens, {1e12: "T", 1e9: "B", 1e6: "M", 1e3: "K"})


def _scaled(tokens: float, units: Mapping[float, str]) -> str:
    """To three digits of the largest unit that it reaches when rounded; in full below all of them."""
    for size, unit in units.items():
        if float(f"{tokens:.3g}") >= size:
            return f"{rounded(tokens / size, 3)}{unit}"
    return f"{tokens:,.0f}"


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
    return np.asarray(6 * macs(shapes, Pass(batch=1, tokens=segment)) / segment, dtype=np.float64)


class PerplexityPredictor(ABC):
    """Perplexity by architecture, for one budget of training."""

    origin: Origin
    models: int
    """Trainings that it was learnt from."""

    low: Floats
    """(12,) least value of each feature that the law knows."""
    high: Floats
    kinds: frozenset[str]
    """The kinds of `BLOCK_NAMES` that it knows."""

    @property
    def relative_to(self) -> str | None:
        """The model to whose perplexity predictions are ratios; None of a law that predicts perplexities."""
        return None

    @property
    def train_tokens(self) -> float | None:
        """The training tokens that predictions are for; None of a law that knows one budget, and for a time."""
        return None

    @property
    def train_time(self) -> TrainingTime | None:
        """The time of training that predictions are for; None where they are for a number of tokens."""
        return None

    @property
    def train_budget(self) -> str:
        """How long models are trained, in words; empty of a law that knows one budget."""
        if self.train_time is not None:
            return f"as many tokens as {self.train_time} take"
        return "" if self.train_tokens is None else f"{in_words(self.train_tokens)} tokens"

    def tokens(self, shapes: Shapes) -> Floats | None:
        """(n,) training tokens that each prediction is for; None of a law that knows one budget."""
        return None

    def predicts_as(self, other: PerplexityPredictor) -> bool:
        """Whether another law, which may be an earlier state of it, predicts the same, as its budget is."""
        ours, theirs = ((law.origin, law.train_tokens, law.train_time) for law in (self, other))
        return ours == theirs

    @property
    def about(self) -> str:
        """What its predictions are of: data, tokens, training."""
        of = self.origin
        length = f" on {self.train_budget}" if self.train_budget else ""
        if self.relative_to is not None:
            what = f"perplexity by that of {self.relative_to}, {of.data}"
            return f"{what}; both trained {of.trained}{length}; law {of.name}"
        return f"{of.data}, {of.split} split, per {of.tokens}; trained {of.trained}{length}; law {of.name}"

    @property
    def label(self) -> str:
        """What its predictions are of, in about six words: `Dolma, 10B tokens, finished schedule`; of ratios
        `ratio, own data, 10B tokens`.
        """
        short = {OWN_DATA: "own data", NOT_STATED: "data not stated"}
        parts = (
            "" if self.relative_to is None else "ratio",
            short.get(self.origin.data, self.origin.data.split(" (")[0]),
            str(self.train_time or ""),
            "" if self.train_tokens is None else f"{in_short(self.train_tokens)} tokens",
            self.origin.how,
        )
        return ", ".join(part for part in parts if part)

    @property
    def token_range(self) -> tuple[float, float] | None:
        """Least and most training tokens within which it knows; None of a law that knows one budget."""
        return None

    def at_tokens(self, train_tokens: float) -> Self:
        """The law for models trained on so many tokens. `InvalidInput` where it knows one budget alone."""
        raise self._one_budget("train_tokens", train_tokens)

    def in_time(self, time: TrainingTime) -> Self:
        """The law for models trained so long. `InvalidInput` where it knows one budget alone."""
        raise self._one_budget("train_time", str(time))

    def _one_budget(self, field: str, value: object) -> InvalidInput:
        return InvalidInput(
            f"{field}: the law {self.origin.name} knows one budget alone",
            field=field,
            value=value,
            allowed="none, or a law that knows the training budget, as llama-dolma-cooled",
        )

    @abstractmethod
    def predict(self, shapes: Shapes) -> Prediction:
        """Perplexities, or ratios to that of `relative_to`, of these architectures. 100,000 take a few seconds."""

    @abstractmethod
    def expected(self, shapes: Shapes) -> Floats:
        """(n,) ln perplexity of `predict` without its interval, which takes most of the time."""

    @abstractmethod
    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        """Perplexity of each architecture by that of `reference` (one row), both trained alike: what they have in
        common is uncertain in neither.
        """

    @abstractmethod
    def out_of_sample(self, shapes: Shapes, log_perplexity: ArrayLike) -> tuple[Prediction, NDArray[np.bool_]]:
        """The prediction of each, without what the law learnt from that training itself; and where it had."""

    @abstractmethod
    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        """Names, for each architecture, what lies beyond what the law knows."""
