"""Public responses about candidates: their figures, their launches, frontiers, and what the page of one shows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

from pydantic import Field

from edgefront.core.common.states import CandidateRole, CandidateState, LaunchState, Purpose
from edgefront.core.measurement.figures import Figures
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.jobs import ProxyTrust, Quality
from edgefront.core.schemas.messages import View
from edgefront.core.schemas.predictions import PartView, PredictedView

Group = Literal["frontier", "dominated", "baseline", "outside", "waiting", "unusable"]
"""Every candidate belongs to one: `outside` is out of bounds, `unusable` infeasible, failed or cancelled."""
GROUPS: tuple[Group, ...] = get_args(Group)


class Versus(View):
    """A candidate against the layer-scaled baseline at an equal proxy (linear between two depths)."""

    latency_ms: float
    memory_bytes: float
    speedup: float
    """Baseline latency over the candidate's: 1.5 is one and a half times as fast."""
    speedup_low: float | None = None
    """The ends of its 95 % interval, which holds the launches of both sides; None while that is not known."""
    speedup_high: float | None = None
    memory_ratio: float
    """Baseline peak memory over the candidate's."""
    extrapolated: bool
    """The candidate lies outside the baseline's range of the proxy."""


class ProposedView(View):
    """A candidate as the search proposed it, and its state."""

    id: Identifier
    job_id: Identifier
    target_id: Identifier
    number: int
    role: Literal[CandidateRole.BASELINE, CandidateRole.SEARCH]
    generation: int
    operator: str
    parents: tuple[Identifier, ...]
    state: CandidateState
    reason: str | None
    digest: str
    architecture: dict[str, Any]
    decoder_parameters: int
    total_parameters: int
    weight_bytes: int
    flops: int
    proxy: float
    """Higher is better: the score, with its sign flipped where lower is better. 0 where a model could not be scored."""
    predicted: PredictedView | None = None
    """As it was proposed; None of candidates of earlier releases."""


class CandidateView(Figures, ProposedView):
    launches: int
    marked: bool = False
    """At least one of the launches that count was measured under conditions out of the ordinary, or on a device whose
    anchor has moved."""
    on_frontier: bool
    versus_baseline: Versus | None
    created_at: datetime
    measured_at: datetime | None


class LaunchView(View):
    """One launch behind a candidate's numbers: where and when it ran, and what it found."""

    id: Identifier
    state: LaunchState
    purpose: Purpose
    attempts: int
    device_id: Identifier | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    mark: str | None = None
    """What to know of the conditions that it was measured in: a busy device, or one whose anchor has moved."""
    result: LaunchResult | None
    """Raw samples, memory by parts and the environment; None while there is none."""


class PagePlace(View):
    """Where a page stands among all candidates that its filters let through."""

    offset: int
    """Candidates before it."""
    total: int
    groups: dict[Group, int]
    """Number of candidates in each group, whichever group the filters ask for."""
    numbers: dict[Identifier, int]
    """Numbers of its candidates' parents, by id."""


class CandidatePage(View):
    items: tuple[CandidateView, ...]
    next_cursor: str | None = None
    place: PagePlace | None = None
    """Of a page that was asked for by `offset` or `around`."""


class TrainedView(View):
    """What a candidate scored on held-out text once it was trained."""

    candidate_id: Identifier
    training_id: Identifier | None
    dataset: str
    split: str
    recipe: str
    perplexity: float


class FrontierView(View):
    """The non-dominated candidates of a target, by rising decoder parameters, with the baseline beside them.

    `by` says what stands for quality: the job's proxy, or the perplexity of those that were trained alike, in whose
    frontier are no others. Hypervolume, reference and summary are those by the proxy. `epsilon` is the relative
    difference in quality, latency or peak memory up to which two candidates count as alike.
    """

    job_id: Identifier
    target_id: Identifier
    target: str
    hypervolume: float
    reference: dict[str, float] | None
    points: tuple[CandidateView, ...]
    baseline: tuple[CandidateView, ...]
    summary: str
    own_model: bool = False
    """Whether `baseline` is the model that the job starts from (`space.model`)."""
    note: str = ""
    """What a person should know: that the target was added later, and how few were measured there."""
    perplexity_of: str = ""
    """Data, split and training that predicted perplexities are of; empty where nothing is predicted."""
    epsilon: float = 0.0
    proxy_trust: ProxyTrust = ProxyTrust()
    by: Quality = "proxy"
    trained: tuple[TrainedView, ...] = ()
    """Of the candidates that were trained, on the frontier or not: the largest group trained alike."""


class BlockView(View):
    """One block of an architecture, in the order of a pass; of a translation model the source's come first."""

    kind: str
    of_source: bool = False
    width: int
    """Features inside: n_head·d_head of an attention, d_inner of a feed-forward, d_attn of an SRU++, d_proj or d_model
    of others."""
    heads: int | None = None
    kv_heads: int | None = None
    """Heads of keys and values, each for several heads of queries; None where every head has its own."""
    notes: tuple[str, ...] = ()
    """What else is particular of it, in words."""
    parameters: int


class DownloadView(View):
    """A format of a candidate's model, and the number formats that it comes in."""

    format: str
    numbers: tuple[str, ...]


class CandidateDetails(View):
    """A candidate with what it belongs to and what it comes from."""

    candidate: CandidateView
    job_name: str
    target: str
    device: str
    """Device or device class."""
    protocol: MeasurementProtocol
    d_model: int
    blocks: tuple[BlockView, ...]
    position_parameters: int
    embedding_parameters: int
    ancestors: tuple[CandidateView, ...]
    """Its parents, then theirs, and so on: 24 at most."""
    downloads: tuple[DownloadView, ...]


class MemoryPart(View):
    """What holds some of a predicted peak memory."""

    name: str
    meaning: str
    bytes: float = Field(ge=0)


class CandidateParts(View):
    """Where the milliseconds and bytes of a candidate go, as predicted from the measurements on its device."""

    latency_ms: float | None = None
    parts: tuple[PartView, ...] = ()
    """Each block, then the ends. They sum to the latency."""
    memory_bytes: float | None = None
    memory_parts: tuple[MemoryPart, ...] = ()
    """The largest first. They sum to the peak memory."""
    beyond_measured: bool = False
    """It does much more, or much less, than anything that was measured there: both are extrapolated."""
    note: str = ""
    """What a person should know; why nothing is predicted, where that is so."""
