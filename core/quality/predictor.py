"""The interface of perplexity predictors: `ScalingLaw`, fitted to trained models, and `PruningPredictor`, fitted to the
cuts of one model.
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
"""`Origin.data` of laws for data that no table has; they predict ratios of perplexities."""
ALIKE = 2.0
"""Range of FLOPs a token, as a factor, below which a time a token and a time a FLOP cannot be separated."""


@dataclass(frozen=True)
class Origin:
    """Metadata of a predictor: data and training of its perplexities; `NOT_STATED` if unknown."""

    name: str
    title: str
    family: str = ""
    """gpt2, llama, transformer-xl or empty."""
    data: str = NOT_STATED
    split: str = NOT_STATED
    tokens: str = NOT_STATED
    """The token that the perplexity is per, such as its vocabulary."""
    trained: str = NOT_STATED
    """Method and length of the training."""
    how: str = ""
    """The same in two or three words, such as `finished schedule`; empty if there is only one."""
    source: str = NOT_STATED
    licence: str = NOT_STATED


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for n architectures, each of a perplexity or of the ratio of two."""

    log_perplexity: Floats
    half_width: Floats
    """Half-width of the 95 % interval, in ln perplexity."""
    beyond: Floats
    """Distance beyond the data of the predictor; 0 within it."""

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
        """Whether it lies beyond the data of the predictor."""
        return np.asarray(self.beyond > 0)


def in_words(tokens: float) -> str:
    """Training tokens in words: `30 billion`, `4.1 million`, `250`."""
    return _scaled(tokens, {1e12: " trillion", 1e9: " billion", 1e6: " million"})


def in_short(tokens: float) -> str:
    """Training tokens as in options, to three digits: `30B`, `4.1M`, `250`."""
    return _scaled(tokens, {1e12: "T", 1e9: "B", 1e6: "M", 1e3: "K"})


def _scaled(tokens: float, units: Mapping[float, str]) -> str:
    """Three digits in the largest unit that it reaches when rounded; in full below all units."""
    for size, unit in units.items():
        if float(f"{tokens:.3g}") >= size:
            return f"{rounded(tokens / size, 3)}{unit}"
    return f"{tokens:,.0f}"


@dataclass(frozen=True)
class Pace:
    """Training speed of a worker: seconds_per_token + seconds_per_flop · FLOPs of a token."""

    seconds_per_token: float
    seconds_per_flop: float
    segment: int
    """Tokens of a sequence, which determine the FLOPs of attention."""

    @classmethod
    def fitted(cls, flops: ArrayLike, seconds: ArrayLike, segment: int) -> Pace:
        """The pace of trainings with these FLOPs and seconds a token: non-negative least squares of the relative error.
        Trainings of similar size determine only the time of a FLOP, by their median.
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
    """A duration of training on a worker."""

    hours: float
    trainer: str
    pace: Pace

    def tokens(self, shapes: Shapes) -> Floats:
        """(n,) tokens of each architecture in this time."""
        return np.clip(3600 * self.hours / self.pace.seconds(shapes), MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS)

    def __str__(self) -> str:
        return f"{self.hours:g} {'hour' if self.hours == 1 else 'hours'} on {self.trainer}"


def flops_per_token(shapes: Shapes, segment: int) -> Floats:
    """(n,) FLOPs of training per token, in sequences of `segment` tokens: two for each multiply-accumulate, of which
    the backward pass has twice as many as the forward pass.
    """
    return np.asarray(6 * macs(shapes, Pass(batch=1, tokens=segment)) / segment, dtype=np.float64)


class PerplexityPredictor(ABC):
    """Predicts perplexity by architecture, for one training budget."""

    origin: Origin
    models: int
    """Number of trainings that it was fitted to."""

    low: Floats
    """(12,) minimum of each feature in its data; `high` is the maximum."""
    high: Floats
    kinds: frozenset[str]
    """Block kinds in its data, of `BLOCK_NAMES`."""

    @property
    def relative_to(self) -> str | None:
        """The model to which predictions are ratios; None if it predicts perplexities."""
        return None

    @property
    def train_tokens(self) -> float | None:
        """The training tokens of predictions; None for a predictor of one budget, or for a duration."""
        return None

    @property
    def train_time(self) -> TrainingTime | None:
        """The duration of training of predictions; None for a number of tokens."""
        return None

    @property
    def train_budget(self) -> str:
        """The training budget in words; empty for a predictor of one budget."""
        if self.train_time is not None:
            return f"as many tokens as {self.train_time} take"
        return "" if self.train_tokens is None else f"{in_words(self.train_tokens)} tokens"

    def tokens(self, shapes: Shapes) -> Floats | None:
        """(n,) training tokens of each prediction; None for a predictor of one budget."""
        return None

    def predicts_as(self, other: PerplexityPredictor) -> bool:
        """Whether another predictor, such as an earlier version, gives the same predictions."""
        ours, theirs = ((law.origin, law.train_tokens, law.train_time) for law in (self, other))
        return ours == theirs

    @property
    def about(self) -> str:
        """Data, tokens and training of its predictions, in words."""
        of = self.origin
        length = f" on {self.train_budget}" if self.train_budget else ""
        if self.relative_to is not None:
            what = f"perplexity by that of {self.relative_to}, {of.data}"
            return f"{what}; both trained {of.trained}{length}; law {of.name}"
        return f"{of.data}, {of.split} split, per {of.tokens}; trained {of.trained}{length}; law {of.name}"

    @property
    def label(self) -> str:
        """The same in about six words: `Dolma, 10B tokens, finished schedule`; for ratios `ratio, own data, 10B
        tokens`.
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
        """Least and most training tokens of its data; None for a predictor of one budget."""
        return None

    def at_tokens(self, train_tokens: float) -> Self:
        """The predictor for this number of training tokens. `InvalidInput` if it has one budget."""
        raise self._one_budget("train_tokens", train_tokens)

    def in_time(self, time: TrainingTime) -> Self:
        """The predictor for this duration of training. `InvalidInput` if it has one budget."""
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
        """(n,) ln perplexity of `predict`, much faster without its interval."""

    @abstractmethod
    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        """Perplexity of each architecture divided by that of `reference` (one row), both trained alike: the uncertainty
        of shared effects cancels.
        """

    @abstractmethod
    def out_of_sample(self, shapes: Shapes, log_perplexity: ArrayLike) -> tuple[Prediction, NDArray[np.bool_]]:
        """Leave-one-out predictions of trained models, and a mask of those that are in its data."""

    @abstractmethod
    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        """Names of the features beyond its data, for each architecture."""
