"""A log as server-sent events: replayed from any number, then followed indefinitely."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timezone
from typing import Annotated

from fastapi import Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import Context
from edgefront.api.http.credentials import Credential
from edgefront.core.common.errors import InvalidInput
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal, authenticate, authenticate_web

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


async def event_stream(
    request: Request,
    context: Context,
    principal: Principal,
    log_id: str,
    after: int,
    last_event_id: str | None,
) -> Response:
    """The events of the log of a job or training: existing ones, then new ones.

    Access is checked again and again while the stream is open. Raises `InvalidInput` for a number that the log does not
    have.
    """
    begin = int(last_event_id) if last_event_id else after

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
    credential: Credential = request.state.credential

    def allowed() -> None:
        with context.database.read() as session:
            find = authenticate_web if credential.cookie else authenticate
            event_log.check_access(session, find(session, credential.secret, datetime.now(timezone.utc)), log_id)

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
