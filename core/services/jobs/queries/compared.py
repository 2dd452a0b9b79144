"""Queries for several targets beside each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries.candidates import measured_baselines
from edgefront.core.services.trainings.queries.trainings import frontier
from edgefront.core.states import MEASURED_CANDIDATES, MeasurementState
from edgefront.core.store.sql import any_of, columns, typed
from edgefront.core.store.tables import Candidate, Measurement

MAX_OF_A_TARGET = 200


def compared(session: Session, target_ids: Collection[str]) -> list[Candidate]:
    """The measured baselines of these targets, and their frontiers: of each the first 200 by decoder parameters."""
    candidates: list[Candidate] = []
    for target_id in target_ids:
        candidates += measured_baselines(session, target_id)
        candidates += frontier(session, target_id)[:MAX_OF_A_TARGET]
    return candidates


class MeasuredCandidate(NamedTuple):
    """What a target has measured of an architecture."""

    id: str
    digest: str
    on_frontier: bool
    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int


def measured_of(session: Session, target_id: str, digests: Collection[str]) -> list[MeasuredCandidate]:
    """The target's measured candidates of these architectures; a baseline before what the search proposed."""
    query = (
        select(*columns(Candidate, MeasuredCandidate))
        .where(
            Candidate.target_id == target_id,
            any_of(Candidate.digest, digests),
            any_of(Candidate.state, MEASURED_CANDIDATES),
            Candidate.latency_ms.is_not(None),
            Candidate.memory_bytes.is_not(None),
        )
        .order_by(Candidate.number)
    )
    return typed(MeasuredCandidate, session.execute(query))


class MeasuredThere(NamedTuple):
    """What any job has measured of an architecture."""

    digest: str
    latency_ms: float
    launches: int
    log_mean: float | None
    log_m2: float | None
    memory_bytes: int


def measured_by_any(
    session: Session, device_key: str, protocol_digest: str, digests: Collection[str]
) -> list[MeasuredThere]:
    query = (
        select(*columns(Measurement, MeasuredThere))
        .where(
            Measurement.device_key == device_key,
            Measurement.protocol_digest == protocol_digest,
            any_of(Measurement.digest, digests),
            Measurement.state == MeasurementState.MEASURED,
            Measurement.latency_ms.is_not(None),
            Measurement.memory_bytes.is_not(None),
        )
        .order_by(Measurement.id)
    )
    return typed(MeasuredThere, session.execute(query))
