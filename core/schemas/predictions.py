"""Public requests and responses: predictions of models on a device, estimates of jobs, comparisons of targets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgefront.core.common.states import TargetState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.jobs import JobRequest, TrainingBudget
from edgefront.core.schemas.messages import View


class PredictedView(View):
    """Predictions of an architecture: medians and 95 % intervals; None for figures without a prediction."""

    perplexity: float | None = None
    """With `relative_to`: the ratio to that model's perplexity."""
    perplexity_low: float | None = None
    perplexity_high: float | None = None
    extrapolated: bool = False
    """Whether the model is beyond the scaling law's data, so that the interval is wider."""
    law: str | None = None
    """Name of the scaling law: `GET /v1/quality/laws/{law}`."""
    relative_to: str | None = None
    """The named model, trained alike, to whose perplexity this is the ratio; None: it is a perplexity."""
    train_tokens: float | None = None
    """Training tokens of the prediction; None for a law of one budget."""
    label: str = ""
    """Data and training in about six words: `Dolma, 10B tokens, finished schedule`, `ratio, own data, 10B tokens`."""
    latency_ms: float | None = None
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    memory_bytes: float | None = None
    memory_low_bytes: float | None = None
    memory_high_bytes: float | None = None
    widening: float = 1.0
    """Factor by which audits widened the interval of the latency, on the logarithm."""
    memory_widening: float = 1.0


class PredictionRequest(TrainingBudget):
    """Architectures to predict on a device (id or name) or a device class under a protocol."""

    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol = MeasurementProtocol()
    architectures: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)] | dict[str, Any], ...],
        Field(min_length=1, max_length=64, fail_fast=True),
    ]
    """Names of named models, or descriptions."""
    law: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """Name of the scaling law. None: the default of each model's family."""

    @model_validator(mode="after")
    def _one_place(self) -> PredictionRequest:
        if self.device is not None and self.device_class is not None:
            raise ValueError("give device or device_class, not both")
        return self


class PartView(View):
    """Share of one block in a predicted latency."""

    block: int | None
    """Index from 0, the encoder's blocks first; None for embedding, output head and the pass itself."""
    kind: str
    ms: float
    by_feature: dict[str, float]
    """Feature → ms: multiply-accumulates, elements and calls of each kind."""


class MeasuredView(View):
    """The measurement of the same architecture, device and protocol."""

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
    """Perplexity is None if no scaling law covers the model."""
    parts: tuple[PartView, ...]
    """Predicted milliseconds of each block, then of embedding and output head. They sum to the latency."""
    beyond_measured: bool
    """Whether latency and memory are extrapolated beyond the measured models."""
    measured: MeasuredView | None
    """None if it was not measured there."""


class PredictionsView(View):
    """Predictions in the order of the request, and the predictors' data."""

    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    measurements: int
    """Number of architectures measured there by this protocol, of all jobs."""
    learnt_from: int
    """Number of those, the latest, that the predictors were fitted to."""
    latency_error: float
    """Mean relative error of leave-one-out predictions."""
    memory_error: float
    hard_to_predict: bool
    """Whether the device's latencies scatter or jump, so that intervals are wide."""
    note: str
    """A warning; mostly empty."""
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    predictions: tuple[PredictionView, ...]


MAX_TARGETS = 8


class ComparedTarget(View):
    """A compared target; ratios are to the first target."""

    target_id: Identifier
    target: str
    job_id: Identifier
    job_name: str
    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    state: TargetState
    shared: int
    """Number of architectures measured here and on the first target."""
    latency_ratio: float | None
    """Median ratio over them; if there are none, over those that are predicted on one of the two; None without either.
    """
    latency_ratio_low: float | None = None
    """Ends of its 95 % interval: medians over the models with intervals on both; None without any."""
    latency_ratio_high: float | None = None
    memory_ratio: float | None


class ComparedEntry(View):
    """Figures of an architecture on one of the targets."""

    candidate_id: Identifier | None
    """None if another job measured it, or if it is predicted."""
    predicted: bool = False
    """Whether the figures are predicted, with half of the 95 % interval of one launch."""
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
    """Predicted; None if no scaling law covers the model. With `relative_to`: the ratio to that model's perplexity."""
    law: str | None
    relative_to: str | None = None
    train_tokens: float | None = None
    label: str = ""
    """Data and training of the perplexity in about six words."""
    baseline: bool = False
    """Whether it is a baseline of one of the targets."""
    entries: tuple[ComparedEntry | None, ...]
    """In the order of the targets; None if neither measured nor predicted."""


class ComparisonView(View):
    """The frontier architectures and baselines of all targets, by rising decoder parameters."""

    targets: tuple[ComparedTarget, ...]
    architectures: tuple[ComparedArchitecture, ...]
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    note: str = ""
    """Warning about passes, runtimes or number formats that differ."""


Source = Literal["predicted", "measured", "flops", "unknown"]


class Refusal(View):
    """A reason to refuse the job, as in the problem document of a submission."""

    status: int
    kind: str
    detail: str
    field: str = ""
    value: Any = None
    allowed: str = ""


class Count(View):
    """Expected and maximum number."""

    expected: int
    at_most: int


class StockEstimate(View):
    """Predicted figures of a baseline on the target's device: medians and 95 % intervals."""

    name: str
    """In words, as in `4 layers`."""
    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    memory_bytes: float


class TargetEstimate(View):
    """Estimate of one target, without launches that exist already."""

    name: str
    device: str
    """Device or device class, as asked for."""
    baseline_launches: int
    """Launches of the baselines, repeats included."""
    candidates: Count
    """Proposals of the search, each with one launch."""
    refinements: Count
    """Further launches of uncertain candidates."""
    launches: Count
    """All launches."""
    seconds_per_launch: float | None
    seconds_from: Source
    """predicted: from measurements of this device by this protocol; measured: their mean, if too few for predictions;
    flops: from the speed of the device or its class under other protocols; unknown: no measurements."""
    minutes: float | None
    """For the expected launches and the search's computation, if the device has no other work."""
    minutes_at_most: float | None
    note: str
    """What a person should know; mostly empty."""
    stock: tuple[StockEstimate, ...] = ()
    """The smallest and the largest baseline, for the choice of limits; empty without predictions."""


class JobEstimate(View):
    """The estimate of a job; nothing is stored."""

    request: JobRequest
    """With defaults resolved as in a submission."""
    refusals: tuple[Refusal, ...]
    """All reasons to refuse a submission; empty: it would be accepted."""
    targets: tuple[TargetEstimate, ...]
    """Without refused targets."""
    launches: Count
    minutes: float | None
    """Targets of one device add up, devices run in parallel; None if any is unknown."""
    minutes_at_most: float | None
    candidates: Count
    """Stored candidates, baselines included."""
    event_bytes: Count
    """Size of the job's event log."""
    model_bytes: int | None
    """Mean size of a candidate's model file in float32; None if the job is refused."""
    note: str = ""
    """Warning if the scaling law was fitted to other data than the job's."""
