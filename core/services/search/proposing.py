"""Stores a target's proposals: candidates and their launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.architectures.cost.costs import Costs
from edgefront.core.common.states import (
    LIVE_LAUNCHES,
    CandidateRole,
    CandidateState,
    JobEventKind,
    LaunchState,
    MeasurementState,
    Purpose,
)
from edgefront.core.common.units import MB
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.search.interface import Proposal
from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs.frontier import candidate_entry
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolved import SearchPlan, sizes_of
from edgefront.core.services.measuring.result_processing import apply_results
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate, Device, Measurement, Target, new_id

BEFORE_SEARCH = -1
"""Generation number of baselines; generations of the search count from 0."""


@dataclass(frozen=True)
class Proposed:
    """A proposal with its figures."""

    proposal: Proposal
    """The genome is empty for baselines, because baselines may be outside the space."""
    costs: Costs
    score: float
    """Score by the job's proxy; higher is better."""
    predicted: Document
    """Fields of `core.schemas.predictions.PredictedView`; empty without predictions."""


def propose(
    session: Session,
    target: Target,
    plan: SearchPlan,
    proposed: Sequence[Proposed],
    *,
    role: CandidateRole,
    now: datetime,
    begins: int | None = None,
) -> None:
    """Stores candidates of the target's generation, and adds their launches.

    Candidates with weights larger than the device's memory become infeasible at once. Existing measurements are applied
    at once. `begins` is the size of the generation if these candidates are the first of the generation.
    """
    devices = job_queries.devices_of(session, target.device_key)
    memory = max(filter(None, (_memory(device, plan.protocol) for device in devices)), default=None)
    rows = [_row(target, plan, item, role, target.candidates + index, now) for index, item in enumerate(proposed)]
    for row in rows:
        if memory is not None and row["weight_bytes"] > memory:
            row["state"] = CandidateState.INFEASIBLE
            row["reason"] = (
                f"the weights alone take {row['weight_bytes'] / MB:.0f} MB, but the device has {memory / MB:.0f} MB"
            )
    waiting = [row for row in rows if row["state"] == CandidateState.WAITING]
    wants = [demand.Want(row["digest"], row["architecture"], row["seed"]) for row in waiting]
    measurements = demand.measurements(session, target.device_key, target.protocol, target.protocol_digest, wants)
    for row in waiting:
        row["measurement_id"] = measurements[row["digest"]].id
    candidate_queries.add(session, rows)
    target.candidates += len(rows)
    target.settled += len(rows) - len(waiting)

    added = candidate_queries.by_ids(session, [row["id"] for row in rows])
    each = sizes_of(plan.job.request).baseline_launches
    missing = missing_launches(session, added, {row.id: row for row in measurements.values()}, each)
    demand.add_launches(session, target, missing, purpose=Purpose.FIRST, now=now)
    entries = [*map(candidate_entry, added)]
    if begins is not None:
        entries.insert(
            0, Entry(JobEventKind.GENERATION, {"number": target.generation, "candidates": begins}, target.id)
        )
    event_log.append(session, target.job_id, entries, now)
    apply_known_results(session, target, added, {row.id: row for row in measurements.values()}, now)


def apply_known_results(
    session: Session,
    target: Target,
    waiting: Iterable[Candidate],
    measurements: Mapping[str, Measurement],
    now: datetime,
) -> int:
    """Applies existing measurements to waiting candidates. Returns the number of these candidates."""
    answered = [
        candidate
        for candidate in waiting
        if candidate.measurement_id is not None
        and candidate.state == CandidateState.WAITING
        and measurements[candidate.measurement_id].state != MeasurementState.WANTED
    ]
    if answered:
        apply_results(session, [target], answered, measurements, now)
    return len(answered)


def missing_launches(
    session: Session, candidates: Iterable[Candidate], measurements: Mapping[str, Measurement], each_baseline: int
) -> list[str]:
    """Returns a measurement id for each missing launch of these candidates, so an id can occur twice. Baselines need
    `each_baseline` launches, other candidates one launch.
    """
    needed = {
        candidate.measurement_id: each_baseline if candidate.role == CandidateRole.BASELINE else 1
        for candidate in candidates
        if candidate.measurement_id is not None
    }
    counts = demand.launch_counts(session, needed)
    missing = []
    for measurement_id, count in needed.items():
        state, launches = measurements[measurement_id].state, counts[measurement_id]
        if state in (MeasurementState.INFEASIBLE, MeasurementState.FAILED):
            continue
        to_come = sum(launches[open_] for open_ in LIVE_LAUNCHES)
        # Failed launches count too, so that a launch that always fails is not repeated forever.
        made = sum(launches.values()) - launches[LaunchState.CANCELLED]
        lacking = count - max(made, measurements[measurement_id].launches + to_come)
        if state == MeasurementState.WANTED and not to_come:
            lacking = max(lacking, 1)
        missing += [measurement_id] * max(0, lacking)
    return missing


def _row(target: Target, plan: SearchPlan, item: Proposed, role: CandidateRole, number: int, now: datetime) -> Document:
    proposal = item.proposal
    return {
        "id": new_id("cnd"),
        "job_id": target.job_id,
        "target_id": target.id,
        "measurement_id": None,
        "number": number,
        "role": role,
        "generation": BEFORE_SEARCH if role == CandidateRole.BASELINE else target.generation,
        "operator": proposal.operator,
        "parents": list(proposal.parents),
        "genome": dict(proposal.genome),
        "digest": proposal.architecture.digest,
        "architecture": proposal.architecture.canonical,
        "decoder_parameters": item.costs.decoder_parameters,
        "total_parameters": item.costs.total_parameters,
        "weight_bytes": item.costs.weight_bytes,
        "flops": item.costs.flops,
        "proxy": item.score,
        "predicted": dict(item.predicted) or None,
        "predicted_perplexity": item.predicted.get("perplexity"),
        # One seed for all candidates of a job, so that the device needs one set of weight files.
        "seed": plan.job.request.seed,
        "state": CandidateState.WAITING,
        "reason": None,
        "created_at": now,
    }


def _memory(device: Device, protocol: MeasurementProtocol) -> int | None:
    """Memory that a model can use on this device, bytes; None if unknown."""
    if Provider(protocol.provider).shares_host_memory:
        size: int | None = device.facts.get("memory_bytes")
        return size
    sizes = [gpu.get("memory_bytes") for gpu in device.facts.get("gpus", ())]
    return max((size for size in sizes if isinstance(size, int)), default=None)
