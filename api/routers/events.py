"""Event streams of jobs and trainings (`/v1/jobs/{id}/events`). A stream sends the events of a log after any event
number, then new events, as server-sent events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import AppContext, Context, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import event_stream_answer
from edgefront.api.http.credentials import Credential
from edgefront.api.http.parameters import JobId, TrainingId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.errors import InvalidInput
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal, authenticate, authenticate_web

router = APIRouter(prefix="/v1", route_class=JsonRoute)

HEARTBEAT_S = 15
RETRY_MS = 2000
SEND_TIMEOUT_S = 60
_MAX_EVENT = 1 << 53

After = Annotated[int, Query(ge=0, le=_MAX_EVENT, description="Number of the last event that you have received")]
LastEventId = Annotated[
    str | None,
    Header(
        pattern=r"^[0-9]{1,16}$", description="As `after`, and takes precedence over it; browsers send it automatically"
    ),
]


def latest_event(after: After = 0, last_event_id: LastEventId = None) -> int:
    return int(last_event_id) if last_event_id else after


LatestEvent = Annotated[int, Depends(latest_event)]
"""Number of the last event that the client has received."""


@router.get(
    "/jobs/{job_id}/events",
    tags=["jobs"],
    summary="Follow a job's events (SSE)",
    response_class=EventSourceResponse,
    responses=event_stream_answer(example("job_event_stream"), 404),
)
async def follow_job(
    job_id: JobId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    begin: LatestEvent,
) -> Response:
    """Sends the events of the log after `after`, then every new event within a second of its commit; none is skipped.

    Each has the event's number as its id, its kind as its type, and the whole event as its data. A comment is sent
    every 15 s. The stream stays open after the job has ended (event `job_state`), until the client closes the stream,
    the server stops, the key is revoked or the job is deleted. Reconnect with the number of the latest event.
    """
    return await _event_stream(request, context, viewer, job_id, begin)


@router.get(
    "/trainings/{training_id}/events",
    tags=["trainings"],
    summary="Follow a training's events (SSE)",
    response_class=EventSourceResponse,
    responses=event_stream_answer(example("training_event_stream"), 404),
)
async def follow_training(
    training_id: TrainingId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    begin: LatestEvent,
) -> Response:
    """Sends the events of the log after `after`, then new states, metrics and checkpoints; none is skipped.

    Each has the event's number as its id, its kind as its type, and the whole event as its data. `rewound`
    invalidates metrics of steps that were lost in a crash: they are sent again. The stream stays open after the
    training has ended.
    """
    return await _event_stream(request, context, viewer, training_id, begin)


async def _event_stream(
    request: Request,
    context: Context,
    principal: Principal,
    log_id: str,
    begin: int,
) -> Response:
    """Returns a stream of the events of a job's or training's log after number `begin`, followed by new events.

    Access is checked repeatedly while the stream is open. Raises `InvalidInput` for an event number that the log does
    not contain.
    """

    def check() -> None:
        with context.database.read() as session:
            event_log.check_access(session, principal, log_id)
            if begin and not event_log.read(session, log_id, begin - 1, 1):
                raise InvalidInput(
                    f"after: the log has no event {begin}",
                    field="after",
                    value=begin,
                    allowed="0, or the number of an event that you have received",
                )

    await run_in_threadpool(check)
    context.feeds.admit(principal.key_id)
    credential: Credential | None = getattr(request.state, "credential", None)  # None: a proxy has signed the person in

    def allowed() -> None:
        with context.database.read() as session:
            reader = principal
            if credential is not None:
                find = authenticate_web if credential.cookie else authenticate
                reader = find(session, credential.secret, datetime.now(timezone.utc))
            event_log.check_access(session, reader, log_id)

    async def stream() -> AsyncIterator[bytes]:
        yield ServerSentEvent(comment="events follow", retry=RETRY_MS).encode()
        async with aclosing(context.feeds.follow(log_id, begin, principal.key_id, allowed)) as events:
            async for data in events:
                context.metrics.events.inc()
                yield data

    answer: Response = EventSourceResponse(
        stream(),
        ping=HEARTBEAT_S,
        ping_message_factory=lambda: ServerSentEvent(comment="still here"),
        send_timeout=SEND_TIMEOUT_S,
    )
    return answer
