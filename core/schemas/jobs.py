"""Public requests and responses about jobs, their targets and events. Shared by the API and the client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, Strict, StrictFloat, StrictInt, field_validator, model_validator

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import (
    Goal,
    JobState,
    TargetState,
)
from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.common.validation import checked, short
from edgefront.core.measurement.protocol import Latency, MeasurementProtocol
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.messages import Request, View
from edgefront.core.schemas.published import PublishedRequest, Variants

Quality = Literal["proxy", "perplexity"]
TrainTokens = Annotated[StrictInt, Field(ge=MIN_TRAIN_TOKENS, le=MAX_TRAIN_TOKENS)]

ProxyName = Literal["auto", "decoder_parameters", "total_parameters", "quality_law", "published_score"]
"""Proxies of a search, which are computed without building a model."""

PUBLISHED = "published"
"""Name of the space of published models."""
MAX_TARGETS = 16
EPSILON = 0.02
"""Default of `epsilon`: the default precision of a protocol."""

MAX_LIMIT = 1e15
"""Maximum value of a limit, in the limit's unit."""
Positive = Annotated[StrictFloat, Field(gt=0, le=MAX_LIMIT, allow_inf_nan=False)]
TrainHours = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
LawName = Annotated[str, Field(min_length=1, max_length=64)]
TrainerName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]


class TrainerPace(Request):
    """Training speed of a worker: seconds_per_token + seconds_per_flop · FLOPs per token."""

    seconds_per_token: Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
    seconds_per_flop: Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
    segment: Annotated[StrictInt, Field(ge=1, le=1 << 20)]
    """Tokens per sequence, for the FLOPs of attention."""
    trainings: Annotated[StrictInt, Field(ge=0)] = 0
    """Number of trainings that the pace was fitted to."""

    @model_validator(mode="after")
    def _takes_time(self) -> TrainerPace:
        if self.seconds_per_token + self.seconds_per_flop <= 0:
            raise ValueError("seconds_per_token or seconds_per_flop must be above 0")
        return self


class TrainTime(Request):
    """Training time on a worker of the pool, which determines the training tokens of each model."""

    hours: Annotated[TrainHours, Strict()]
    trainer: TrainerName
    pace: TrainerPace | None = None
    """Pace of the trainer; None: fitted to the worker's ended trainings, as `GET /v1/trainers` lists it."""


