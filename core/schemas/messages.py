"""What all messages have in common: they are frozen, and a request with an unknown field is refused; and events.

The `data` of each kind of event, of a job's log and of a training's:

job_state       state; reason
target_state    state, note
generation      number; candidates, how many were proposed
candidate       id, number, role, state, reason; its figures are in its `CandidateView`
frontier        joined and left, ids of candidates; size, hypervolume
launch          launch_id, candidate_ids, outcome, reason, attempts; final, False where it is tried again

state           state, wanted, reason, note
metric          a `MetricView`
rewound         step, behind which metrics come again
checkpoint      step
note            note
evaluation      dataset, split, metric, value
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from edgefront.core.schemas.agent import Identifier


class Request(BaseModel):
    """What a person sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(BaseModel):
    """What the service answers. Clients of an older release pass over fields that they do not know."""

    model_config = ConfigDict(frozen=True)


class Event(View):
    """One event of a log, also of a kind that this release does not know: a client outlives newer services."""

    number: int
    """Rises by one within the log."""
    kind: str
    target_id: Identifier | None = None
    data: dict[str, Any]
    created_at: datetime


def read_event(data: str) -> Event:
    """The event that the data of a message of an event stream holds."""
    return Event.model_validate_json(data)
