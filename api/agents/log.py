"""`/v1/agents/log`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import sample
from edgefront.api.http.auth import DeviceId, Here
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.services.fleet import logs
from edgefront.core.wire.agent import LogRequest

router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=JsonRoute)


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
    """Agents send new lines at most every 15 s. The last 500 lines of each device are kept."""
    with here.database.write() as session:
        logs.add_lines(session, device_id, body)
