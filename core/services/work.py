"""Work items: what is to be done in the background, whose turn it is, and which worker does it.

A message names a kind of work and a subject. The worker that receives it requests the item, and then claims the one
whose turn it is, which may be another: the rows decide who does what, a message only wakes. So it does no harm that a
message is lost, is late, or comes twice.

Turns are those of start-time fair queueing (Goyal, Vin, Cheng 1996), as on the queues of devices
(`jobs.queries.turns`): an owner's item begins at the turn that is served now, or one behind the owner's last. So owners
that have much to do alternate, and one that has little waits for one item of each other owner at most.

A claim holds until `CLAIM` has passed since it was extended last. The item of a worker that died goes to another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, cast

from sqlalchemy import BindParameter, ColumnElement, Table, bindparam, case, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from edgefront.core.services import tasks
from edgefront.core.states import WorkKind
from edgefront.core.store import sql
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.tables import WorkItem
from edgefront.core.store.tables.base import UtcDateTime

CLAIM = timedelta(seconds=20)
"""A claim that is not extended for so long belonged to a worker that died."""

MAX_ATTEMPTS = 10
"""Workers that may die of an item, or attempts that may fail, before it is given up."""
MAX_SCORE_ATTEMPTS = 3
"""Attempts of a score before it is given up: each may take minutes, and all of a device's memory."""


class Ending(Enum):
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
SEARCH = Queue("search", (WorkKind.SEARCH, WorkKind.REFIT, WorkKind.MOVE_LAW))
"""Seconds of a core each."""
SCORES = Queue("scores", (WorkKind.SCORE,))
"""What needs torch."""
QUEUES = (SHORT, SEARCH, SCORES)
"""Workers choose which to serve."""

