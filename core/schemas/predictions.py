"""Public requests and responses: predictions of models on a device, estimates of jobs, comparisons of targets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgefront.core.common.states import TargetState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import Standing
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.jobs import JobRequest, PredictionBudget
from edgefront.core.schemas.messages import View
from edgefront.core.search.pareto.options import LimitName


class PredictedView(View):
    """Predictions of an architecture: medians and 95 % intervals; None for figures without a prediction."""

    perplexity: float | None = None
    """Median perplexity. With `relative_to`: median ratio to that model's perplexity."""
    perplexity_low: float | None = None
    perplexity_high: float | None = None
    extrapolated: bool = False
    """Whether the model is outside the range of the scaling law's data, so that the interval is wider."""
    law: str | None = None
    """Name of the scaling law: `GET /v1/quality/laws/{law}`."""
    relative_to: str | None = None
    """Named model with equal training whose perplexity `perplexity` is relative to; None: not a ratio."""
    train_tokens: float | None = None
    """Training tokens of the prediction; None for a scaling law with one budget."""
    label: str = ""
    """Data and training in about six words: `Dolma, 10B tokens, finished schedule`, `ratio, own data, 10B tokens`."""
    latency_ms: float | None = None
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    memory_bytes: float | None = None
    memory_low_bytes: float | None = None
    memory_high_bytes: float | None = None
    widening: float = 1.0
    """Factor by which audits widened the interval of the logarithm of latency."""
    memory_widening: float = 1.0


class PredictionRequest(PredictionBudget):
    """Request for predictions of architectures on a device (id or name) or a device class by a protocol."""

    device: Name | None = None
    device_class: Name | None = None
    protocol: MeasurementProtocol = MeasurementProtocol()
    architectures: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)] | dict[str, Any], ...],
        Field(min_length=1, max_length=64, fail_fast=True),
    ]
    """Names of catalogued models, or architecture descriptions."""
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
    """Index of the block from 0, the encoder's blocks first; None for embedding, output head and the pass itself."""
    kind: str
    ms: float
    by_feature: dict[str, float]
    """Feature → ms: multiply-accumulates, elements and calls of each kind."""


class MeasuredView(View):
    """Measurement of a predicted architecture on the same device by the same protocol."""

    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int
    launches: int


class PredictionView(View):
    """Predictions and measurement of one architecture of a request."""

    digest: str
    decoder_parameters: int
    total_parameters: int
    weight_bytes: int
    flops: int
    predicted: PredictedView
    """Predicted figures; the perplexity is None if no scaling law covers the model."""
    parts: tuple[PartView, ...]
    """Predicted latency of each block, then of embedding and output head, ms. The sum is the predicted latency."""
    beyond_measured: bool
    """Whether latency and memory are extrapolated beyond the measured models."""
    measured: MeasuredView | None
    """Measurement of the architecture; None if it was not measured on the device by the protocol."""


class PredictionsView(View):
    """Predictions in the order of the request, and information on the data of the predictors."""

    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    measurements: int
    """Number of architectures measured on the device by this protocol, in all jobs."""
    learnt_from: int
    """Number of the latest measurements that the predictors were fitted to."""
    latency_error: float
    """Mean relative error of leave-one-out predictions of latency."""
    memory_error: float
    hard_to_predict: bool
    """Whether the device's latencies scatter or jump, so that intervals are wide."""
    note: str
    """Warning about the predictions; mostly empty."""
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    predictions: tuple[PredictionView, ...]


class ComparedTarget(View):
    """A compared target. Ratios are relative to the first target."""

    target_id: Identifier
    target: str
    job_id: Identifier
    job_name: str
    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    state: TargetState
    time: LimitName = "latency_ms"
    """The limited time of the target, that of a further token before others; without such a limit the latency."""
    shared: int
    """Number of architectures measured on this target and on the first target."""
    latency_ratio: float | None
    """Median latency ratio over the architectures measured on both targets; without any, over those predicted on one of
    the two. None without either.
    """
    latency_ratio_low: float | None = None
    """Ends of the ratio's 95 % interval: medians over the models with intervals on both targets; None without any."""
    latency_ratio_high: float | None = None
    memory_ratio: float | None


