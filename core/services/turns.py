"""Turns: the order in which a queue serves its owners, by start-time fair queueing (Goyal, Vin, Cheng 1996).

Each request gets a number, its turn, and a queue serves the lowest turn first. A new request gets the turn that is
served now or, if higher, the owner's highest turn plus 1. So owners with many requests alternate, and an owner's only
request waits for at most one request per other owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.store.tables import Launch, Training, WorkItem

FIRST = 1.0
"""Turn of an owner's first request. The service's own requests have turn 0 and come before all owners."""


@dataclass(frozen=True)
class TurnQueue:
    """Rows of a queue: their database table, and the SQL conditions for waiting and for served rows."""

    table: type[Launch] | type[Training] | type[WorkItem]
    waiting: tuple[ColumnElement[bool], ...]
    served: tuple[ColumnElement[bool], ...]


def next_turns(session: Session, queue: TurnQueue, owned: ColumnElement[bool], count: int) -> list[float]:
    """Returns rising turns for `count` new requests of an owner. `owned` is the SQL condition for the owner's rows."""

    def extreme(function: Any, *conditions: ColumnElement[bool]) -> Any:
        return select(function(queue.table.turn)).where(*conditions).scalar_subquery()

    lowest, released, highest, *own = session.execute(
        select(
            # A released row keeps its old, low turn, at which no new request may start.
            extreme(func.min, *queue.waiting, queue.table.fence == 0),
            extreme(func.min, *queue.waiting),
            extreme(func.max, *queue.served),
            extreme(func.max, *queue.waiting, owned),
            extreme(func.max, *queue.served, owned),
        )
    ).one()
    first = max(FIRST, lowest or released or 0.0, highest or 0.0, *(turn + 1 for turn in own if turn is not None))
    return [first + index for index in range(count)]
