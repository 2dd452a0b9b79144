"""Launches whose lease has ended without a report: given back, and the one that was being measured is charged.

A device whose heartbeats kept its launches until their lease ended has failed at all of them (`quarantine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.believing import Beliefs
from edgefront.core.services.measuring.queries import belief, launches
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.settling import end_badly, take_in
from edgefront.core.services.measuring.verdict import MAX_ATTEMPTS
from edgefront.core.states import Purpose

LOST = "the agent was lost while it measured this"


def return_stranded(session: Session, now: datetime) -> None:
    """Gives back launches whose lease has ended.

    Of each lease, the launch that was started last was being measured when its agent fell silent: it is charged an
    attempt, and has failed if that was its last; an anchor has failed at once. Its batch-mates lose nothing.
    """
    seen = launches.stranded(session)
    if not seen:
        return
    at_stake = [
        row.measurement_id
        for row in _running(seen)
        if row.attempts + 1 >= MAX_ATTEMPTS and row.purpose != Purpose.ANCHOR
    ]
    targets = [target for target, _ in rows.lock_live_targets(session, at_stake)]
    measurements = demand.lock(session, at_stake) if at_stake else {}
    locked = launches.lock_leased(session, [row.id for row in seen], skip_locked=True)
    running = {row.id: row for row in _running(locked)}
    of_anchors = [row for row in running.values() if row.purpose == Purpose.ANCHOR]
    spent = [row for row in running.values() if row.attempts + 1 >= MAX_ATTEMPTS and row.measurement_id in measurements]
    launches.add_attempts(session, running)
    lost = {row.id for row in [*spent, *of_anchors]}
    launches.write(
        session,
        [{"id": id_, "state": "failed", "reason": LOST, "lease_id": None, "finished_at": now} for id_ in sorted(lost)],
    )
    launches.give_back(session, [row.id for row in locked if row.id not in lost], now)
    if spent:
        reason = f"{MAX_ATTEMPTS} attempts; the last: {LOST}"
        beliefs = Beliefs(session, now, belief.subjects(session, measurements), {})
        failed = []
        for row in spent:
            measurement = measurements[row.measurement_id]
            final = beliefs.is_final(measurement, row.id, "failed", LOST)
            if final or not beliefs.confirm(measurement, row.target_id):
                failed.append((measurement, reason))
        known = end_badly(session, [], failed, now)
        take_in(session, targets, rows.candidates_of(session, known), known, now)
    overdue = {row.lease_id for row in seen if row.overdue}
    failing: dict[str, list[str]] = {}
    for row in locked:
        if row.purpose != Purpose.ANCHOR and (row.id in running or row.lease_id in overdue):
            failing.setdefault(row.device_id, []).append(row.measurement_id)
    if len(concerned := failing.keys() | {row.device_id for row in of_anchors}) > 1:
        belief.lock_devices(session, concerned)
    for device_id, measurement_ids in sorted(failing.items()):
        quarantine.add_failing(session, device_id, measurement_ids)
    subjects = belief.subjects(session, {row.measurement_id for row in of_anchors}) if of_anchors else {}
    for row in sorted(of_anchors, key=lambda one: str(one.device_id)):
        anchors.count_failed(session, row.device_id, subjects[row.measurement_id].protocol, LOST)


def _running(held: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Of each lease, the launch that was started last."""
    last: dict[str, Row[Any]] = {}
    for row in held:
        if row.started_at is not None:
            best = last.get(row.lease_id)
            if best is None or (best.started_at, best.id) < (row.started_at, row.id):
                last[row.lease_id] = row
    return list(last.values())
