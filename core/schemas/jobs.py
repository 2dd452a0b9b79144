"""Public requests and responses about jobs, their targets and events. Shared by the API and the client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, StrictFloat, StrictInt, model_validator

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import (
    Goal,
    JobState,
    TargetState,
)
from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.common.validation import checked
from edgefront.core.measurement.protocol import Latency, MeasurementProtocol
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.messages import Request, View
from edgefront.core.schemas.published import PublishedRequest, Variants

Quality = Literal["proxy", "perplexity"]
TrainTokens = Annotated[StrictInt, Field(ge=MIN_TRAIN_TOKENS, le=MAX_TRAIN_TOKENS)]

ProxyName = Literal[
    "decoder_parameters",
    "total_parameters",
    "quality_law",
    "grad_norm",
    "snip",
    "grasp",
    "fisher",
    "synflow",
    "jacob_cov",
    "relu_log_det",
    "partial_training",
]
"""The proxies of `core.training.proxies.registry`."""

PUBLISHED = "published"
"""Name of the space of published models."""
MAX_TARGETS = 16
EPSILON = 0.02
"""The precision that a protocol asks of a latency unless it says otherwise."""

MAX_LIMIT = 1e15
"""Of a limit, in its unit."""
Positive = Annotated[StrictFloat, Field(gt=0, le=MAX_LIMIT, allow_inf_nan=False)]
TrainHours = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
TrainerName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]


class TrainerPace(Request):
    """How fast a worker trains a model: seconds_per_token + seconds_per_flop · FLOPs of a token."""

    seconds_per_token: Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
    seconds_per_flop: Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
    segment: Annotated[StrictInt, Field(ge=1, le=1 << 20)]
    """Tokens of a sequence, for the FLOPs of attention."""
    trainings: Annotated[StrictInt, Field(ge=0)] = 0
    """From which it was learnt."""

    @model_validator(mode="after")
    def _takes_time(self) -> TrainerPace:
        if self.seconds_per_token + self.seconds_per_flop <= 0:
            raise ValueError("a training takes time: seconds_per_token or seconds_per_flop is above 0")
        return self


class TrainTime(Request):
    """So long a model is to be trained on a worker of the pool: on as many tokens as it sees there."""

    hours: Annotated[TrainHours, Strict()]
    trainer: TrainerName
    pace: TrainerPace | None = None
    """None: that of the trainings which have ended there; `GET /v1/trainers` lists them."""


class TrainingBudget(Request):
    """How long models are to be trained, for laws that know the budget. Neither: what the law says."""

    train_tokens: TrainTokens | None = None
    """Tokens that each is trained on."""
    train_time: TrainTime | None = None
    """A time on a worker instead, in which smaller models see more tokens."""

    @model_validator(mode="after")
    def _one_budget(self) -> TrainingBudget:
        if self.train_tokens is not None and self.train_time is not None:
            raise ValueError("give train_tokens or train_time, not both")
        return self

    @classmethod
    def of(
        cls, train_tokens: int | None = None, train_hours: float | None = None, trainer: str | None = None
    ) -> TrainingBudget:
        """The budget as queries and commands give it. `InvalidInput` names what does not go together."""
        if (train_hours is None) != (trainer is None):
            raise InvalidInput(
                "train_hours and trainer go together: how long, and on which worker",
                field="trainer" if trainer is None else "train_hours",
                allowed="both, or neither",
            )
        if train_hours is None:
            return checked(TrainingBudget, {"train_tokens": train_tokens})
        if train_tokens is not None:
            raise InvalidInput(
                "give train_tokens or train_hours, not both",
                field="train_tokens",
                value=train_tokens,
                allowed="none beside train_hours",
            )
        return checked(TrainingBudget, {"train_time": {"hours": float(train_hours), "trainer": trainer}})

    @property
    def fields(self) -> dict[str, Any]:
        """Those of a request, as far as they are given."""
        return self.model_dump(include={"train_tokens", "train_time"}, exclude_none=True)


NO_BUDGET = TrainingBudget()


class SpaceRequest(Request):
    """A catalogued space, narrowed: each gene to some of its values, as a list or as {min, max, step}.

    With a `model` it is the part of the space around that model, which is the job's baseline. With `published` it is a
    list of published models.
    """

    name: Annotated[str, Field(max_length=64)] = "lts-gpt2"
    """With a model `auto` if absent: the space that has it."""
    narrow: Annotated[dict[str, Any], Field(max_length=32)] = Field(default_factory=dict)
    model: dict[str, Any] | None = None
    """An architecture, such as `POST /v1/models/import` returns."""
    inherit: Annotated[Identifier | None, Field(exclude_if=lambda inherit: inherit is None)] = None
    """A model with weights of the service, with a study of its cuts: the space is its parts, which inherit its weights,
    and `model` is its architecture, also if absent."""
    published: Annotated[PublishedRequest | None, Field(exclude_if=lambda published: published is None)] = None
    """Of the space `published`, which is meant with it if no name is given."""

    @model_validator(mode="before")
    @classmethod
    def _name_that_is_meant(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "name" not in value:
            if value.get("model") is not None or value.get("inherit") is not None:
                return {**value, "name": "auto"}
            if value.get("published") is not None:
                return {**value, "name": PUBLISHED}
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> SpaceRequest:
        if self.published is not None and (self.model is not None or self.name != PUBLISHED):
            raise ValueError(f"published is of the space {PUBLISHED}, which is around no model")
        if self.published is not None and self.inherit is not None:
            raise ValueError("give published or inherit, not both")
        if self.published is None and self.name == PUBLISHED:
            object.__setattr__(self, "published", PublishedRequest())
        return self


class Limits(Request):
    """Beyond these a measured candidate is out of bounds: kept and shown, never on the frontier.

    `latency_ms` limits the time that the protocol names as its latency.
    """

    latency_ms: Positive | None = None
    memory_mb: Positive | None = None
    """Peak memory in MB (10^6 bytes)."""
    first_token_ms: Annotated[Positive | None, Field(exclude_if=lambda limit: limit is None)] = None
    """Of mode generate, as `token_ms`: from the prompt to the first token."""
    token_ms: Annotated[Positive | None, Field(exclude_if=lambda limit: limit is None)] = None
    """Each further token."""

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.times) or self.latency_ms is not None or self.memory_mb is not None

    @property
    def times(self) -> dict[Latency, float]:
        """The limits on times of a generation, by the time; without `latency_ms`."""
        limits: dict[Latency, float | None] = {"first_token": self.first_token_ms, "token": self.token_ms}
        return {name: limit for name, limit in limits.items() if limit is not None}


NO_LIMITS = Limits()


class TargetRequest(Request):
    """One device (its id or name) or a device class, and how to measure there."""

    name: Name | None = None
    """Shown to people; made from the device and runtime if absent. Unique within the job."""
    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol = MeasurementProtocol()
    limits: Limits = Limits()
    variants: Annotated[Variants | None, Field(exclude_if=lambda variants: variants is None)] = None
    """The target stands for one of each; the service names them when the job is stored."""
    added: bool = False
    """Set by the service: added to the job later, it measures the job's candidates alone."""

    @model_validator(mode="after")
    def _one_place(self) -> TargetRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


