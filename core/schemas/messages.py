"""Base classes of messages, which are frozen (requests refuse unknown fields), and events.

Fields of `data` by kind of event, in the log of a job or of a training:

job_state       state; reason
target_state    state, note
generation      number; candidates, how many were proposed
candidate       id, number, role, state, reason; its figures are in its `CandidateView`
frontier        joined and left, ids of candidates; size, hypervolume
launch          launch_id, candidate_ids, outcome, reason, attempts; final, False if it is retried

state           state, wanted, reason, note
metric          a `MetricView`
rewound         step after which metrics are repeated
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
    """Base class of requests by people."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(BaseModel):
    """A response of the service. Older clients ignore unknown fields."""

    model_config = ConfigDict(frozen=True)


class Event(View):
    """An event of a log, also of a kind that this release does not know."""

    number: int
    """Number within the log, which rises by one with each event."""
    kind: str
    target_id: Identifier | None = None
    data: dict[str, Any]
    created_at: datetime


def read_event(data: str) -> Event:
    """Parses the data of a message of an event stream."""
    return Event.model_validate_json(data)
