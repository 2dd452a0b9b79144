"""Checks after `chaos.py`, from the database rows alone, without asking the service."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import moocore
import numpy as np
from chaos_liar import MARK
from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.common.states import CandidateState, LaunchState, Purpose, TargetState
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Device, Event, Job, Launch, Measurement, Target

CORE_FLOPS = 2.6e11
"""FLOP/s of float32 that no core of a CPU exceeds: two units of 16 fused multiply-adds at 4 GHz."""
LONGEST_WAIT_S = 120.0
"""Maximum seconds from a job's submission to its first result, despite kills and earlier requests."""
ENDED = (TargetState.FINISHED, TargetState.CANCELLED, TargetState.FAILED)


@dataclass
class Account:
    """Counts, and violations by kind (all 0 if everything is correct)."""

    launches: Counter[str] = field(default_factory=Counter)
    events: int = 0
    frontier: int = 0
    lies: int = 0
    """Number of false reports among the valid launches."""
    violations: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    waits_s: dict[str, list[float]] = field(default_factory=dict)
    """By owner, seconds from a job's submission to its first result."""

    def wrong(self, what: str, which: str) -> None:
        self.violations[what] += 1
        self.examples.setdefault(what, which)


CHECKS = (
    "launch counted more or less than once",
    "report accepted twice",
    "measurement is not what its launches say",
    "candidate is not what its measurement says",
    "gap in a log of events",
    "frontier is not moocore's",
    "frontier lighter than its weights",
    "frontier faster than the processor",
    "launch left behind",
    "honest device in quarantine",
    "owner waited too long",
)


def check(database: Database, answers: Iterable[Path], cores: int) -> Account:
    """Checks every row. `answers`: files of the server's responses to lying devices. `cores`: number of this machine's
    cores, which limits a model's speed.
    """
    account = Account(violations=Counter(dict.fromkeys(CHECKS, 0)))
    with database.read() as session:
        launches = session.scalars(select(Launch)).all()
        account.launches.update(str(launch.state) for launch in launches)
        for launch in launches:
            if launch.state in (LaunchState.LEASED, LaunchState.REPORTED):
                account.wrong("launch left behind", f"{launch.id} {launch.state}")
        known = _measurements(session, launches, account)
        _reports(answers, account)
        _events(session, account)
        for target in session.scalars(select(Target)):
            _target(session, target, known, cores, account)
        _waits(session, launches, account)
        honest = select(Device).where(Device.name.startswith("agent-"), Device.quarantine.is_not(None))
        for device in session.scalars(honest):
            account.wrong("honest device in quarantine", f"{device.name}: {device.quarantine}")
    return account


def _measurements(session: Session, launches: Sequence[Launch], account: Account) -> dict[str, Measurement]:
    """Returns the measurements, after checking each against its valid launches, aggregated here from their samples."""
    done: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for launch in launches:
        # Launches of a device's anchor (its reference model) belong to no measurement.
        if launch.state == LaunchState.DONE and launch.result is not None and launch.purpose != Purpose.ANCHOR:
            done[launch.measurement_id].append(launch.result)
            account.lies += launch.result["environment"] == MARK
            if len(launch.reports) != len(set(launch.reports)):
                account.wrong("report accepted twice", launch.id)
    known = {row.id: row for row in session.scalars(select(Measurement))}
    for row in known.values():
        results = done.get(row.id, [])
        if row.launches != len(results):
            account.wrong("launch counted more or less than once", f"{row.id}: {row.launches} of {len(results)}")
        elif results:
            latency = median(median(result["latency"]["samples_ms"]) for result in results)
            memory = round(median(result["memory"]["peak_bytes"] for result in results))
            if row.memory_bytes != memory or not np.isclose(row.latency_ms or 0.0, latency, rtol=1e-9):
                account.wrong("measurement is not what its launches say", row.id)
    return known


def _reports(answers: Iterable[Path], account: Account) -> None:
    accepted: Counter[str] = Counter()
    for path in answers:
        for line in path.read_text().splitlines():
            answer = json.loads(line)
            # A crash uses up an attempt, and the launch may be leased again.
            accepted[answer["launch"]] += answer["outcome"] == "accepted" and answer["kind"] != "crash"
    for launch, times in accepted.items():
        if times > 1:
            account.wrong("report accepted twice", launch)


def _events(session: Session, account: Account) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for job_id, number in session.execute(select(Event.job_id, Event.number).order_by(Event.job_id, Event.number)):
        numbers[job_id].append(number)
        account.events += 1
    for job in session.scalars(select(Job)):
        if numbers[job.id] != list(range(1, job.last_event + 1)):
            account.wrong("gap in a log of events", job.id)


def _target(session: Session, target: Target, known: dict[str, Measurement], cores: int, account: Account) -> None:
    rows = session.scalars(select(Candidate).where(Candidate.target_id == target.id, Candidate.role == "search")).all()
    measured = [row for row in rows if row.state == CandidateState.MEASURED]
    if target.state not in ENDED:  # an ended target keeps its final results
        for row in measured:
            source = known[row.measurement_id or ""]
            if (row.latency_ms, row.memory_bytes, row.launches) != (
                source.latency_ms,
                source.memory_bytes,
                source.launches,
            ):
                account.wrong("candidate is not what its measurement says", row.id)
    members = {row.id for row in rows if row.on_frontier}
    account.frontier += len(members)
    if members != _frontier(measured):
        account.wrong("frontier is not moocore's", target.id)
    for row in measured:
        if row.id not in members or row.latency_ms is None or row.memory_bytes is None:
            continue
        if row.memory_bytes < row.weight_bytes:
            account.wrong("frontier lighter than its weights", f"{row.id}: {row.memory_bytes} < {row.weight_bytes}")
        if row.flops / (row.latency_ms / 1e3) > cores * CORE_FLOPS:
            account.wrong("frontier faster than the processor", f"{row.id}: {row.latency_ms} ms")


def _frontier(measured: Sequence[Candidate]) -> set[str]:
    """Returns the frontier by moocore: highest proxy, lowest latency and memory; equal points are all included."""
    points = np.array([(row.proxy, row.latency_ms, row.memory_bytes) for row in measured], dtype=float).reshape(-1, 3)
    if not len(points):
        return set()
    kept = moocore.is_nondominated(points, maximise=(True, False, False), keep_weakly=True)
    return {row.id for row, keep in zip(measured, kept, strict=True) if keep}


def _waits(session: Session, launches: Sequence[Launch], account: Account) -> None:
    first: dict[str, datetime] = {}
    for launch in launches:
        if launch.finished_at is not None and launch.target_id is not None:
            found = first.get(launch.target_id)
            first[launch.target_id] = launch.finished_at if found is None else min(found, launch.finished_at)
    last = max(first.values(), default=None)
    query = select(Target.id, Job.owner, Job.created_at).join(Job, Target.job_id == Job.id)
    for target_id, owner, created_at in session.execute(query):
        until = first.get(target_id, last)  # a target without a result waited to the end
        waited_s = 0.0 if until is None else (until - created_at).total_seconds()
        if target_id in first:
            account.waits_s.setdefault(owner, []).append(waited_s)
        if waited_s > LONGEST_WAIT_S:
            account.wrong("owner waited too long", f"{owner}, target {target_id}: {waited_s:.0f} s")
