"""Queries for several targets beside each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries.candidates import measured_baselines
from edgefront.core.services.trainings.queries.trainings import frontier
from edgefront.core.states import MEASURED_CANDIDATES
from edgefront.core.store.any_of import any_of
from edgefront.core.store.tables import Candidate, Measurement

MOST_OF_A_TARGET = 200


def compared(session: Session, target_ids: Collection[str]) -> list[Candidate]:
    """The measured baselines of these targets, and their frontiers: of each the first 200 by decoder parameters."""
    found: list[Candidate] = []
    for target_id in target_ids:
        found += measured_baselines(session, target_id)
        found += frontier(session, target_id)[:MOST_OF_A_TARGET]
    return found


def measured_of(session: Session, target_id: str, digests: Collection[str]) -> Sequence[Any]:
    """The target's measured candidates of these architectures; a baseline before what the search proposed."""
    return session.execute(
        select(
            Candidate.id,
            Candidate.digest,
            Candidate.on_frontier,
            Candidate.latency_ms,
            Candidate.latency_half_width_ms,
            Candidate.memory_bytes,
        )
        .where(
            Candidate.target_id == target_id,
            any_of(Candidate.digest, digests),
            any_of(Candidate.state, MEASURED_CANDIDATES),
            Candidate.latency_ms.is_not(None),
            Candidate.memory_bytes.is_not(None),
        )
        .order_by(Candidate.number)
    ).all()


def measured_by_any(session: Session, device_key: str, protocol_digest: str, digests: Collection[str]) -> Sequence[Any]:
    """What any job has measured of these architectures: digest, latency_ms, launches, memory_bytes."""
    return session.execute(
        select(Measurement.digest, Measurement.latency_ms, Measurement.launches, Measurement.memory_bytes)
        .where(
            Measurement.device_key == device_key,
            Measurement.protocol_digest == protocol_digest,
            any_of(Measurement.digest, digests),
            Measurement.state == "measured",
            Measurement.latency_ms.is_not(None),
            Measurement.memory_bytes.is_not(None),
        )
        .order_by(Measurement.id)
    ).all()
