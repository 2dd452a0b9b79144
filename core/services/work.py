"""Work items: background work, the order in which it is done, and the worker that does each item.

A message names a kind of work and a subject. The worker that receives the message requests this item, then claims the
next item of the queue, which may be another item. The database rows decide which worker does which item, and a message
only wakes a worker, so a lost, late or repeated message does no harm.

Each queue serves its owners by turns (`services.turns`). A claim expires `CLAIM` after it was last extended, and then
another worker may claim the item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.common.states import WorkKind
from edgefront.core.services import tasks
from edgefront.core.services.turns import TurnQueue, next_turns
from edgefront.core.store import sql
from edgefront.core.store.clock import over
from edgefront.core.store.database import enqueue
from edgefront.core.store.tables import ServedQueue, WorkItem

CLAIM = timedelta(seconds=20)
"""Time after which a claim expires unless the worker extends it."""

UNSERVED_S = 60.0
"""Seconds without a worker after which a queue's jobs say that they wait for one. Workers report every sweep."""

WORK_ATTEMPTS = 3
"""Maximum number of attempts at an item. An exception or the death of a worker uses up an attempt; a worker that stops
releases its claims (`release`).
"""


class Outcome(Enum):
    """Result of an attempt at a work item."""

    DONE = auto()
    MORE = auto()
    """The attempt did a part of the item; the rest waits for the owner's next turn."""
    FAILED = auto()
    """The attempt failed, and the item waits for another attempt."""


class Queue(NamedTuple):
    """A broker queue and the kinds of work in it. Work items of all these kinds share one order of turns."""

    name: str
    """Name of the queue; empty for the default queue."""
    kinds: tuple[WorkKind, ...]


SHORT = Queue("", (WorkKind.RESULTS, WorkKind.ADVANCE))
"""Queue of items that take milliseconds. Long work must not delay them."""
SEARCH = Queue("search", (WorkKind.SEARCH, WorkKind.LEARN))
"""Queue of items that take seconds of one core."""
QUEUES = (SHORT, SEARCH)
"""All queues of work. Each worker serves some of them."""

REQUESTED_BY = {
    tasks.ADVANCE: WorkKind.ADVANCE,
    tasks.PROCESS_RESULTS: WorkKind.RESULTS,
}
"""Task → kind of work that the task requests."""


def queue_of(kind: WorkKind) -> Queue:
    """Returns the queue of a kind of work."""
    return next(queue for queue in QUEUES if kind in queue.kinds)


@dataclass(frozen=True)
class Claim:
    """A worker's claim of a work item."""

    kind: WorkKind
    subject: str
    owner: str
    fence: int
    attempts: int
    """Number of attempts at the item, including the current one."""

    @property
    def is_last(self) -> bool:
        """Whether no further attempt follows this one."""
        return self.attempts >= WORK_ATTEMPTS

    @property
    def is_lost(self) -> bool:
        """Whether the worker died during the final attempt. The item is then given up."""
        return self.attempts > WORK_ATTEMPTS


def request(session: Session, kind: WorkKind, subjects: Mapping[str, str], now: datetime) -> None:
    """Requests a work item for each subject. `subjects`: subject → owner.

    A waiting item that is requested again keeps the earlier of its two turns. An item in progress is requeued when it
    ends, because its worker may have read older rows.
    """
    by_owner: dict[str, list[str]] = {}
    for subject, owner in subjects.items():
        by_owner.setdefault(owner, []).append(subject)
    for owner, of_owner in by_owner.items():
        for subject, turn in zip(of_owner, _turns(session, kind, owner, len(of_owner)), strict=True):
            insert = sql.upsert(session, WorkItem).values(
                kind=kind,
                subject=subject,
                owner=owner,
                turn=turn,
                requested_at=now,
                requeue_requested=False,
                fence=0,
                attempts=0,
            )
            earlier = case((WorkItem.turn > insert.excluded.turn, insert.excluded.turn), else_=WorkItem.turn)
            values = {"requeue_requested": WorkItem.claimed_until.is_not(None), "turn": earlier}
            session.execute(insert.on_conflict_do_update(index_elements=["kind", "subject"], set_=values))


def claim(session: Session, queue: Queue, holder: str, slots: int, now: datetime) -> Claim | None:
    """Claims the queue's next item. Returns None if no item waits, or if the worker already has `slots` claims of the
    queue.
    """
    sql.lock_name(session, "work", holder)
    claimed = (WorkItem.holder == holder, WorkItem.kind.in_(queue.kinds), ~_is_free(now))
    if (session.scalar(select(func.count()).where(*claimed)) or 0) >= slots:
        return None
    item = session.scalar(
        select(WorkItem)
        .where(WorkItem.kind.in_(queue.kinds), _is_free(now))
        .order_by(WorkItem.turn, WorkItem.requested_at, WorkItem.subject)
        .limit(1)
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    )
    if item is None:
        return None
    item.holder, item.claimed_until, item.requeue_requested = holder, now + CLAIM, False
    item.fence += 1
    item.attempts += 1
    session.flush()
    return Claim(item.kind, item.subject, item.owner, item.fence, item.attempts)


