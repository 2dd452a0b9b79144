"""What a job would take, before it is submitted."""

from __future__ import annotations

from typing import Any, Literal

from edgefront.core.wire.jobs import JobRequest
from edgefront.core.wire.messages import View

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
