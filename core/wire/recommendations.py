"""The best measured model of a target within limits. Shared by the API and the client."""

from __future__ import annotations

from typing import Literal

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.candidates import CandidateView, TrainedView
from edgefront.core.wire.jobs import Limits
from edgefront.core.wire.messages import View


class RunnerUpView(View):
    """Another measured model within the limits."""

    candidate: CandidateView
    trade: str
    """What it gives and takes against the recommended one, with intervals."""


class LimitMove(View):
    """A limit that would have to be moved for a measured model to be within."""

    limit: Literal["latency_ms", "memory_mb", "first_token_ms", "token_ms"]
    to: float
    candidate_id: Identifier


class TrainTimeView(View):
    """A time of training on a worker."""

    hours: float
    trainer: str


class TrainingBudgetView(View):
    """The training that predicted perplexities are for; there where the job's law knows the budget."""

    train_tokens: float | None
    """Tokens that were asked for, else `own`. None for a time: each candidate's `predicted` then has its own."""
    train_time: TrainTimeView | None
    own: float | None
    """Tokens that the job searched for."""
    own_time: TrainTimeView | None
    known_from: float | None
    """Least and most tokens of the trainings that the law was learnt from; beyond them intervals widen."""
    known_to: float | None
    trainers: tuple[str, ...] = ()
    """Workers whose pace is known: a time there may be asked for."""


class RecommendationView(View):
    """The best measured model within limits, beside the largest layer-scaled stock model within the same limits.

    `by` says what stands for quality: the perplexity of models that were trained alike, if the best by prediction is
    among them; else the predicted perplexity; else the job's proxy. Without `recommended` nothing measured is within
    the limits, and `nearest` and `moves` say what is missing.
    """

    job_id: Identifier
    target_id: Identifier
    target: str
    limits: Limits
    """Those of the target unless others were asked for."""
    by: Literal["trained", "predicted", "proxy"]
    proxy: str
    perplexity_of: str = ""
    """Data, split and training that predicted perplexities are of; empty where nothing is predicted."""
    training: TrainingBudgetView | None = None
    """None where the law knows one budget alone, and without one."""
    sentence: str
    """The answer in words. Differences have the 95 % interval of both sides, or are said not to be measurable."""
    short: str = ""
    """The answer in a few words, for a list: model, latency, and how much better than the stock model."""
    note: str = ""
    """What a person should know: the search continues, or looked within other limits, the target was added later, or
    the law of the predicted perplexity is of other data."""
    recommended: CandidateView | None = None
    baseline: CandidateView | None = None
    own_model: bool = False
    """Whether `baseline` is the model that the job starts from (`space.model`), within the limits or not."""
    inherit: Identifier | None = None
    """The model of the service of which the searched models are parts; None where they are not."""
    runners_up: tuple[RunnerUpView, ...] = ()
    nearest: CandidateView | None = None
    """What comes nearest to the limits, where nothing measured is within."""
    moves: tuple[LimitMove, ...] = ()
    """Each alone brings a model within; or both together, where one is not enough: see `sentence`."""
    download: str = "--format onnx"
    """Options of `edgefront model download` for the file that was measured."""
    trained: tuple[TrainedView, ...] = ()
    """Of the models shown, those that were trained alike."""
