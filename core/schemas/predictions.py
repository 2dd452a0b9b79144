"""Public requests and responses about predictions: what a model would take on a device, without measuring it;
what a job would take, before it is submitted; and answers about several targets beside each other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgefront.core.common.states import TargetState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.jobs import JobRequest, TrainingBudget
from edgefront.core.schemas.messages import View


class PredictedView(View):
    """What was predicted of an architecture: medians and the ends of 95 % intervals; None where nothing was."""

    perplexity: float | None = None
    """Of a law that knows no perplexity of these data, the ratio to that of `relative_to`."""
    perplexity_low: float | None = None
    perplexity_high: float | None = None
    extrapolated: bool = False
    """The perplexity is that of a model beyond those that the law was learnt from: the interval is wider."""
    law: str | None = None
    """The quality law: `GET /v1/quality/laws/{law}` says on which data, and how long trained."""
    relative_to: str | None = None
    """The named model, trained alike, by whose perplexity this one is divided; None: it is a perplexity."""
    train_tokens: float | None = None
    """Of the training that it is predicted for; None of a law that knows one budget."""
    label: str = ""
    """What the perplexity is of, in about six words: `Dolma, 10B tokens, finished schedule`, or
    `ratio, own data, 10B tokens`."""
    latency_ms: float | None = None
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    memory_bytes: float | None = None
    memory_low_bytes: float | None = None
    memory_high_bytes: float | None = None
    widening: float = 1.0
    """Factor (on the logarithm) by which audits made the latency's interval wider than the predictor's own."""
    memory_widening: float = 1.0


class PredictionRequest(TrainingBudget):
    """One device (its id or name) or a device class, how it measures, and the architectures to predict for it."""

    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol = MeasurementProtocol()
    architectures: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)] | dict[str, Any], ...],
        Field(min_length=1, max_length=64, fail_fast=True),
    ]
    """Each the name of a named model, or a description."""
    law: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """Name of the quality law. None: that of each model's family."""

    @model_validator(mode="after")
    def _one_place(self) -> PredictionRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


class PartView(View):
    """What one block takes of a predicted latency."""

    block: int | None
    """Its place, from 0, a translation model's source first; None for the ends: embedding, output, and each pass."""
    kind: str
    ms: float
    by_feature: dict[str, float]
    """What is counted of it → ms: products, elements and calls of each kind."""


class MeasuredView(View):
    """What was measured of the same architecture on the same device by the same protocol."""

    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int
    launches: int


class PredictionView(View):
    """One architecture of a request."""

    digest: str
    decoder_parameters: int
    total_parameters: int
    weight_bytes: int
    flops: int
    predicted: PredictedView
    """Perplexity is None where no quality law is about such models."""
    parts: tuple[PartView, ...]
    """Where the predicted milliseconds go: each block, then the ends. They sum to the latency."""
    beyond_measured: bool
    """It does much more, or much less, than anything that was measured there: latency and memory are extrapolated."""
    measured: MeasuredView | None
    """None where it was never measured there."""


class PredictionsView(View):
    """Predictions in the order of the request, and what they were learnt from."""

    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    measurements: int
    """Architectures measured there by this protocol, by all jobs."""
    learnt_from: int
    """Those of them that were learnt from: the latest."""
    latency_error: float
    """Mean relative error where each of them was predicted from the others."""
    memory_error: float
    hard_to_predict: bool
    """The device's latencies scatter, or jump, more than predictions can follow: their intervals are wide."""
    note: str
    """What a person should know of them; mostly empty."""
    perplexity_of: str = ""
    """Data, split and training that predicted perplexities are of; empty where none is predicted."""
    predictions: tuple[PredictionView, ...]


MAX_TARGETS = 8


class ComparedTarget(View):
    """One of the targets; ratios are against the first of them."""

    target_id: Identifier
    target: str
    job_id: Identifier
    job_name: str
    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    state: TargetState
    shared: int
    """Architectures of the comparison that are measured here and on the first target."""
    latency_ratio: float | None
    """Median over them: 1.5 is half as much again as on the first target. Where there is none, over those that are
    predicted on one of the two; None without either."""
    latency_ratio_low: float | None = None
    """Ends of its 95 % interval: medians over those models whose launches tell theirs on both; None where none do."""
    latency_ratio_high: float | None = None
    memory_ratio: float | None


