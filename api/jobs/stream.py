"""`/v1/jobs/{id}/events`: a job's log as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api import examples
from api.auth import Here, Person
from api.context import Context
from api.credentials import Credential
from api.openapi import answer, errors
from api.parameters import JobId
from core.errors import InvalidInput
from core.services import events
from core.services.keys import Principal, authenticate, authenticate_web

HEARTBEAT_S = 15
RETRY_MS = 2000
SEND_TIMEOUT_S = 60
_MOST = 1 << 53

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get(
    "/{job_id}/events",
    operation_id="follow_job",
    summary="Follow a job's events (SSE)",
    response_class=EventSourceResponse,
    responses={
        **answer(
            examples.EVENT_STREAM,
            media="text/event-stream",
            description="Events without end",
            schema={"type": "string"},
        ),
        **errors(404),
    },
)
async def follow_job(
    job_id: JobId,
    request: Request,
    person: Person,
    here: Here,
    after: Annotated[int, Query(ge=0, le=_MOST, description="Number of the last event that you have")] = 0,
    last_event_id: Annotated[
        str | None,
        Header(pattern=r"^[0-9]{1,16}$", description="As `after`, and before it: browsers send it by themselves"),
    ] = None,
) -> Response:
    """First what is in the log behind `after`, then every event within a second of its commit; none is skipped.

    Each has the event's number as its id, its kind as its type, and an EventView as its data. A comment is sent every
    15 s. The stream stays open after the job has ended (`job_state` says so): close it when you have seen enough. It
    ends by itself when the server stops, the key is revoked or the job deleted; come back with the last number.
    """
    begin = int(last_event_id) if last_event_id else after
    await run_in_threadpool(_check, here, person, job_id, begin)
    here.feeds.admit(person.key_id)
    credential: Credential = request.state.credential

    def allowed() -> None:
        with here.database.read() as session:
            find = authenticate_web if credential.cookie else authenticate
            events.check_access(session, find(session, credential.secret, datetime.now(timezone.utc)), job_id)

    async def stream() -> AsyncIterator[bytes]:
        yield ServerSentEvent(comment="events follow", retry=RETRY_MS).encode()
        async with aclosing(here.feeds.follow(job_id, begin, person.key_id, allowed)) as events_:
            async for data in events_:
                here.metrics.events.inc()
                yield data

    answer_: Response = EventSourceResponse(
        stream(),
        ping=HEARTBEAT_S,
        ping_message_factory=lambda: ServerSentEvent(comment="still here"),
        send_timeout=SEND_TIMEOUT_S,
    )
    return answer_


def _check(here: Context, person: Principal, job_id: str, after: int) -> None:
    with here.database.read() as session:
        events.check_access(session, person, job_id)
        if after and not events.read_events(session, job_id, after - 1, 1):
            raise InvalidInput(
                f"after: the log has no event {after}",
                field="after",
                value=after,
                allowed="0, or the number of an event that you have seen",
            )
