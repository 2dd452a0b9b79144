"""The best measured model of a target within limits, or of a job among published models. Shared by the API and the
client.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefront.core.common.number_formats import KvCache, WeightFormat
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.candidates import CandidateView, TrainedView
from edgefront.core.schemas.jobs import Limits
from edgefront.core.schemas.messages import View


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


class OtherModelView(View):
    """A published model beside those that were measured."""

    model: str
    licence: str | None
    context_length: int | None
    parameters: int
    """Counted."""
    score: float | None = None
    """None where the table has none."""
    perplexity: float | None = None
    """Predicted, where a quality law covers such models: of one trained as `perplexity_of` says, not of this one."""
    perplexity_of: str = ""


class ChoiceView(View):
    """A published model, a format of its weights and a runtime, as they were measured."""

    model: str
    """Hub id."""
    kind: str
    licence: str | None
    """None: unknown, as `context_length`."""
    context_length: int | None
    """Tokens."""
    score: float
    """Of the weights as they were published, whatever the format here."""
    runtime: str
    weights: WeightFormat
    bits: int
    """Of one weight, without the scales of blocks."""
    kv_cache: KvCache | None
    format_loss: str
    """What is published of the quality that this format costs this model; `unknown` where nothing is."""
    target_id: Identifier
    target: str
    candidate: CandidateView


class OtherChoiceView(View):
    """Another choice within the limits."""

    choice: ChoiceView
    trade: str
    """What it gives and takes against the recommended one, with intervals."""


class OwnTrainingView(View):
    """What a model of one's own would be beside the recommended one: of its shape, or of a better one."""

    sentence: str
    perplexity: float
    """Predicted of the recommended one's shape, trained as `perplexity_of` says."""
    low: float
    high: float
    """Ends of the 95 % interval."""
    perplexity_of: str
    command: str
    """Searches for better shapes around it, in the same place and within the same limits."""


class ChoicesView(View):
    """The best published model × format × runtime within limits, over the targets of a job among published models that
    are of one device and have the same limits.
    """

    job_id: Identifier
    device: Annotated[str, Field(exclude_if=lambda device: not device)] = ""
    """The device, or device class, of this answer, where the job has several answers."""
    score: str
    """TABLE:BENCHMARK."""
    score_about: str
    """Harness and shots of the table."""
    score_source: str
    limits: Limits
    sentence: str
    """The answer in words."""
    note: str = ""
    """What a person should know: that the search continues, or what is not known of a format."""
    measured: str
    """What the figures are of."""
    recommended: ChoiceView | None = None
    runners_up: tuple[OtherChoiceView, ...] = ()
    frontier: tuple[ChoiceView, ...] = ()
    """By falling score; bits of a weight count as an objective beside score, latency and peak memory."""
    nearest: ChoiceView | None = None
    """What comes nearest to the limits, where nothing measured is within."""
    moves: tuple[LimitMove, ...] = ()
    """Limits of which each alone, or all together where one is not enough, bring a choice within."""
    commands: tuple[str, ...] = ()
    """What gets the recommended one, and checks it on the device."""
    own: OwnTrainingView | None = None
    """Where a quality law covers the recommended one."""
    unscored: tuple[OtherModelView, ...] = ()
    """Models that the filters let through and that have no such score: they were not measured."""
    same_architecture: tuple[OtherModelView, ...] = ()
    """Models of the architecture of a measured one, with a lower score: they take the same time and memory."""
    elsewhere: Annotated[tuple[ChoicesView, ...], Field(exclude_if=lambda elsewhere: not elsewhere)] = ()
    """The answers of the job's other devices, each within the limits of its own targets."""

    @property
    def every(self) -> tuple[ChoicesView, ...]:
        """The answers of all devices."""
        return (self, *self.elsewhere)