def extend(session: Session, held: Claim, now: datetime) -> bool:
    """Sets the claim to expire after `CLAIM` from now. Returns False if the claim is lost."""
    statement = update(WorkItem).where(_is(held)).values(claimed_until=now + CLAIM)
    return bool(session.execute(statement.returning(WorkItem.fence)).first())


def finish(session: Session, held: Claim, now: datetime, outcome: Outcome = Outcome.DONE) -> None:
    """Ends a claim. An item that is not done, or was requested again meanwhile, waits for its owner's next turn."""
    item = session.scalar(select(WorkItem).where(_is(held)).with_for_update().execution_options(populate_existing=True))
    if item is None:
        return
    if outcome == Outcome.DONE and not item.requeue_requested:
        session.delete(item)
        return
    (item.turn,) = _turns(session, held.kind, item.owner, 1)
    item.attempts = held.attempts if outcome == Outcome.FAILED else 0
    item.requested_at, item.holder, item.claimed_until, item.requeue_requested = now, None, None, False


def release(session: Session, held: Claim | str) -> None:
    """Releases a claim, or all claims of the worker with this name, without using up an attempt."""
    whose = WorkItem.holder == held if isinstance(held, str) else _is(held)
    values = {"holder": None, "claimed_until": None, "attempts": WorkItem.attempts - 1, "fence": WorkItem.fence + 1}
    session.execute(update(WorkItem).where(WorkItem.claimed_until.is_not(None), whose).values(values))


def resend(session: Session, now: datetime) -> None:
    """Wakes workers for unclaimed items. The sweep calls this."""
    open_kinds = set(session.scalars(select(WorkItem.kind).where(_is_free(now)).distinct()))
    for queue in QUEUES:
        if open_kinds.intersection(queue.kinds):
            wake(session, queue)


def wake(session: Session, queue: Queue) -> None:
    """Wakes a worker for the queue, after the commit."""
    enqueue(session, tasks.WORK, queue=queue.name)


def served(session: Session, queue: str, now: datetime) -> None:
    """Stores that a worker serves a queue, given by its name without a prefix."""
    insert = sql.upsert(session, ServedQueue).values(name=queue, served_at=now)
    session.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"served_at": now}))


class QueueState(NamedTuple):
    """How long a queue has had no worker, and how long its oldest unclaimed item has waited."""

    name: str
    unserved_s: float
    """Infinite if no worker has served the queue yet."""
    oldest_s: float
    """0 if no item waits."""

    @property
    def label(self) -> str:
        """The queue's name as a worker's option gives it."""
        return f"edgefront-{self.name}" if self.name else "edgefront"

    @property
    def lacks_worker(self) -> bool:
        """Whether no worker serves the queue, or all of them have been busy for `UNSERVED_S`."""
        return self.unserved_s > UNSERVED_S and (not self.name or self.oldest_s > UNSERVED_S)


def queue_states(session: Session, now: datetime) -> list[QueueState]:
    """Returns the state of each queue of work."""
    served_at = {row.name: row.served_at for row in session.scalars(select(ServedQueue))}
    oldest = select(WorkItem.kind, func.min(WorkItem.requested_at)).where(_is_free(now)).group_by(WorkItem.kind)
    requested_at = dict(session.execute(oldest).all())
    return [
        QueueState(
            queue.name,
            (now - served_at[queue.name]).total_seconds() if queue.name in served_at else math.inf,
            max([0.0, *((now - requested_at[kind]).total_seconds() for kind in queue.kinds if kind in requested_at)]),
        )
        for queue in QUEUES
    ]


def _is(held: Claim) -> ColumnElement[bool]:
    return and_(WorkItem.kind == held.kind, WorkItem.subject == held.subject, WorkItem.fence == held.fence)


def _is_free(now: datetime) -> ColumnElement[bool]:
    return or_(WorkItem.claimed_until.is_(None), over(WorkItem.claimed_until, now, CLAIM))


def _turns(session: Session, kind: WorkKind, owner: str, count: int) -> list[float]:
    in_queue, is_waiting = WorkItem.kind.in_(queue_of(kind).kinds), WorkItem.claimed_until.is_(None)
    queue = TurnQueue(WorkItem, waiting=(in_queue, is_waiting), served=(in_queue, ~is_waiting))
    return next_turns(session, queue, WorkItem.owner == owner, count)


def interval_s(ttl_s: float) -> float:
    """Returns the seconds between heartbeats that keep a claim of `ttl_s` seconds even if two heartbeats get lost."""
    return ttl_s / 4
