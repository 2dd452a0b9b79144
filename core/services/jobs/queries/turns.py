"""Turns: in which order devices serve the launches that wait for them.

Owners take turns, and within an owner its jobs. It is decided once, when launches are asked for: each gets a number on
its device key's queue, and a lease takes the lowest, so that fairness costs a lease nothing. The numbers are those of
start-time fair queueing (Goyal, Vin, Cheng 1996): a job that asks begins at the number that is served now, however long
others have waited, and continues in steps. The step is 1 for an owner's only job there, k for one of k, and divided by
the owner's weight. So of two owners with launches to come each gets every second one, whoever asked for more.

A step counts the jobs of that moment: launches that a job asked for while it was alone keep their steps of 1 when a
second begins, which for so long gets its owner a half more.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.states import ACTIVE_TARGETS
from edgefront.core.store.tables import Job, Launch, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED


def take_turns(session: Session, target: Target, count: int) -> list[float]:
    """The turns of `count` launches that the target asks for, rising. The target is locked."""
    if not count:
        return []
    job = session.get_one(Job, target.job_id)
    waiting = _lowest_waiting(session, target.device_key)
    if waiting is None:
        step = 1 / job.weight
        first = _highest_given(session, target.device_key) + step
    else:
        now = max(waiting, _highest_leased(session, target.device_key))
        others, last = _of_owner(session, job, target.device_key, now)
        step = (others + 1) / job.weight
        first = now + others / job.weight if last is None else max(now, last + step)
    turns = [first + index * step for index in range(count)]
    target.last_turn = turns[-1]
    return turns


def give_up_turns(target: Target) -> None:
    """The target's launches were withdrawn: those that it asks for next need not queue behind them."""
    target.last_turn = 0.0


def _lowest_waiting(session: Session, device_key: str) -> float | None:
    """Lowest turn of launches that were never leased: one that comes back has the turn of long ago. Those of turn 0,
    which the service asks for by itself, take no turns.
    """
    return session.scalar(
        select(Launch.turn)
        .where(Launch.state == WANTED, Launch.device_key == device_key, Launch.fence == 0, Launch.turn > 0)
        .order_by(Launch.turn, Launch.id)
        .limit(1)
    )


def _highest_leased(session: Session, device_key: str) -> float:
    """It is above the lowest that waits where no device that is online can run that one."""
    query = select(func.max(Launch.turn)).where(Launch.state == LEASED, Launch.device_key == device_key)
    return session.scalar(query) or 0.0


def _highest_given(session: Session, device_key: str) -> float:
    return session.scalar(select(func.max(Target.last_turn)).where(Target.device_key == device_key)) or 0.0


def _of_owner(session: Session, job: Job, device_key: str, now: float) -> tuple[int, float | None]:
    """Number of the owner's other jobs that wait there, and the last turn of this one, if it waits too."""
    rows = session.execute(
        select(Target.job_id, Target.last_turn)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.device_key == device_key,
            Target.state.in_(ACTIVE_TARGETS),
            Target.last_turn >= now,
            Job.owner == job.owner,
        )
    ).all()
    others = {row.job_id for row in rows} - {job.id}
    return len(others), max((row.last_turn for row in rows if row.job_id == job.id), default=None)
