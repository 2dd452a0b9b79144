"""Compares targets (a device and protocol each) by latency and memory of all baselines and frontier architectures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import MEASURED_CANDIDATES, CandidateRole, TargetState
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import half_width_ms
from edgefront.core.schemas.jobs import MAX_TARGETS, Limits
from edgefront.core.schemas.predictions import (
    ComparedArchitecture,
    ComparedEntry,
    ComparedTarget,
    ComparisonView,
)
from edgefront.core.search.pareto.options import Estimate, LimitName, OptionLimits
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_by_id
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.jobs.answers.candidates import candidate_view
from edgefront.core.services.jobs.answers.measured_models import option_of
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries.candidates import measured_baselines
from edgefront.core.services.measuring.queries.measurements import launch_variance
from edgefront.core.services.prediction.fits import DeviceFit, Fits, measured_at
from edgefront.core.services.quality import laws
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.spaces import score_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.services.trainings.queries import frontier
from edgefront.core.store.database import Database
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Candidate, Job, Measurement, Target

_COMPARED_FIELDS = (
    "mode",
    "sequence_length",
    "memory_length",
    "new_tokens",
    "batch",
    "logits",
    "number_format",
    "kv_cache",
    "latency",
)
"""Protocol fields whose differences make figures incomparable."""
NOT_KNOWN = 100.0
"""Ratio of the ends of an interval from which on a predicted latency is not known."""
MAX_OF_A_TARGET = 200
"""Maximum number of a frontier's architectures in a comparison, in ascending order of decoder parameters."""


@dataclass(frozen=True)
class _JobTarget:
    target: Target
    job: Job
    protocol: MeasurementProtocol
    limits: OptionLimits


def compare(
    database: Database, principal: Principal, target_ids: Sequence[str], job_ids: Sequence[str], fits: Fits
) -> ComparisonView:
    """Returns the comparison of these targets and all targets of these jobs, in this order. Takes up to seconds.

    Raises:
        NotFound: a target or job does not exist, or belongs to another owner.
        InvalidInput: no target, or more than `MAX_TARGETS` targets.
    """
    with database.read() as session:
        compared = _targets_of(session, principal, target_ids, job_ids)
        by_digest: dict[str, Candidate] = {}
        for each in compared:
            baselines = measured_baselines(session, each.target.id)
            for candidate in (*baselines, *frontier(session, each.target.id)[:MAX_OF_A_TARGET]):
                by_digest.setdefault(candidate.digest, candidate)
        entries = [_measured(session, each, list(by_digest)) for each in compared]
        asked = [
            fits.read(session, each.target.device_key, each.protocol) if len(own) < len(by_digest) else None
            for each, own in zip(compared, entries, strict=True)
        ]
        used = {(candidate.predicted or {}).get("law") for candidate in by_digest.values()}
        requests = [(each.job, JOB_REQUEST.read_or(each.job.request, None)) for each in compared]
        scores = [score for _, request in requests if request is not None and (score := score_of(request.space))]
        known = [laws.readable_law_of(session, job, request) for job, request in requests]
        labels = [device_queries.name_of(session, each.target.device_key) for each in compared]
    for each, own, to_fit in zip(compared, entries, asked, strict=True):
        fit = None if to_fit is None else fits.fit(to_fit)
        if fit is not None:
            missing = [candidate for digest, candidate in by_digest.items() if digest not in own]
            own |= _predicted(fit, each, missing)
    return ComparisonView(
        targets=tuple(
            _target(each, label, entries[0], own) for each, label, own in zip(compared, labels, entries, strict=True)
        ),
        architectures=tuple(
            _architecture(candidate, [own.get(candidate.digest) for own in entries])
            for candidate in sorted(
                by_digest.values(), key=lambda candidate: (candidate.decoder_parameters, candidate.digest)
            )
        ),
        score=" or ".join(dict.fromkeys(scores)),
        perplexity_of="; ".join(dict.fromkeys(law.about for law in known if law and law.origin.name in used)),
        note=_note([each.protocol for each in compared]),
    )


def _targets_of(
    session: Session, principal: Principal, target_ids: Sequence[str], job_ids: Sequence[str]
) -> list[_JobTarget]:
    by_id: dict[str, _JobTarget] = {}
    pairs = [target_by_id(session, principal, target_id) for target_id in target_ids]
    for job_id in job_ids:
        job = job_of(session, principal, job_id)
        pairs += [(target, job) for target in job_queries.targets(session, [job.id])]
    for target, job in pairs:
        limits = OptionLimits(**LIMITS.read_or(target.limits, Limits()).model_dump())
        by_id.setdefault(target.id, _JobTarget(target, job, PROTOCOL.read(target.protocol), limits))
    if not 1 <= len(by_id) <= MAX_TARGETS:
        raise InvalidInput(
            f"a comparison must have 1 to {MAX_TARGETS} targets, not {len(by_id)}",
            field="target",
            value=len(by_id),
            allowed=f"1 to {MAX_TARGETS} targets, or jobs with 1 to {MAX_TARGETS} targets in total",
        )
    return list(by_id.values())


