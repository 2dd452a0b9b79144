"""The interface of perplexity predictors, which `ScalingLaw` (fitted to trained models) and `PruningPredictor` (fitted
to the cuts of one model) implement.
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
"""`Origin.data` of scaling laws for data of no published table. Such scaling laws predict ratios of perplexities."""
ALIKE = 2.0
"""Ratio of the most to the least FLOPs per token up to which seconds per token and per FLOP cannot be separated."""


@dataclass(frozen=True)
class Origin:
    """Metadata of a predictor: data and training that the predicted perplexities are for; `NOT_STATED` if unknown."""

    name: str
    title: str
    family: str = ""
    """Family of architectures: gpt2, llama, transformer-xl or empty."""
    data: str = NOT_STATED
    split: str = NOT_STATED
    tokens: str = NOT_STATED
    """Unit of the perplexity, such as a token of a certain vocabulary."""
    trained: str = NOT_STATED
    """Method and length of the training."""
    how: str = ""
    """The training in two or three words, such as `finished schedule`; empty if the data has only one training."""
    source: str = NOT_STATED
    licence: str = NOT_STATED


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for n architectures: n perplexities, or n ratios of two perplexities."""

    log_perplexity: Floats
    half_width: Floats
    """(n,) half-width of the 95 % interval, in ln perplexity."""
    beyond: Floats
    """(n,) distance beyond the range of the predictor's data; 0 within the range."""

    @property
    def perplexity(self) -> Floats:
        """(n,) median of the predicted distribution of perplexity."""
        return np.asarray(np.exp(self.log_perplexity))

    @property
    def low(self) -> Floats:
        """(n,) lower end of the perplexity's 95 % interval."""
        return np.asarray(np.exp(self.log_perplexity - self.half_width))

    @property
    def high(self) -> Floats:
        """(n,) upper end of the perplexity's 95 % interval."""
        return np.asarray(np.exp(self.log_perplexity + self.half_width))

    @property
    def extrapolated(self) -> NDArray[np.bool_]:
        """(n,) mask of the architectures beyond the range of the predictor's data."""
        return np.asarray(self.beyond > 0)


def in_words(tokens: float) -> str:
    """A number of training tokens in words: `30 billion`, `4.1 million`, `250`."""
    return _scaled(tokens, {1e12: " trillion", 1e9: " billion", 1e6: " million"})


def in_short(tokens: float) -> str:
    """A number of training tokens as in options, to three digits: `30B`, `4.1M`, `250`."""
    return _scaled(tokens, {1e12: "T", 1e9: "B", 1e6: "M", 1e3: "K"})


def _scaled(tokens: float, units: Mapping[float, str]) -> str:
    """The number with three digits in the largest fitting unit (`units`: size → name); in full if below all units."""
    for size, unit in units.items():
        if float(f"{tokens:.3g}") >= size:
            return f"{rounded(tokens / size, 3)}{unit}"
    return f"{tokens:,.0f}"


