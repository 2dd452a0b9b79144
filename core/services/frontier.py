"""The frontier of a target: kept with every report, and shown with the baseline beside it.

The frontier is the non-dominated set (proxy up, latency down, peak memory down) of the target's measured, in-bounds
*search* candidates. Baselines are not members: they stand beside it as what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from core.services.keys import Principal
from core.store.tables import Candidate, Measurement, Target
from core.wire.jobs import FrontierView


@dataclass(frozen=True)
class Finding:
    """News of a candidate: its measurement as it stands now (measured, infeasible or failed).

    `half_width_ms` is half of the 95 % interval of the measurement's latency, None where unknown.
    """

    candidate: Candidate
    measurement: Measurement
    half_width_ms: float | None


@dataclass(frozen=True)
class FrontierChange:
    joined: tuple[str, ...]
    left: tuple[str, ...]
    size: int
    hypervolume: float


def candidate_settled(
    session: Session, target: Target, findings: Sequence[Finding], now: datetime
) -> FrontierChange:
    """Takes findings into the candidates, the target's counters, its frontier and the job's event log.

    Call it once per target and transaction with every finding, with the target's row locked and the candidates *not*
    yet touched: this copies the measurement into the candidate (numbers, launches, state: measured, out_of_bounds by
    the target's limits, infeasible or failed with the reason), counts `target.settled`, sets `target.started_at` at
    the first launch of its own, moves `on_frontier`, and appends `candidate` events and, if it moved, a `frontier`
    event. Cost: the frontier's rows and the findings, not the target's candidates, unless a member got worse.
    """
    raise NotImplementedError


def frontier_view(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    *,
    max_latency_ms: float | None = None,
    max_memory_mb: float | None = None,
) -> FrontierView:
    """The frontier of one target (by id or name; None: the job's first), points by rising decoder parameters.

    The filters ("the best under 50 ms and 300 MB", MiB) leave out points beyond them; the hypervolume is the whole
    frontier's. NotFound if there is no such job or target.
    """
    raise NotImplementedError
