"""Reports of a supernet's training: the probability of each block in each layer, over the steps."""

from __future__ import annotations

from typing import Literal

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View


class ProbabilityRecord(View):
    """After a step: one row a layer, one number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[tuple[float, ...], ...]


class SearchProgress(View):
    """The search of one seed."""

    seed: int
    phase: Literal["weights", "tuning"]
    """Weights only, or weights and probabilities alternately."""
    pattern: str
    """The likeliest block of each layer so far: s attention, f feed-forward, i identity."""
    expected_ms: float | None = None
    """Latency of the blocks that the probabilities stand for; None without a latency term."""
    records: tuple[ProbabilityRecord, ...]
    """By rising step, the last one where the search stands."""


class ProbabilitiesView(View):
    training_id: Identifier
    choices: tuple[str, ...]
    """What the numbers of a row belong to."""
    searches: tuple[SearchProgress, ...]
    """One a seed; empty before the first report."""
