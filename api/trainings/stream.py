"""`/v1/trainings/{id}/events`: a training's log as server-sent events."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sse_starlette import EventSourceResponse

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.parameters import TrainingId
from edgefront.api.live.streaming import After, LastEventId, event_stream

router = APIRouter(prefix="/v1/trainings", tags=["trainings"])


@router.get(
    "/{training_id}/events",
    operation_id="follow_training",
    summary="Follow a training's events (SSE)",
    response_class=EventSourceResponse,
    responses={
        **answer(
            example("training_event_stream"),
            media="text/event-stream",
            description="An endless stream of events",
            schema={"type": "string"},
        ),
        **errors(404),
    },
)
async def follow_training(
    training_id: TrainingId,
    request: Request,
    person: Reader,
    here: Here,
    after: After = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Sends the events of the log after `after`, then new states, metrics and checkpoints; none is skipped.

    Each has the event's number as its id, its kind as its type, and a TrainingEventView as its data. `rewound`
    invalidates metrics of steps that were lost in a crash: they are sent again. The stream stays open after the
    training has ended.
    """
    return await event_stream(request, here, person, training_id, after, last_event_id)
