"""Work items: what is to be done in the background, whose turn it is, and which worker does it.

A message names a kind of work and a subject. The worker that receives it requests the item, and then claims the one
whose turn it is, which may be another: the rows decide who does what, a message only wakes. So it does no harm that a
message is lost, is late, or comes twice.

Each queue serves its owners by turns (`services.turns`).

A claim holds until `CLAIM` has passed since it was extended last. The item of a worker that died goes to another.
"""

from __future__ import annotations

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
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.tables import WorkItem

CLAIM = timedelta(seconds=20)
"""A claim that is not extended for so long belonged to a worker that died."""

MAX_ATTEMPTS = 3
"""Attempts before an item is given up: an exception uses one up, and so does a worker that dies. One that stops
releases what it holds (`release`)."""


class Outcome(Enum):
    """How the work on an item ended."""

    DONE = auto()
    MORE = auto()
    """A part was done: the rest waits for its owner's next turn."""
    FAILED = auto()
    """It waits for another attempt."""


class Queue(NamedTuple):
    """A broker queue, and the kinds of work that are sent to it. They share their turns."""

    name: str
    """Empty for that of all tasks that request no long work."""
    kinds: tuple[WorkKind, ...]


SHORT = Queue("", (WorkKind.RESULTS, WorkKind.ADVANCE))
"""Milliseconds each: nothing that takes long may hold these up."""
SEARCH = Queue("search", (WorkKind.SEARCH, WorkKind.LEARN))
"""Seconds of a core each."""
SCORES = Queue("scores", (WorkKind.SCORE,))
"""What needs torch."""
QUEUES = (SHORT, SEARCH, SCORES)
"""Workers choose which to serve."""

REQUESTED_BY = {
    tasks.ADVANCE: WorkKind.ADVANCE,
    tasks.PROCESS_RESULTS: WorkKind.RESULTS,
}
"""Task → the kind of work that it requests."""


def queue_of(kind: WorkKind) -> Queue:
    """The queue of a kind of work."""
    return next(queue for queue in QUEUES if kind in queue.kinds)


@dataclass(frozen=True)
class Claim:
    """An item that a worker holds."""

    kind: WorkKind
    subject: str
    owner: str
    fence: int
    attempts: int
    """This one included; more than one: so many before have failed, or their workers have died."""

    @property
    def is_last(self) -> bool:
        """Whether no further attempt follows this one."""
        return self.attempts >= MAX_ATTEMPTS

    @property
    def is_lost(self) -> bool:
        """Whether the last attempt ended without a word: the item is to be given up."""
        return self.attempts > MAX_ATTEMPTS


def request(session: Session, kind: WorkKind, subjects: Mapping[str, str], now: datetime) -> None:
    """Requests work for each subject (subject → owner), unless it waits already; another owner who wants it too may
    bring its turn forward. One that is being done is done once more: what its worker has read may be of before.
    """
    by_owner: dict[str, list[str]] = {}
    for subject, owner in subjects.items():
        by_owner.setdefault(owner, []).append(subject)
    for owner, of_owner in by_owner.items():
        for subject, turn in zip(of_owner, _turns(session, kind, owner, len(of_owner)), strict=True):
            insert = sql.upsert(session, WorkItem).values(
                kind=kind, subject=subject, owner=owner, turn=turn, requested_at=now, again=False, fence=0, attempts=0
            )
            earlier = case((WorkItem.turn > insert.excluded.turn, insert.excluded.turn), else_=WorkItem.turn)
            values = {"again": WorkItem.claimed_until.is_not(None), "turn": earlier}
            session.execute(insert.on_conflict_do_update(index_elements=["kind", "subject"], set_=values))


def claim(session: Session, queue: Queue, holder: str, slots: int, now: datetime) -> Claim | None:
    """The item of the queue whose turn it is, for a worker that does at most `slots` of what is short, or of what is
    long, at once. None if nothing waits for it.
    """
    sql.lock_name(session, "work", holder)
    alike = SHORT.kinds if queue == SHORT else (*SEARCH.kinds, *SCORES.kinds)
    of_holder = (WorkItem.holder == holder, WorkItem.kind.in_(alike), ~_is_free(now))
    if (session.scalar(select(func.count()).where(*of_holder)) or 0) >= slots:
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
    item.holder, item.claimed_until, item.again = holder, now + CLAIM, False
    item.fence += 1
    item.attempts += 1
    session.flush()
    return Claim(item.kind, item.subject, item.owner, item.fence, item.attempts)


def extend(session: Session, held: Claim, now: datetime) -> bool:
    """Holds the item for `CLAIM` from now; False if it is another worker's by now."""
    statement = update(WorkItem).where(_is(held)).values(claimed_until=now + CLAIM)
    return bool(session.execute(statement.returning(WorkItem.fence)).first())


def finish(session: Session, held: Claim, now: datetime, outcome: Outcome = Outcome.DONE) -> None:
    """Ends a claim. What is not done, or was requested again meanwhile, waits for its owner's next turn."""
    item = session.scalar(select(WorkItem).where(_is(held)).with_for_update().execution_options(populate_existing=True))
    if item is None:
        return
    if outcome == Outcome.DONE and not item.again:
        session.delete(item)
        return
    (item.turn,) = _turns(session, held.kind, item.owner, 1)
    item.attempts = held.attempts if outcome == Outcome.FAILED else 0
    item.requested_at, item.holder, item.claimed_until, item.again = now, None, None, False


def release(session: Session, held: Claim | str) -> None:
    """Gives back undone what a claim, or the worker of this name, holds, at no cost of attempts: any worker may do it
    at once, and the claims are void.
    """
    whose = WorkItem.holder == held if isinstance(held, str) else _is(held)
    values = {"holder": None, "claimed_until": None, "attempts": WorkItem.attempts - 1, "fence": WorkItem.fence + 1}
    session.execute(update(WorkItem).where(WorkItem.claimed_until.is_not(None), whose).values(values))


def resend(session: Session, now: datetime) -> None:
    """Wakes workers for items that nobody does; called by the sweep."""
    open_kinds = set(session.scalars(select(WorkItem.kind).where(_is_free(now)).distinct()))
    for queue in QUEUES:
        if open_kinds.intersection(queue.kinds):
            wake(session, queue)


def wake(session: Session, queue: Queue, workers: int = 1) -> None:
    """Tells so many workers that there are items in the queue, after the commit."""
    for number in range(workers):
        enqueue(session, tasks.WORK, queue=queue.name, number=number)


def _is(held: Claim) -> ColumnElement[bool]:
    return and_(WorkItem.kind == held.kind, WorkItem.subject == held.subject, WorkItem.fence == held.fence)


def _is_free(now: datetime) -> ColumnElement[bool]:
    return or_(WorkItem.claimed_until.is_(None), over(WorkItem.claimed_until, now, CLAIM))


def _turns(session: Session, kind: WorkKind, owner: str, count: int) -> list[float]:
    there, waits = WorkItem.kind.in_(queue_of(kind).kinds), WorkItem.claimed_until.is_(None)
    queue = TurnQueue(WorkItem, waiting=(there, waits), served=(there, ~waits))
    return next_turns(session, queue, WorkItem.owner == owner, count)


PER_HOLD = 4
"""Heartbeats within the time after which it counts as lost: two may get lost, and one may be late."""


def interval_s(hold_s: float) -> float:
    """Seconds between two heartbeats of what is held for so long after each of them."""
    return hold_s / PER_HOLD
