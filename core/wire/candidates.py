"""What the page of one candidate shows beside its `CandidateView`: its blocks, its ancestors, its files, its parts."""

from __future__ import annotations

from pydantic import Field

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.wire.jobs import CandidateView
from edgefront.core.wire.messages import View
from edgefront.core.wire.predictions import PartView


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
