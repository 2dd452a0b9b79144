"""Turns: the order in which a queue serves its owners.

Every queue gives what is requested a number and serves the lowest. The numbers are those of start-time fair queueing
(Goyal, Vin, Cheng 1996), by owner: a request begins at the number that is served now, or one behind the owner's last,
and rises in steps of one. Owners with much to do alternate; an owner with little waits for one request of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.store.tables import Launch, Training, WorkItem

FIRST = 1.0
"""The turn of a first request. A lower one comes before all owners: the service's own requests have 0."""


@dataclass(frozen=True)
class TurnQueue:
    """The rows of a queue: their table, and the conditions for those that wait and that are served."""

    table: type[Launch] | type[Training] | type[WorkItem]
    waiting: tuple[ColumnElement[bool], ...]
    served: tuple[ColumnElement[bool], ...]


def next_turns(session: Session, queue: TurnQueue, owned: ColumnElement[bool], count: int) -> list[float]:
    """The turns of `count` requests of an owner, rising. `owned` is the condition for the owner's rows."""

    def extreme(function: Any, *conditions: ColumnElement[bool]) -> Any:
        return select(function(queue.table.turn)).where(*conditions).scalar_subquery()

    lowest, returned, highest, *own = session.execute(
        select(
            # What was given back keeps its turn, which is of long ago: nobody begins there.
            extreme(func.min, *queue.waiting, queue.table.fence == 0),
            extreme(func.min, *queue.waiting),
            extreme(func.max, *queue.served),
            extreme(func.max, *queue.waiting, owned),
            extreme(func.max, *queue.served, owned),
        )
    ).one()
    first = max(FIRST, lowest or returned or 0.0, highest or 0.0, *(turn + 1 for turn in own if turn is not None))
    return [first + index for index in range(count)]
