"""`/v1/jobs/{id}/events`: a job's log as server-sent events."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sse_starlette import EventSourceResponse

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.parameters import JobId
from edgefront.api.live.streaming import After, LastEventId, event_stream

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get(
    "/{job_id}/events",
    operation_id="follow_job",
    summary="Follow a job's events (SSE)",
    response_class=EventSourceResponse,
    responses={
        **answer(
            example("job_event_stream"),
            media="text/event-stream",
            description="An endless stream of events",
            schema={"type": "string"},
        ),
        **errors(404),
    },
)
async def follow_job(
    job_id: JobId,
    request: Request,
    person: Reader,
    here: Here,
    after: After = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Sends the events of the log after `after`, then every new event within a second of its commit; none is skipped.

    Each has the event's number as its id, its kind as its type, and an EventView as its data. A comment is sent every
    15 s. The stream stays open after the job has ended (`job_state` says so): close it when you need no more. It
    ends by itself when the server stops, the key is revoked or the job deleted; reconnect with the last number.
    """
    return await event_stream(request, here, person, job_id, after, last_event_id)