class ComparedEntry(View):
    """Figures of an architecture on one of the compared targets."""

    candidate_id: Identifier | None
    """Candidate of the target; None if another job measured the architecture, or if the figures are predicted."""
    predicted: bool = False
    """Whether the figures are predicted. The half-width is then half the 95 % interval of one launch."""
    on_frontier: bool
    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int
    time_ms: float | None = None
    """Time that `ComparedTarget.time` names; None if it was neither measured nor predicted."""
    time_half_width_ms: float | None = None
    standings: dict[LimitName, Standing] = Field(default_factory=dict)
    """How the candidate of the target stands to the target's limits."""


class ComparedArchitecture(View):
    digest: str
    model: str = ""
    """Id on the Hugging Face Hub of a published model; empty for others."""
    score: float | None = None
    """Score of a published model in the benchmark of its job (`ComparisonView.score`)."""
    architecture: dict[str, Any]
    decoder_parameters: int
    total_parameters: int
    perplexity: float | None
    """Predicted perplexity; None if no scaling law covers the model. With `relative_to`: ratio to that model's."""
    law: str | None
    relative_to: str | None = None
    train_tokens: float | None = None
    label: str = ""
    """Data and training of the perplexity in about six words."""
    baseline: bool = False
    """Whether the architecture is a baseline of one of the targets."""
    entries: tuple[ComparedEntry | None, ...]
    """Figures in the order of the targets; None if neither measured nor predicted."""


class ComparisonView(View):
    """Frontier architectures and baselines of all targets, in ascending order of decoder parameters."""

    targets: tuple[ComparedTarget, ...]
    architectures: tuple[ComparedArchitecture, ...]
    score: str = ""
    """Scores of the compared jobs among published models, as TABLE:BENCHMARK; empty without such jobs."""
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    note: str = ""
    """Warning about targets with different protocols; else empty."""


Source = Literal["predicted", "measured", "flops", "unknown"]


class Refusal(View):
    """Reason to refuse a job, as in the problem document of a submission."""

    status: int
    kind: str
    detail: str
    field: str = ""
    value: Any = None
    allowed: str = ""


class Count(View):
    """Expected and maximum number of launches, candidates or bytes."""

    expected: int
    at_most: int


class StockEstimate(View):
    """Predicted figures of a baseline on the target's device: medians and 95 % intervals."""

    name: str
    """Depth in words, as in `4 layers`."""
    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    memory_bytes: float


class TargetEstimate(View):
    """Estimate of one target, without launches that exist already."""

    name: str
    device: str
    """Requested device or device class."""
    baseline_launches: int
    """Number of launches of the baselines, repeats included."""
    candidates: Count
    """Number of proposals of the search, each with one launch."""
    refinements: Count
    """Number of further launches of uncertain candidates."""
    launches: Count
    """Number of all launches."""
    seconds_per_launch: float | None
    seconds_from: Source
    """predicted: from measurements of this device by this protocol; measured: the median of those launches, if too few
    for predictions; flops: from the speed of the device or its class under other protocols; unknown: no
    measurements."""
    minutes: float | None
    """Minutes of the expected launches and the search's computation, if the device has no other work."""
    minutes_at_most: float | None
    note: str
    """Note on the estimate, such as an offline device; mostly empty."""
    stock: tuple[StockEstimate, ...] = ()
    """The smallest and the largest baseline, for the choice of limits; empty without predictions."""


class JobEstimate(View):
    """The estimate of a job; nothing is stored."""

    request: JobRequest
    """The request with defaults resolved as in a submission."""
    refusals: tuple[Refusal, ...]
    """All reasons to refuse a submission; empty if it would be accepted."""
    targets: tuple[TargetEstimate, ...]
    """Estimates of the targets, without refused targets."""
    launches: Count
    minutes: float | None
    """Minutes of the job: targets of one device add up, devices run in parallel. None if any time is unknown."""
    minutes_at_most: float | None
    candidates: Count
    """Number of stored candidates, baselines included."""
    event_bytes: Count
    """Size of the job's event log, bytes."""
    model_bytes: int | None
    """Mean size of a candidate's model file in float32, bytes; None if the job is refused."""
    note: str = ""
    """Warning if the scaling law was fitted to other data than the job's."""