def _measured(session: Session, each: _JobTarget, digests: Sequence[str]) -> dict[str, ComparedEntry]:
    """Returns architecture digest → measurement on the target's device by the target's protocol, by any job."""
    target = each.target
    variance = launch_variance(session, target.device_key, target.protocol_digest)
    has_figures = [
        table.latency_ms.is_not(None) & table.memory_bytes.is_not(None) & any_of(table.digest, digests)
        for table in (Measurement, Candidate)
    ]
    of_any_job = select(Measurement).where(*measured_at(target.device_key, target.protocol_digest), has_figures[0])
    entries = {
        row.digest: _entry(row, half_width_ms(row.latency_ms or 0.0, row.log_launches, variance), each.limits.pace)
        for row in session.scalars(of_any_job.order_by(Measurement.id))
    }
    of_target = select(Candidate).where(
        Candidate.target_id == target.id, any_of(Candidate.state, MEASURED_CANDIDATES), has_figures[1]
    )
    for row in session.scalars(of_target.order_by(Candidate.number)):  # a search candidate replaces a baseline
        standings = each.limits.standings(option_of(candidate_view(row, None), None, "", None, row.id))
        measured = {"candidate_id": row.id, "on_frontier": row.on_frontier, "standings": standings}
        entries[row.digest] = _entry(row, row.latency_half_width_ms, each.limits.pace, **measured)
    return entries


def _entry(row: Measurement | Candidate, half_width: float | None, pace: LimitName, **more: Any) -> ComparedEntry:
    time, given = getattr(row, pace), {"candidate_id": None, "on_frontier": False, **more}
    return ComparedEntry(
        latency_ms=row.latency_ms,
        latency_half_width_ms=half_width,
        memory_bytes=row.memory_bytes,
        time_ms=time,
        time_half_width_ms=half_width and time and half_width * time / (row.latency_ms or time),
        **given,
    )


def _predicted(fit: DeviceFit, each: _JobTarget, missing: Sequence[Candidate]) -> dict[str, ComparedEntry]:
    """Returns architecture digest → prediction, without architectures that cannot run or are not known well enough."""
    protocol, has_time = each.protocol, each.limits.pace == "latency_ms"
    passing = []
    for candidate in missing:
        architecture = Architecture.parse(candidate.architecture)
        with suppress(InvalidInput):  # unsupported by the protocol, as generation is by an encoder
            protocol_costs(architecture, protocol)
            passing.append(architecture)
    if not passing:
        return {}
    shapes = Shapes.of(passing)
    latency, (peak, _, _), beyond = fit.latency.predict(shapes), fit.memory.predict(shapes), fit.beyond_measured(shapes)
    half_widths = (latency.high - latency.low) / 2
    return {
        architecture.digest: ComparedEntry(
            candidate_id=None,
            predicted=True,
            on_frontier=False,
            latency_ms=float(latency.ms[row]),
            latency_half_width_ms=float(half_widths[row]),
            memory_bytes=round(float(peak[row])),
            time_ms=float(latency.ms[row]) if has_time else None,
            time_half_width_ms=float(half_widths[row]) if has_time else None,
        )
        for row, architecture in enumerate(passing)
        if not beyond[row] and latency.high[row] < NOT_KNOWN * latency.low[row]
    }


def _target(
    each: _JobTarget, device: str, first: dict[str, ComparedEntry], own: dict[str, ComparedEntry]
) -> ComparedTarget:
    both = sorted(first.keys() & own.keys())
    measured = [digest for digest in both if not (first[digest].predicted or own[digest].predicted)]
    counted = measured or both
    ratios = [_latency(own[digest]).over(_latency(first[digest])) for digest in counted]
    lows = [ratio.low for ratio in ratios if ratio.low is not None]
    highs = [ratio.high for ratio in ratios if ratio.high is not None]
    return ComparedTarget(
        target_id=each.target.id,
        target=each.target.name,
        job_id=each.job.id,
        job_name=each.job.name,
        device=device,
        protocol=each.protocol,
        state=TargetState(each.target.state),
        time=each.limits.pace,
        shared=len(measured),
        latency_ratio=median([ratio.value for ratio in ratios]) if ratios else None,
        latency_ratio_low=median(lows) if lows else None,
        latency_ratio_high=median(highs) if highs else None,
        memory_ratio=median([own[digest].memory_bytes / first[digest].memory_bytes for digest in counted])
        if counted
        else None,
    )


def _latency(entry: ComparedEntry) -> Estimate:
    return Estimate.plus_minus(entry.latency_ms, entry.latency_half_width_ms)


def _architecture(candidate: Candidate, entries: Sequence[ComparedEntry | None]) -> ComparedArchitecture:
    predicted, model = candidate.predicted or {}, candidate_view(candidate, None).model
    return ComparedArchitecture(
        digest=candidate.digest,
        model=model,
        score=candidate.proxy if model else None,
        architecture=candidate.architecture,
        decoder_parameters=candidate.decoder_parameters,
        total_parameters=candidate.total_parameters,
        perplexity=predicted.get("perplexity"),
        law=predicted.get("law"),
        relative_to=predicted.get("relative_to"),
        train_tokens=predicted.get("train_tokens"),
        label=label_of(predicted),
        baseline=candidate.role == CandidateRole.BASELINE,
        entries=tuple(entries),
    )


def _note(protocols: Sequence[MeasurementProtocol]) -> str:
    differ = [
        name for name in _COMPARED_FIELDS if len({getattr(protocol, name) for protocol in protocols} - {None}) > 1
    ]
    if not differ:
        return ""
    words = " and ".join(name.replace("_", " ") for name in differ)
    return f"These targets have different protocols: they differ in {words}. Compare their figures with that in mind."