class ComparedEntry(View):
    """What an architecture takes on one of the targets."""

    candidate_id: Identifier | None
    """None: another job measured it on the same device by the same protocol, or it is predicted."""
    predicted: bool = False
    """It was not measured there: as predicted, with half of the 95 % interval of one launch."""
    on_frontier: bool
    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int


class ComparedArchitecture(View):
    digest: str
    architecture: dict[str, Any]
    decoder_parameters: int
    total_parameters: int
    perplexity: float | None
    """As predicted; None where no quality law covers it. Of a law that knows no perplexity of these data, the ratio to
    that of `relative_to`."""
    law: str | None
    relative_to: str | None = None
    train_tokens: float | None = None
    label: str = ""
    """What the perplexity is of, in about six words."""
    baseline: bool = False
    """A baseline of one of the targets."""
    entries: tuple[ComparedEntry | None, ...]
    """In the order of the targets; None where it is neither measured nor can be predicted."""


class ComparisonView(View):
    """Every architecture on the frontier of at least one of the targets, and their baselines, by rising decoder
    parameters.
    """

    targets: tuple[ComparedTarget, ...]
    architectures: tuple[ComparedArchitecture, ...]
    perplexity_of: str = ""
    """Data, split and training that predicted perplexities are of; empty where nothing is predicted."""
    note: str = ""
    """What a person should know: passes, runtimes or number formats that differ."""


Source = Literal["predicted", "measured", "flops", "unknown"]


class Refusal(View):
    """One reason why the job would be refused, as the problem document of a submission has it."""

    status: int
    kind: str
    detail: str
    field: str = ""
    value: Any = None
    allowed: str = ""


class Count(View):
    """How many are expected, and how many there can be at most."""

    expected: int
    at_most: int


class StockEstimate(View):
    """What a baseline is predicted to take on the target's device: medians, and the ends of the 95 % interval."""

    name: str
    """In words, as in `4 layers`."""
    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    memory_bytes: float


class TargetEstimate(View):
    """One target. Launches that are known already are not counted: they are not repeated."""

    name: str
    device: str
    """Device or device class, as asked for."""
    baseline_launches: int
    """Further launches of the baselines, each up to its repeats."""
    candidates: Count
    """Proposed by the search, each with its first launch."""
    refinements: Count
    """Further launches where the frontier is uncertain."""
    launches: Count
    """All of them."""
    seconds_per_launch: float | None
    seconds_from: Source
    """predicted: from measurements of this device by this protocol; measured: their pace, where they are too few to
    predict from; flops: from the speed that the device, or its class, reached by other protocols; unknown: nothing was
    measured there."""
    minutes: float | None
    """Of the expected launches, with the time in which the search computes, if the device has no other work."""
    minutes_at_most: float | None
    note: str
    """What a person should know; mostly empty."""
    stock: tuple[StockEstimate, ...] = ()
    """The smallest baseline and the largest, to choose limits by; empty where nothing can be predicted."""


class JobEstimate(View):
    """What a job would take; nothing is stored."""

    request: JobRequest
    """With what it leaves open settled as a submission would."""
    refusals: tuple[Refusal, ...]
    """Everything that a submission would be refused for; empty: it would be accepted."""
    targets: tuple[TargetEstimate, ...]
    """Without those that would be refused."""
    launches: Count
    minutes: float | None
    """Targets on one device are measured after each other, others at the same time; None if any is unknown."""
    minutes_at_most: float | None
    candidates: Count
    """Stored in all, baselines included."""
    event_bytes: Count
    """Of the job's log, which the event stream and the pages read."""
    model_bytes: int | None
    """A candidate's model file in float32, in the mean; made when it is downloaded. None if the job is refused."""
    note: str = ""
    """What a person should know: that the quality law is of other data than the job's."""