REQUESTED_BY = {
    tasks.ADVANCE: WorkKind.ADVANCE,
    tasks.PROCESS_RESULTS: WorkKind.RESULTS,
    tasks.REFIT: WorkKind.REFIT,
    tasks.MOVE_LAW: WorkKind.MOVE_LAW,
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
        return self.attempts >= _max_attempts(self.kind)

    @property
    def is_lost(self) -> bool:
        """Whether the last attempt ended without a word: the item is to be given up."""
        return self.attempts > _max_attempts(self.kind)


def _max_attempts(kind: WorkKind) -> int:
    return MAX_SCORE_ATTEMPTS if kind == WorkKind.SCORE else MAX_ATTEMPTS


def _free(now: datetime | BindParameter[datetime]) -> ColumnElement[bool]:
    return or_(WorkItem.claimed_until.is_(None), WorkItem.claimed_until <= now)


def _of(kinds: Collection[WorkKind]) -> ColumnElement[bool]:
    return or_(*(WorkItem.kind == kind for kind in kinds))


def _requested(insert: postgresql.Insert | sqlite.Insert) -> sql.Prepared:
    turn = insert.excluded.turn
    values: dict[str, BindParameter[Any]] = {  # each of its column's type
        name: bindparam(name) for name in ("kind", "subject", "owner", "turn", "requested_at")
    }
    return sql.Prepared(
        insert.values(**values, again=False, fence=0, attempts=0).on_conflict_do_update(
            index_elements=["kind", "subject"],
            set_={
                "again": WorkItem.claimed_until.is_not(None),
                "turn": case((WorkItem.turn > turn, turn), else_=WorkItem.turn),
            },
        )
    )


# Every task sends these, so they are made once.
_NOW = bindparam("now", type_=UtcDateTime)
_ITS = (WorkItem.kind == bindparam("its_kind")) & (WorkItem.subject == bindparam("its_subject"))
_OF_CLAIM = _ITS & (WorkItem.fence == bindparam("its_fence"))
_TABLE = cast(Table, WorkItem.__table__)
_REQUEST = {"postgresql": _requested(postgresql.insert(_TABLE)), "sqlite": _requested(sqlite.insert(_TABLE))}
_WAITS = WorkItem.claimed_until.is_(None)
_TURNS = {
    queue: sql.Prepared(
        select(
            func.min(WorkItem.turn).filter(_WAITS),
            func.max(WorkItem.turn).filter(~_WAITS),
            func.max(WorkItem.turn).filter(WorkItem.owner == bindparam("owner")),
        ).where(_of(queue.kinds))
    )
    for queue in QUEUES
}
_HELD_BY = {
    is_short: sql.Prepared(
        select(WorkItem.owner, func.count())
        .where(WorkItem.holder == bindparam("holder"), _of(kinds), WorkItem.claimed_until > _NOW)
        .group_by(WorkItem.owner)
    )
    for is_short, kinds in ((True, SHORT.kinds), (False, (*SEARCH.kinds, *SCORES.kinds)))
}
_NEXT = {
    queue: sql.Prepared(
        select(WorkItem.kind, WorkItem.subject, WorkItem.owner, WorkItem.fence, WorkItem.attempts)
        .where(_of(queue.kinds), _free(_NOW), ~sql.any_of(WorkItem.owner, sql.texts("busy")))
        .order_by(WorkItem.turn, WorkItem.requested_at, WorkItem.subject)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    for queue in QUEUES
}
_CLAIM = sql.Prepared(
    update(_TABLE)
    .where(_ITS)
    .values(
        holder=bindparam("holder"),
        claimed_until=bindparam("until", type_=UtcDateTime),
        again=False,
        fence=_TABLE.c.fence + 1,
        attempts=_TABLE.c.attempts + 1,
    )
)
_LOCK = sql.Prepared(select(WorkItem.owner, WorkItem.again).where(_OF_CLAIM).with_for_update())
_DONE = sql.Prepared(delete(_TABLE).where(_OF_CLAIM))
_WAIT = sql.Prepared(
    update(_TABLE)
    .where(_OF_CLAIM)
    .values(
        turn=bindparam("next"),
        requested_at=_NOW,
        holder=None,
        claimed_until=None,
        again=False,
        attempts=bindparam("spent"),
    )
)


def request(session: Session, kind: WorkKind, subjects: Mapping[str, str], now: datetime) -> None:
    """Requests work for each subject (subject → owner), unless it waits already; another owner who wants it too may
    bring its turn forward. One that is being done is done once more: what its worker has read may be of before.
    """
    turns = {owner: _next_turn(session, queue_of(kind), owner) for owner in set(subjects.values())}
    for subject, owner in subjects.items():
        values = {"kind": kind, "subject": subject, "owner": owner, "turn": turns[owner], "requested_at": now}
        _REQUEST[session.get_bind().dialect.name].run(session, values)
        turns[owner] += 1


def claim(session: Session, queue: Queue, holder: str, slots: int, now: datetime) -> Claim | None:
    """The item of the queue whose turn it is, for a worker that does at most `slots` of what is short, or of what is
    long, at once. None if nothing waits for it.

    Of several slots an owner gets all but one, so that long work of one owner does not block another's.
    """
    sql.lock_name(session, "work", holder)
    of_holder = _HELD_BY[queue == SHORT].run(session, {"holder": holder, "now": now})
    held: dict[str, int] = dict(of_holder)
    if sum(held.values()) >= slots:
        return None
    busy = [owner for owner, count in held.items() if count >= max(1, slots - 1)]
    for kind, subject, owner, fence, attempts in _NEXT[queue].run(session, {"busy": busy, "now": now}):
        values = {"its_kind": kind, "its_subject": subject, "holder": holder, "until": now + CLAIM}
        _CLAIM.run(session, values)
        return Claim(kind, subject, owner, fence + 1, attempts + 1)
    return None


def extend(session: Session, held: Claim, now: datetime) -> bool:
    """Holds the item for `CLAIM` from now; False if it is another worker's by now."""
    statement = update(WorkItem).where(_held(held)).values(claimed_until=now + CLAIM)
    return bool(session.execute(statement.returning(WorkItem.fence)).first())


def finish(session: Session, held: Claim, now: datetime, ending: Ending = Ending.DONE) -> None:
    """Ends a claim. What is not done, or was requested again meanwhile, waits for its owner's next turn."""
    asked = {"its_kind": held.kind, "its_subject": held.subject, "its_fence": held.fence}
    for owner, again in _LOCK.run(session, asked):
        if ending == Ending.DONE and not again:
            _DONE.run(session, asked)
        else:
            turn = _next_turn(session, queue_of(held.kind), owner)
            attempts = held.attempts if ending == Ending.FAILED else 0
            _WAIT.run(session, {**asked, "next": turn, "now": now, "spent": attempts})


def release(session: Session, held: Claim) -> None:
    """Gives an item back undone, at no cost of attempts: any worker may do it at once."""
    values = {"holder": None, "claimed_until": None, "attempts": WorkItem.attempts - 1}
    session.execute(update(WorkItem).where(_held(held)).values(values))


def resend(session: Session, now: datetime) -> None:
    """Wakes workers for items that nobody does; called by the sweep."""
    open_kinds = set(session.scalars(select(WorkItem.kind).where(_free(now)).distinct()))
    for queue in QUEUES:
        if open_kinds.intersection(queue.kinds):
            wake(session, queue)


def wake(session: Session, queue: Queue, workers: int = 1) -> None:
    """Tells so many workers that there are items in the queue, after the commit."""
    for number in range(workers):
        enqueue(session, tasks.WORK, queue=queue.name, number=number)


def _held(held: Claim) -> ColumnElement[bool]:
    return (WorkItem.kind == held.kind) & (WorkItem.subject == held.subject) & (WorkItem.fence == held.fence)


def _next_turn(session: Session, queue: Queue, owner: str) -> float:
    """The turn of what the owner requests now: see the module."""
    ((waiting, claimed, own),) = _TURNS[queue].run(session, {"owner": owner})
    served: float = waiting if waiting is not None else claimed or 0.0
    return served if own is None else max(served, own + 1)


PER_HOLD = 4
"""Heartbeats within the time after which it counts as lost: two may get lost, and one may be late."""


def interval_s(hold_s: float) -> float:
    """Seconds between two heartbeats of what is held for so long after each of them."""
    return hold_s / PER_HOLD
