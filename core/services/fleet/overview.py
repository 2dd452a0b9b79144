"""Numbers of jobs, targets, launches and devices by state, for metrics and dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.fleet import counts
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.states import DeviceState, JobState, TargetState


@dataclass(frozen=True)
class Overview:
    """Numbers of rows by state; 0 for states without rows."""

    jobs: dict[str, int]
    targets: dict[str, int]
    launches: dict[str, int]
    """Only live launches: the others have ended."""
    devices: dict[str, int]
    devices_online: int
    settling_lag_s: float
    """Age of the oldest report that is not settled; 0 if there is none."""


def overview(session: Session, now: datetime) -> Overview:
    """Counts by indexed columns, cheap enough to be queried every few seconds."""
    oldest = counts.oldest_report(session)
    return Overview(
        jobs=_filled(counts.jobs_by_state(session), JobState),
        targets=_filled(
            counts.targets_by_state(session),
            TargetState,
        ),
        launches=_filled(counts.launches_by_state(session, ("wanted", "leased")), ("wanted", "leased")),
        devices=_filled(counts.devices_by_state(session), DeviceState),
        devices_online=counts.devices_seen_since(session, now - ONLINE),
        settling_lag_s=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
    )


def _filled(found: dict[str, int], states: Iterable[str]) -> dict[str, int]:
    return {str(state): found.get(state, 0) for state in states}