class AddedTargetRequest(Request):
    """A device (its id or name) or a device class that a job is extended to."""

    name: Name | None = None
    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol | None = None
    """That of the job's first target if absent."""
    limits: Limits | None = None
    """Those of the job's first target if absent."""

    @model_validator(mode="after")
    def _one_place(self) -> AddedTargetRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


Algorithm = Literal["auto", "surrogate", "listed", "lts", "random", "nsga2", "par-supernet"]


class AlgorithmRequest(Request):
    """`settings` are the algorithm's own (see `GET /v1/catalogue/algorithms`)."""

    name: Algorithm = "auto"
    """auto: surrogate, or lts where the job's proxy needs every model to be built; listed among published models."""
    settings: Annotated[dict[str, Any], Field(max_length=32)] = Field(default_factory=dict)


class Budget(Request):
    """A target ends at the first of these that it meets; the algorithm's own end counts too."""

    candidates: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None
    """Architectures proposed by the search for each target; baselines do not count."""
    minutes: Positive | None = None
    """Wall-clock time of the search on each device: from the start of the job's first launch there, without pauses.
    When it has passed, launches that are still to come are given up."""
    refinement: Annotated[StrictFloat, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    """Further launches of uncertain frontier points, as a share of the number of first launches."""


class ParameterLimits(Request):
    """Settled before anything is measured: the search proposes nothing outside."""

    min_decoder: Annotated[StrictInt, Field(ge=0)] | None = None
    max_decoder: Annotated[StrictInt, Field(ge=1)] | None = None
    max_total: Annotated[StrictInt, Field(ge=1)] | None = None


class JobRequest(TrainingBudget):
    name: Name = "search"
    space: SpaceRequest = SpaceRequest()
    targets: Annotated[tuple[TargetRequest, ...], Field(min_length=1, max_length=MAX_TARGETS, fail_fast=True)]
    algorithm: AlgorithmRequest = AlgorithmRequest()
    budget: Budget = Budget()
    parameters: ParameterLimits = ParameterLimits()
    baseline_layers: (
        Annotated[tuple[Annotated[StrictInt, Field(ge=1, le=256)], ...], Field(max_length=64, fail_fast=True)] | None
    ) = None
    """Depths at which the stock model is measured. If absent, 1 to the deepest of the narrowed space; for the best
    within limits without those whose weights alone exceed the memory. For the best within limits at most five of them
    are measured, among which the deepest within the limits is looked for."""
    goal: Literal[Goal.FRONTIER, Goal.BEST_WITHIN_LIMITS] = Goal.FRONTIER
    """The whole frontier, or the best model within the limits of each target."""
    proxy: ProxyName | Literal["published_score", "auto"] = "auto"
    """The proxy for quality; auto: quality_law where a law covers the space, else decoder_parameters;
    published_score among published models.
    Scores that need torch are computed by the workers, each once for all jobs."""
    proxy_settings: Annotated[dict[str, Any], Field(max_length=32)] = Field(default_factory=dict)
    """The batch that models are scored on (rows, length, data); of partial_training data, recipe and steps."""
    proxy_seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] = 0
    """Of the random weights and tokens that models are scored with."""
    epsilon: Annotated[StrictFloat, Field(ge=0, lt=0.5, allow_inf_nan=False)] = EPSILON
    """The relative error of measurement: smaller differences in quality, latency or peak memory put no candidate on the
    frontier beside another. 0: every difference counts."""
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] = 0