@dataclass(frozen=True)
class Pace:
    """Training speed of a worker. A token takes seconds_per_token + seconds_per_flop · FLOPs per token."""

    seconds_per_token: float
    seconds_per_flop: float
    segment: int
    """Number of tokens of a sequence; determines the FLOPs of attention."""

    @classmethod
    def fitted(cls, flops: ArrayLike, seconds: ArrayLike, segment: int) -> Pace:
        """Fits the pace to trainings with these FLOPs and seconds per token, by non-negative least squares of the
        relative error. If all trainings have similar sizes, only the seconds per FLOP are fitted (median).
        """
        from scipy.optimize import nnls

        work, taken = np.asarray(flops, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        if work.max() <= ALIKE * work.min():
            return cls(0.0, float(np.median(taken / work)), segment)
        scale = float(np.median(work))
        (of_token, of_flop), _ = nnls(np.column_stack([1 / taken, work / taken / scale]), np.ones(len(work)))
        return cls(float(of_token), float(of_flop) / scale, segment)

    def seconds(self, shapes: Shapes) -> Floats:
        """(n,) seconds of training per token of n architectures."""
        return np.asarray(self.seconds_per_token + self.seconds_per_flop * flops_per_token(shapes, self.segment))


@dataclass(frozen=True)
class TrainingTime:
    """A duration of training on a worker."""

    hours: float
    trainer: str
    pace: Pace

    def tokens(self, shapes: Shapes) -> Floats:
        """(n,) training tokens of each architecture in this time."""
        return np.clip(3600 * self.hours / self.pace.seconds(shapes), MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS)

    def __str__(self) -> str:
        return f"{self.hours:g} {'hour' if self.hours == 1 else 'hours'} on {self.trainer}"


def flops_per_token(shapes: Shapes, segment: int) -> Floats:
    """(n,) FLOPs of training per token, in sequences of `segment` tokens. A multiply-accumulate counts as two FLOPs,
    and the backward pass has twice as many multiply-accumulates as the forward pass.
    """
    return np.asarray(6 * macs(shapes, Pass(batch=1, tokens=segment)) / segment, dtype=np.float64)


class PerplexityPredictor(ABC):
    """Base class of predictors of perplexity from the architecture, for one training budget."""

    origin: Origin
    models: int
    """Number of trainings that the predictor was fitted to."""

    low: Floats
    """(12,) minimum of each feature in the predictor's data; `high` is the maximum."""
    high: Floats
    kinds: frozenset[str]
    """Block kinds in the predictor's data, from `BLOCK_NAMES`."""

    @property
    def relative_to(self) -> str | None:
        """Name of the reference model of predicted ratios; None if predictions are perplexities."""
        return None

    @property
    def train_tokens(self) -> float | None:
        """Training tokens that predictions are for; None if the budget is fixed, or is a duration."""
        return None

    @property
    def train_time(self) -> TrainingTime | None:
        """Duration of training that predictions are for; None if the budget is not a duration."""
        return None

    @property
    def train_budget(self) -> str:
        """The training budget of predictions in words; empty if the predictor has one fixed budget."""
        if self.train_time is not None:
            return f"as many tokens as {self.train_time} take"
        return "" if self.train_tokens is None else f"{in_words(self.train_tokens)} tokens"

    def tokens(self, shapes: Shapes) -> Floats | None:
        """(n,) training tokens that each prediction is for; None if the predictor has one fixed budget."""
        return None

    def predicts_as(self, other: PerplexityPredictor) -> bool:
        """Whether another predictor, such as an earlier version, makes the same predictions."""
        ours, theirs = ((law.origin, law.train_tokens, law.train_time) for law in (self, other))
        return ours == theirs

    @property
    def about(self) -> str:
        """Data, tokens and training of the predictions, in words."""
        of = self.origin
        length = f" on {self.train_budget}" if self.train_budget else ""
        if self.relative_to is not None:
            what = f"perplexity by that of {self.relative_to}, {of.data}"
            return f"{what}; both trained {of.trained}{length}; law {of.name}"
        return f"{of.data}, {of.split} split, per {of.tokens}; trained {of.trained}{length}; law {of.name}"

    @property
    def label(self) -> str:
        """Data and training of the predictions in about six words: `Dolma, 10B tokens, finished schedule`, or for
        ratios `ratio, own data, 10B tokens`.
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
        """Least and most training tokens in the predictor's data; None if the predictor has one fixed budget."""
        return None

    def at_tokens(self, train_tokens: float) -> Self:
        """Returns the predictor for this number of training tokens. Raises `InvalidInput` if the budget is fixed."""
        raise self._one_budget("train_tokens", train_tokens)

    def in_time(self, time: TrainingTime) -> Self:
        """Returns the predictor for this duration of training. Raises `InvalidInput` for a predictor of one budget."""
        raise self._one_budget("train_time", str(time))

    def _one_budget(self, field: str, value: object) -> InvalidInput:
        return InvalidInput(
            f"{field}: the scaling law {self.origin.name} predicts for one training budget only",
            field=field,
            value=value,
            allowed="none, or a scaling law with a training budget, such as llama-dolma-cooled",
        )

    @abstractmethod
    def predict(self, shapes: Shapes) -> Prediction:
        """Predicts the perplexities of these architectures, or the ratios to the perplexity of `relative_to`. 100,000
        predictions take a few seconds.
        """

    @abstractmethod
    def expected(self, shapes: Shapes) -> Floats:
        """(n,) ln perplexity as in `predict`, but without the interval and therefore much faster."""

    @abstractmethod
    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        """Predicts the perplexity of each architecture divided by the perplexity of `reference` (one row) after the
        same training. The uncertainty of shared effects cancels.
        """

    @abstractmethod
    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        """For each architecture, the names of the features beyond the range of the predictor's data."""
