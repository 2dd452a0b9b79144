"""Public responses about candidates: figures, launches, frontiers, details."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.states import CandidateRole, CandidateState, LaunchState, Purpose
from edgefront.core.measurement.figures import Figures
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import Standing
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.jobs import ProxyTrust, Quality
from edgefront.core.schemas.messages import View
from edgefront.core.schemas.predictions import PartView, PredictedView
from edgefront.core.search.pareto.options import LimitName

Group = Literal["frontier", "dominated", "baseline", "outside", "waiting", "unusable"]
"""Groups of candidates: `outside` is out of bounds, `unusable` is infeasible, failed or cancelled."""
GROUPS: tuple[Group, ...] = get_args(Group)
Standings = dict[Identifier, dict[LimitName, Standing]]
"""Candidate id → limit → how the candidate's figure, with its interval, stands to the limit."""


class Versus(View):
    """Comparison of a candidate with the layer-scaled baseline at equal proxy (interpolated between two depths)."""

    latency_ms: float
    memory_bytes: float
    speedup: float
    """Baseline latency divided by the candidate's: 1.5 is 1.5 times as fast."""
    speedup_low: float | None = None
    """Ends of the speedup's 95 % interval, from the launches of candidate and baseline; None while unknown."""
    speedup_high: float | None = None
    memory_ratio: float
    """Baseline peak memory divided by the candidate's."""
    extrapolated: bool
    """Whether the candidate is outside the baseline's range of the proxy."""


class ProposedView(View):
    """A candidate as proposed, and its state."""

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
    """Proxy score, with a sign such that higher is better."""
    predicted: PredictedView | None = None
    """Predictions at the time of the proposal."""


class CandidateView(Figures, ProposedView):
    latency_low_ms: float | None = None
    """Ends of the latency's 95 % interval (`core.measurement.statistics.ends_ms`)."""
    latency_high_ms: float | None = None
    launches: int
    marked: bool = False
    """Whether at least one valid launch was measured in disturbed conditions, or on a device whose anchor has drifted.
    """
    on_frontier: bool
    model: Annotated[str, Field(exclude_if=lambda model: not model)] = ""
    """Id on the Hugging Face Hub of a published model; empty for other candidates."""
    versus_baseline: Versus | None
    created_at: datetime
    measured_at: datetime | None


class LaunchView(View):
    """A launch of a candidate: its device, times and result."""

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
    """Note on disturbed conditions: a busy device, or a device whose anchor has drifted."""
    result: LaunchResult | None
    """Raw samples, memory by component and the environment; None before the report."""


class PagePlace(View):
    """Position of a page among all candidates that match its filters."""

    offset: int
    """Number of candidates before the page."""
    total: int
    groups: dict[Group, int]
    """Number of candidates in each group, regardless of the filter by group."""
    numbers: dict[Identifier, int]
    """Parent id → number, for the parents of the page's candidates."""


class CandidatePage(View):
    items: tuple[CandidateView, ...]
    next_cursor: str | None = None
    place: PagePlace | None = None
    """Position of the page; only for a request by `offset` or `around`."""


class TrainedView(View):
    """Perplexity of a trained candidate on held-out text.

    `ranks` is whether it ranks the candidate: the training equals those of the others and is not too short.
    """

    candidate_id: Identifier
    training_id: Identifier | None
    dataset: str
    split: str
    recipe: str
    perplexity: float
    ranks: bool = True


class FrontierView(View):
    """The non-dominated candidates of a target, in ascending order of decoder parameters, and the baseline.

    `by` is the measure of quality: the job's proxy, or the perplexity of candidates with equal training, which excludes
    all other candidates. Hypervolume, reference and summary always use the proxy. `epsilon` is the relative difference
    in quality, latency or peak memory up to which two candidates count as equal.
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
    """Note on the target, such as few measured candidates because the target was added later."""
    perplexity_of: str = ""
    """Data, split and training of predicted perplexities; empty without predictions."""
    epsilon: float = 0.0
    proxy_trust: ProxyTrust = ProxyTrust()
    by: Quality = "proxy"
    trained: tuple[TrainedView, ...] = ()
    """Perplexities of the largest group of candidates with equal training, on the frontier or not."""
    score: Annotated[str, Field(exclude_if=lambda score: not score)] = ""
    """Score that published models are ranked by, as TABLE:BENCHMARK; empty for other jobs."""
    standings: Standings = Field(default_factory=dict)
    """How the points stand to the limits of the request, else of the target."""


class BlockView(View):
    """One block of an architecture. Blocks are listed in the order of the forward pass, the encoder's first."""

    kind: str
    of_source: bool = False
    width: int
    """Inner width: n_head·d_head of attention, d_inner of feed-forward, d_attn of SRU++, d_proj or d_model of others.
    """
    heads: int | None = None
    kv_heads: int | None = None
    """Number of key/value heads, if heads share them."""
    notes: tuple[str, ...] = ()
    """Other properties of the block in words."""
    parameters: int


class DownloadView(View):
    """Format and logits of a file of a candidate's model, with its number formats."""

    format: str
    logits: Logits | None = None
    """Positions whose logits the graph computes; None if the format has no choice."""
    flops: int | None = None
    """FLOPs of a forward pass of the measured length with these logits."""
    logits_bytes: int | None = None
    """Bytes of these logits."""
    numbers: tuple[str, ...]


class CandidateDetails(View):
    """A candidate with its job, target and ancestors."""

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
    """Parents of the candidate, their parents and so on, at most 24."""
    downloads: tuple[DownloadView, ...]


class MemoryPart(View):
    """A component of predicted peak memory."""

    name: str
    meaning: str
    bytes: float = Field(ge=0)


class CandidateParts(View):
    """Predicted latency and memory of a candidate by part."""

    latency_ms: float | None = None
    parts: tuple[PartView, ...] = ()
    """Latency of each block, then of embedding and output head. The sum is the predicted latency."""
    memory_bytes: float | None = None
    memory_parts: tuple[MemoryPart, ...] = ()
    """Components of memory, largest first. The sum is the predicted peak memory."""
    beyond_measured: bool = False
    """Whether latency and memory are extrapolated: far more, or far fewer, multiply-accumulates than measured models.
    """
    note: str = ""
    """Warning about the predictions, or the reason why there are none."""