class PredictionBudget(Request):
    """Training budget of predicted perplexities, for scaling laws that model one. Without fields: the law's default."""

    train_tokens: TrainTokens | None = None
    """Training tokens of each model."""
    train_time: TrainTime | None = None
    """Training time on a worker instead of tokens; smaller models see more tokens in this time."""

    @model_validator(mode="after")
    def _one_budget(self) -> PredictionBudget:
        if self.train_tokens is not None and self.train_time is not None:
            raise ValueError("give train_tokens or train_time, not both")
        return self

    @classmethod
    def of(
        cls, train_tokens: int | None = None, train_hours: float | None = None, trainer: str | None = None
    ) -> PredictionBudget:
        """Returns the budget for parameters of queries and commands. `InvalidInput` for contradictory parameters."""
        if (train_hours is None) != (trainer is None):
            raise InvalidInput(
                "train_hours and trainer must be given together: the training time, and the worker",
                field="trainer" if trainer is None else "train_hours",
                allowed="both, or neither",
            )
        if train_hours is None:
            return checked(PredictionBudget, {"train_tokens": train_tokens})
        if train_tokens is not None:
            raise InvalidInput(
                "give train_tokens or train_hours, not both",
                field="train_tokens",
                value=train_tokens,
                allowed="omit it, or omit train_hours",
            )
        return checked(PredictionBudget, {"train_time": {"hours": float(train_hours), "trainer": trainer}})

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of the budget that are set."""
        return self.model_dump(include={"train_tokens", "train_time"}, exclude_none=True)


NO_BUDGET = PredictionBudget()


class SpaceRequest(Request):
    """A catalogued search space, narrowed: each gene to some of its values, as a list or as {min, max, step}.

    With a `model`, the space is the part of the catalogued space around that model, which is the job's baseline. With
    `published`, the space is a list of published models.
    """

    name: Annotated[str, Field(max_length=64)] = "lts-gpt2"
    """Name of the space. Default with a `model`: `auto`, the space that contains the model."""
    narrow: Annotated[dict[str, Any], Field(max_length=32)] = Field(default_factory=dict)
    model: dict[str, Any] | None = None
    """An architecture, such as `POST /v1/models/import` returns."""
    inherit: Annotated[Identifier | None, Field(exclude_if=lambda inherit: inherit is None)] = None
    """An imported model with a study of its submodels, which form the space and inherit its weights. `model` is the
    architecture of this model, also if absent."""
    published: Annotated[PublishedRequest | None, Field(exclude_if=lambda published: published is None)] = None
    """Filter of the space `published`, which is the default name with this field."""

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
            raise ValueError(f"the field published needs the space {PUBLISHED}, without the fields name and model")
        if self.published is not None and self.inherit is not None:
            raise ValueError("give published or inherit, not both")
        if self.published is None and self.name == PUBLISHED:
            object.__setattr__(self, "published", PublishedRequest())
        return self


class Limits(Request):
    """Limits on measured figures. Candidates beyond the limits are stored and shown, but never on the frontier.

    `latency_ms` limits the protocol's latency.
    """

    latency_ms: Positive | None = None
    memory_mb: Positive | None = None
    """Peak memory in MB (10^6 bytes)."""
    first_token_ms: Annotated[Positive | None, Field(exclude_if=lambda limit: limit is None)] = None
    """In mode generate: time from the prompt to the first token."""
    token_ms: Annotated[Positive | None, Field(exclude_if=lambda limit: limit is None)] = None
    """In mode generate: time of each later token."""

    @property
    def any(self) -> bool:
        """Whether any limit is set."""
        return bool(self.times) or self.latency_ms is not None or self.memory_mb is not None

    @property
    def times(self) -> dict[Latency, float]:
        """Returns the limits on times of a text generation by name, without `latency_ms`."""
        limits: dict[Latency, float | None] = {"first_token": self.first_token_ms, "token": self.token_ms}
        return {name: limit for name, limit in limits.items() if limit is not None}


NO_LIMITS = Limits()


class TargetRequest(Request):
    """Target of a job: one device (id or name) or a device class, and the measurement protocol."""

    name: Name | None = None
    """Name, unique within the job; default: derived from device and runtime."""
    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol = MeasurementProtocol()
    limits: Limits = Limits()
    variants: Annotated[Variants | None, Field(exclude_if=lambda variants: variants is None)] = None
    """If set, the service replaces the target by one target per variant when the job is stored."""
    added: bool = False
    """Set by the service: the target was added later, and measures only candidates of the job's other targets."""

    @model_validator(mode="after")
    def _one_place(self) -> TargetRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


class AddedTargetRequest(Request):
    """Another device (id or name) or device class for a job."""

    name: Name | None = None
    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol | None = None
    """Default: the protocol of the job's first target."""
    limits: Limits | None = None
    """Default: the limits of the job's first target."""

    @model_validator(mode="after")
    def _one_place(self) -> AddedTargetRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


Algorithm = Literal["auto", "surrogate", "listed", "lts", "random", "par-supernet"]


class AlgorithmRequest(Request):
    """Search algorithm of a job, with its settings (see `GET /v1/catalogue/algorithms`)."""

    name: Algorithm = "auto"
    """auto: surrogate; listed for published models."""
    settings: Annotated[dict[str, Any], Field(max_length=32)] = Field(default_factory=dict)


