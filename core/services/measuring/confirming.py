"""What one device alone has said and another is to measure too, before a job builds on it or ends with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.fleet.device_keys import DEVICE, key_of_device
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.believing import BASELINE_OF_ONE, Beliefs
from edgefront.core.services.measuring.queries import belief
from edgefront.core.states import Purpose
from edgefront.core.store.tables import Measurement, Target


def ask_again(
    session: Session, measurements: Iterable[Measurement], target: Target, now: datetime, *, baselines: bool
) -> None:
    """Of locked measurements that are known, those that another device should measure before this target uses them get
    another launch, and have no answer until then:

    - that failed because their launches contradict each other, where a device can make it that has made none, or one of
      the devices was put in quarantine since;
    - that were infeasible or failed on one device alone, where another can measure them, or on devices in quarantine;
    - baselines that one device alone has measured, where another can.
    """
    known = {one.id: one for one in measurements if one.state in ("measured", "infeasible", "failed")}
    if not known:
        return
    beliefs = Beliefs(session, now, belief.subjects(session, known), {})
    makers, ended = belief.makers(session, known), belief.ended_badly(session, known)
    disputed = [one.id for one in known.values() if one.state == "failed" and one.launches]
    done = belief.done_launches(session, disputed)
    reason: str | None
    for id_, one in known.items():
        if one.state == "measured" and not (baselines and len(makers.get(id_, ())) < 2):
            continue
        other = beliefs.other_device(one, seen_since=True)
        if one.state == "measured":
            wanted, reason = other is not None, BASELINE_OF_ONE
        elif one.launches:
            wanted, reason = other is not None or any(row.in_quarantine for row in done[id_]), one.reason
        else:
            devices = len(ended.get(id_, ()))
            wanted, reason = devices == 0 or (devices == 1 and other is not None), None
        if wanted:
            key = one.device_key if other is None else key_of_device(other)
            belief.add_launch(session, id_, target.id, key, Purpose.CONFIRM, now)
            one.state, one.reason = "unconfirmed" if one.launches else "wanted", reason


def confirm_frontier(session: Session, target: Target, now: datetime) -> bool:
    """Requests launches by other devices for frontier points and baselines of a locked target that one device alone has
    measured, or only devices that are in quarantine by now. Whether there were any.
    """
    if target.device_key.startswith(DEVICE):
        return False
    members = belief.members(session, target.id)
    makers = belief.makers(session, members)
    lone = [id_ for id_ in members if len(makers.get(id_, ())) < 2]
    measurements = demand.lock(session, lone)
    beliefs = Beliefs(session, now, belief.subjects(session, lone), {})
    beliefs.look_up(lone)
    keys = _shared_out(beliefs, [measurements[id_] for id_ in lone])
    for id_, key in keys.items():
        belief.add_launch(session, id_, target.id, key, Purpose.CONFIRM, now)
    return bool(keys)


def _shared_out(beliefs: Beliefs, measurements: Iterable[Measurement]) -> dict[str, str]:
    """Measurement id → key of another device that can measure it; those that can share the work."""
    keys: dict[str, str] = {}
    given: dict[str, int] = {}
    for one in measurements:
        able = beliefs.other_devices(one, seen_since=True)
        if able:
            chosen = min(able, key=lambda device: given.get(device, 0))
            given[chosen] = given.get(chosen, 0) + 1
            keys[one.id] = key_of_device(chosen)
    return keys
