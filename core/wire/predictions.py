"""Public requests and responses about predictions: what a model would take on a device, without measuring it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.wire.agent import Name
from edgefront.core.wire.jobs import TrainingBudget
from edgefront.core.wire.messages import View


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
