"""Public responses: the best measured model of a target within limits, or of a job among published models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefront.core.common.number_formats import KvCache, WeightFormat
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.candidates import CandidateView, Standings, TrainedView
from edgefront.core.schemas.jobs import Limits
from edgefront.core.schemas.messages import View
from edgefront.core.search.pareto.options import LimitName


class RunnerUpView(View):
    """Another measured model within the limits."""

    candidate: CandidateView
    trade: str
    """Differences of this model from the recommended one, with intervals."""


class LimitMove(View):
    """A limit to raise, with the value from which on a measured model is within the limit."""

    limit: LimitName
    to: float
    candidate_id: Identifier


class TrainTimeView(View):
    """Training time on a worker of the pool."""

    hours: float
    trainer: str


class TrainingBudgetView(View):
    """The training budget of predicted perplexities, if the job's law models it."""

    train_tokens: float | None
    """Requested training tokens, else `own`. None with a training time: each candidate's `predicted` has its tokens."""
    train_time: TrainTimeView | None
    own: float | None
    """Training tokens of the predictions in the job's search."""
    own_time: TrainTimeView | None
    known_from: float | None
    """Range of training tokens in the scaling law's data; intervals are wider beyond this range."""
    known_to: float | None
    trainers: tuple[str, ...] = ()
    """Workers with a known pace, for a training time."""


class RecommendationView(View):
    """The best measured model within limits, and the largest layer-scaled stock model within the same limits.

    `by` is the measure of quality: the perplexity of models with equal training, if the best model by prediction is one
    of these; else the predicted perplexity; else the job's proxy. If `recommended` is None, no measured model is within
    the limits; `nearest` and `moves` then name the limits to raise.
    """

    job_id: Identifier
    target_id: Identifier
    target: str
    limits: Limits
    """Requested limits, else the limits of the target."""
    by: Literal["trained", "predicted", "proxy"]
    proxy: str
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    training: TrainingBudgetView | None = None
    """Training budget; None for a scaling law with one budget, and without a law."""
    sentence: str
    """The answer in words, with 95 % intervals of differences."""
    short: str = ""
    """The answer in a few words, for lists."""
    note: str = ""
    """Notes: the search continues or had other limits, the target was added later, the scaling law was fitted to other
    data."""
    recommended: CandidateView | None = None
    baseline: CandidateView | None = None
    surest: CandidateView | None = None
    """The best model whose limited figures are within the limits for sure; None if no model's are."""
    own_model: bool = False
    """Whether `baseline` is the model that the job starts from (`space.model`), within the limits or not."""
    inherit: Identifier | None = None
    """The imported model whose submodels are searched, if any."""
    inherit_data: str | None = None
    """Data set of that model's pruning study."""
    runners_up: tuple[RunnerUpView, ...] = ()
    nearest: CandidateView | None = None
    """The candidate nearest to the limits, if none is within."""
    moves: tuple[LimitMove, ...] = ()
    """Limits to raise: each alone, or all together if one is not enough (see `sentence`)."""
    standings: Standings = Field(default_factory=dict)
    """How the shown models stand to the limits."""
    download: str = "--format onnx"
    """Options of `edgefront model download` for the measured file."""
    train: str = ""
    """Options of `edgefront train submit` for the first shown model without a trained perplexity: the training of the
    others, if there is one. Empty if all are trained."""
    trained: tuple[TrainedView, ...] = ()
    """Perplexities of the shown models with equal training."""


class OtherModelView(View):
    """A published model that was not measured."""

    model: str
    licence: str | None
    context_length: int | None
    parameters: int
    score: float | None = None
    """Score in the table; None if the table has no score of the model."""
    perplexity: float | None = None
    """Predicted perplexity after a training as in `perplexity_of`, not of this model's weights; None if no scaling law
    covers the shape.
    """
    perplexity_of: str = ""


class ChoiceView(View):
    """A measured combination of published model, weight format and runtime."""

    model: str
    """Id of the model on the Hugging Face Hub."""
    kind: str
    licence: str | None
    """Licence; None if unknown, as is `context_length`."""
    context_length: int | None
    """Context length, tokens."""
    score: float
    """Score of the published weights, regardless of the format."""
    runtime: str
    threads: int
    weights: WeightFormat
    bits: int
    """Bits per weight, without the scales of blocks."""
    kv_cache: KvCache | None
    get: str
    """Command that downloads the published file and checks it in this format."""
    format_loss: str
    """Published quality loss of this format for this model, or `unknown`."""
    target_id: Identifier
    target: str
    candidate: CandidateView


class OtherChoiceView(View):
    """Another combination of model, format and runtime within the limits."""

    choice: ChoiceView
    trade: str
    """Differences of this combination from the recommended one, with intervals."""


class OwnTrainingView(View):
    """Alternative to the recommended model: to train a model of the same or a better shape."""

    sentence: str
    perplexity: float
    """Predicted perplexity of the recommended shape, trained as in `perplexity_of`."""
    low: float
    high: float
    """Ends of the 95 % interval of the perplexity."""
    perplexity_of: str
    command: str
    """Command that searches better shapes on the same device within the same limits."""


class ChoicesView(View):
    """The best combination of published model, format and runtime within limits, over all targets of a job with one
    device and equal limits.
    """

    job_id: Identifier
    device: Annotated[str, Field(exclude_if=lambda device: not device)] = ""
    """Device or device class of this answer, if the job has several answers."""
    score: str
    """Score that models are ranked by, as TABLE:BENCHMARK."""
    score_about: str
    """Evaluation harness and number of shots of the table."""
    score_source: str
    limits: Limits
    sentence: str
    """The answer in words."""
    note: str = ""
    """Notes: the search continues, the loss of a format is unknown."""
    measured: str
    """Explanation of the figures."""
    recommended: ChoiceView | None = None
    surest: ChoiceView | None = None
    """The best combination whose limited figures are within the limits for sure; None if no combination's are."""
    runners_up: tuple[OtherChoiceView, ...] = ()
    frontier: tuple[ChoiceView, ...] = ()
    """Frontier by descending score; the objectives are score, bits per weight, latency and peak memory."""
    others: tuple[ChoiceView, ...] = ()
    """Every other measured combination by descending score, within the limits or not."""
    nearest: ChoiceView | None = None
    """The combination nearest to the limits, if none is within."""
    moves: tuple[LimitMove, ...] = ()
    """Limits to raise: each alone, or all together if one is not enough."""
    standings: Standings = Field(default_factory=dict)
    """How the shown combinations stand to the limits."""
    commands: tuple[str, ...] = ()
    """Commands that download the recommended model and check it on the device."""
    own: OwnTrainingView | None = None
    """The alternative of an own training, if a scaling law covers the recommended shape."""
    unscored: tuple[OtherModelView, ...] = ()
    """Models that match the filters but lack the score, and were not measured."""
    same_architecture: tuple[OtherModelView, ...] = ()
    """Models with the architecture of a measured model, so with equal latency and memory, and a lower score."""
    elsewhere: Annotated[tuple[ChoicesView, ...], Field(exclude_if=lambda elsewhere: not elsewhere)] = ()
    """The answers for the job's other devices or limits."""

    @property
    def every(self) -> tuple[ChoicesView, ...]:
        """The answers for all devices."""
        return (self, *self.elsewhere)
