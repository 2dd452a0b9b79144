"""Public answers about several targets beside each other: of one job or of several."""

from __future__ import annotations

from typing import Any

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.states import TargetState
from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View

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