class TargetView(View):
    id: Identifier
    name: str
    device: str
    """Device or device class, as asked for."""
    state: TargetState
    protocol: MeasurementProtocol
    limits: Limits
    generation: int
    candidates: int
    settled: int
    planned: int | None
    """Candidates that the budget and algorithm will have proposed at the end, baselines included."""
    launches_done: int
    frontier_size: int
    marked: int = 0
    """Candidates on the frontier that are `marked`."""
    hypervolume: float
    """In units of the box between the ideal corner and the reference point, 0 to 1 and above."""
    reference: dict[str, float] | None
    measuring_share: float | None
    seconds_left: float | None
    devices_online: int
    note: str
    """What a person should know: waiting for a device, paused, why it ended or failed."""
    answer: str = ""
    """Once it has ended: the recommendation in a few words. Of a job among published models the target of the
    recommended one has it."""
    summary: str
    """The result in one sentence: how much faster and smaller than the baseline at an equal proxy."""


class LiveTrust(View):
    """Spearman's ρ of proxy and quality over models of this target trained in the same way, and its interval."""

    dataset: str
    metric: str
    models: int
    spearman: float
    low: float | None
    high: float | None
    """95 %, by Fisher's z; None of fewer than ten models."""


class ProxyTrust(View):
    """How far the job's proxy can be trusted in its space: what is published, and what was trained here.

    Empty where the server does not say: one from before proxies could be chosen.
    """

    proxy: str = "decoder_parameters"
    sentence: str = ""
    """What a person should know."""
    caveat: str = ""
    """Why the proxy is known to mislead in the space; empty where that is not known."""
    spearman: float | None = None
    """ρ with quality over fully trained models of the space, as published; None where nothing is."""
    best_tenth: float | None = None
    """The same over the best tenth of them."""
    models: int | None = None
    source: str = ""
    live: LiveTrust | None = None


class JobView(View):
    id: Identifier
    name: str
    owner: str
    state: JobState
    reason: str | None
    request: JobRequest
    proxy_trust: ProxyTrust = ProxyTrust()
    """What is published of the job's proxy; a frontier says too what was trained."""
    targets: tuple[TargetView, ...]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_event: int


class JobPage(View):
    items: tuple[JobView, ...]
    next_cursor: str | None = None
