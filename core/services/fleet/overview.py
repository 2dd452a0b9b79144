"""Numbers of jobs, targets, launches, devices and trainings by state, for metrics and dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.fleet import counts
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.states import DeviceState, JobState, TargetState, TrainingState


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
    reports_waiting: int
    """Reports that are not settled."""
    trainings: dict[str, int]
    trainings_wait_s: float
    """Time since the oldest of the queued trainings was submitted; 0 if there is none."""
    training_tokens_per_s: dict[str, float]
    """Device (cpu, cuda) → tokens a second of all running trainings together."""


def overview(session: Session, now: datetime) -> Overview:
    """Counts by indexed columns, cheap enough to be queried every few seconds."""
    return Overview(
        jobs=_filled(counts.jobs_by_state(session), JobState),
        targets=_filled(
            counts.targets_by_state(session),
            TargetState,
        ),
        launches=_filled(counts.launches_by_state(session, ("wanted", "leased")), ("wanted", "leased")),
        devices=_filled(counts.devices_by_state(session), DeviceState),
        devices_online=counts.devices_seen_since(session, now - ONLINE),
        settling_lag_s=_age_s(counts.oldest_report(session), now),
        reports_waiting=counts.reports_waiting(session),
        trainings=_filled(counts.trainings_by_state(session), TrainingState),
        trainings_wait_s=_age_s(counts.oldest_queued_training(session), now),
        training_tokens_per_s=counts.tokens_per_second(session),
    )


def _age_s(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0


def _filled(counts: dict[str, int], states: Iterable[str]) -> dict[str, int]:
    return {str(state): counts.get(state, 0) for state in states}