class Budget(Request):
    """Bounds of a search. A target ends at the first bound that it reaches, or when its algorithm ends."""

    candidates: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None
    """Maximum number of proposals of each target, without baselines."""
    minutes: Positive | None = None
    """Wall-clock time of the search on each device, from the job's first launch on the device, without pauses.
    Then pending launches are cancelled.
    """
    refinement: Annotated[StrictFloat, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    """Number of further launches of uncertain frontier points, as a share of the number of first launches."""


class ParameterLimits(Request):
    """Bounds on the parameter counts of proposals, checked before any measurement."""

    min_decoder: Annotated[StrictInt, Field(ge=0)] | None = None
    max_decoder: Annotated[StrictInt, Field(ge=1)] | None = None
    max_total: Annotated[StrictInt, Field(ge=1)] | None = None


class SearchLaw(Request):
    """The scaling law that predicts the perplexities of a search."""

    law: Annotated[LawName | None, Field(exclude_if=lambda law: law is None)] = None
    """A shipped scaling law, or one refined by the owner's trainings. Default: that of the space's model family."""


class JobRequest(PredictionBudget):
    name: Name | None = None
    """Default: the kind of search and the limits."""
    space: SpaceRequest = SpaceRequest()
    targets: Annotated[tuple[TargetRequest, ...], Field(min_length=1, max_length=MAX_TARGETS, fail_fast=True)]
    algorithm: AlgorithmRequest = AlgorithmRequest()
    budget: Budget = Budget()
    parameters: ParameterLimits = ParameterLimits()
    baseline_layers: (
        Annotated[tuple[Annotated[StrictInt, Field(ge=1, le=256)], ...], Field(max_length=64, fail_fast=True)] | None
    ) = None
    """Depths of the stock model to measure. Default: 1 to the deepest of the narrowed space. If the goal is the best
    model within limits, depths whose weights alone exceed the memory are left out, and at most five are measured, to
    find the deepest one within the limits.
    """
    goal: Literal[Goal.FRONTIER, Goal.BEST_WITHIN_LIMITS] = Goal.FRONTIER
    """Goal for each target: its frontier, or its best model within the limits."""
    proxy: ProxyName = "auto"
    """The proxy for quality; auto: quality_law if a scaling law covers the space, else decoder_parameters;
    published_score for published models."""
    proxy_settings: SearchLaw = SearchLaw()
    epsilon: Annotated[StrictFloat, Field(ge=0, lt=0.5, allow_inf_nan=False)] = EPSILON
    """Relative error of measurement: smaller differences in quality, latency or peak memory do not count for the
    frontier. 0: every difference counts.
    """
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] = 0

    @field_validator("proxy", mode="before")
    @classmethod
    def _is_immediate(cls, proxy: Any) -> Any:
        if isinstance(proxy, str) and proxy not in get_args(ProxyName):
            allowed = ", ".join(get_args(ProxyName))
            raise InvalidInput(
                f"a search ranks by {allowed}, not by {short(proxy)}; `edgefront proxy score` computes the others",
                value=proxy[:80],
                allowed=allowed,
            )
        return proxy


class TargetView(View):
    id: Identifier
    name: str
    device: str
    """Requested device or device class."""
    state: TargetState
    protocol: MeasurementProtocol
    limits: Limits
    generation: int
    candidates: int
    settled: int
    planned: int | None
    """Maximum number of candidates by budget and algorithm, baselines included; many searches end sooner."""
    launches_done: int
    frontier_size: int
    marked: int = 0
    """Number of frontier candidates that are `marked`."""
    hypervolume: float
    """Hypervolume in units of the box between ideal and reference point; may exceed 1."""
    reference: dict[str, float] | None
    measuring_share: float | None
    seconds_left: float | None
    devices_online: int
    note: str
    """Status in words, such as a wait for a device, or the reason for an end or failure."""
    answer: str = ""
    """After the target's end: the recommendation in a few words, or why this target has none."""
    summary: str
    """The comparison with the baseline at equal proxy in one sentence."""


class LiveTrust(View):
    """Spearman's ρ of proxy and quality over this target's models with equal training."""

    dataset: str
    metric: str
    models: int
    spearman: float
    low: float | None
    high: float | None
    """95 % interval of ρ by Fisher's z; None for fewer than ten models."""


class ProxyTrust(View):
    """Reliability of the job's proxy in its space: published figures, and trainings of the job's models."""

    proxy: str = "decoder_parameters"
    sentence: str = ""
    """Reliability of the proxy in words."""
    caveat: str = ""
    """Reason why the proxy misleads in the space; empty without one."""
    spearman: float | None = None
    """Published ρ with quality over fully trained models of the space; None if unknown."""
    best_tenth: float | None = None
    """Published ρ with quality over the best tenth of these models."""
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
    """Published figures on the proxy; a `FrontierView` also has figures of trainings."""
    targets: tuple[TargetView, ...]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_event: int


class JobPage(View):
    items: tuple[JobView, ...]
    next_cursor: str | None = None
