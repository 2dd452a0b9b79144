"""Events of jobs and trainings, as clients read them. The `data` of each kind:

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

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View


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
