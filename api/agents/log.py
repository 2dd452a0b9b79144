"""`/v1/agents/log`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from edgefront.api.context import Context
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import sample
from edgefront.api.http.auth import DeviceId, Here, device_of
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.services.fleet import logs
from edgefront.core.wire.agent import LogRequest


class _LogRoute(JsonRoute):
    """Refuses what comes too often before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_log(request: Request) -> Response:
            context: Context = request.app.state.context
            context.log_rates.take(device_of(request))
            return await handle(request)

        return handle_log


router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=_LogRoute)


@router.post(
    "/log",
    status_code=204,
    operation_id="add_log_lines",
    summary="Send what an agent has logged",
    responses={204: {"description": "Stored"}},
)
def add_log_lines(
    body: Annotated[LogRequest, Body(openapi_examples=sample(example("log_request")))], device_id: DeviceId, here: Here
) -> None:
    """Agents send new lines at most every 15 s; 429 for a device that sends more than one request in 5 s for long. The
    last 500 lines of each device are kept.
    """
    with here.database.write() as session:
        logs.add_lines(session, device_id, body)
