"""Endpoints for agents: enrol (`/v1/agents`), lease launches, extend leases, return launches and report results.

This is the hot path of the service.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Body, Request, Response
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import AppContext, Context, DeviceId, EnrolmentToken
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.file_responses import send_view
from edgefront.api.http.parameters import LaunchId, LeaseId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.errors import EdgefrontError, Unavailable
from edgefront.core.common.states import DeviceState
from edgefront.core.schemas.agent import (
    INSTANCE,
    INSTANCE_HEADER,
    WITHHELD_HEADER,
    DeviceFacts,
    EnrolRequest,
    EnrolResponse,
    HeartbeatResponse,
    LeaseRequest,
    LeaseResponse,
    ReleaseRequest,
    ReportRequest,
    ReportResponse,
    StartRequest,
)
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import launches, leases

router = APIRouter(prefix="/v1", tags=["agents"], route_class=JsonRoute)

_LEASED = answer(example("lease_response"))
_LEASED[200]["headers"] = {
    WITHHELD_HEADER: {
        "schema": {"type": "string"},
        "description": "Why the device gets no launches, such as its quarantine, percent-encoded",
    },
}
_INSTANCE_PARAMETER = {
    "name": INSTANCE_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{INSTANCE.pattern}$"},
    "description": "A random name of the agent's process: two that run with one credential get 409",
}
MAX_REASON = 1000
"""Maximum characters of the reason why a device gets no launches, as sent to the agent."""
DRAINING_WAIT_S = 5.0
"""Seconds that a draining device waits between requests, once it knows that it is draining."""


@router.post(
    "/leases",
    summary="Lease launches, or wait until there are some",
    response_model=LeaseResponse,
    responses={**_LEASED, **errors(409)},
    openapi_extra={"parameters": [_INSTANCE_PARAMETER]},
)
async def lease(
    body: Annotated[LeaseRequest, Body(openapi_examples=sample(example("lease_request")))],
    device_id: DeviceId,
    request: Request,
    context: AppContext,
) -> Response:
    """Returns launches at once, or waits up to `wait_s` for launches and then returns an empty list (long poll)."""
    devices.check_protocol_version(body.protocol_version)
    loop = asyncio.get_running_loop()
    end = loop.time() + min(body.wait_s, context.settings.leases.max_wait_s)
    given = request.headers.get(INSTANCE_HEADER, "")
    instance = given if INSTANCE.fullmatch(given) else None
    claimed = await run_in_threadpool(_claim, context, device_id, body, instance, body.facts)
    headers = {}
    began = loop.time()
    if not claimed.items and end > began and not context.room.closed:
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            claimed = await _wait_for_work(request, context, device_id, body, claimed, end, gone)
        finally:
            gone.cancel()
        waited = loop.time() - began
        request.state.waited_s = waited
        context.metrics.lease_wait.observe(waited)
    else:
        context.metrics.lease_wait.observe(0.0)
    context.metrics.leased.inc(len(claimed.items))
    if claimed.blocked_reason is not None:
        headers[WITHHELD_HEADER] = quote(claimed.blocked_reason[:MAX_REASON])
    return Response(claimed.as_json(), media_type="application/json", headers=headers)


async def _wait_for_work(
    request: Request,
    context: Context,
    device_id: str,
    body: LeaseRequest,
    claimed: launches.GrantedLease,
    end: float,
    gone: asyncio.Future[None],
) -> launches.GrantedLease:
    loop = asyncio.get_running_loop()
    if claimed.state == DeviceState.DRAINING:
        end = min(end, loop.time() + DRAINING_WAIT_S)
    while not claimed.items and not gone.done() and not context.room.closed:
        left = end - loop.time()
        if left <= 0:
            break
        may_wait = await context.room.wait(device_id, claimed.keys, min(left, context.room.patience_s), gone)
        if gone.done() or context.room.closed or not may_wait:
            break
        before = claimed.state
        try:
            await context.credentials.resolve(request.state.credential)  # the credential may have ended during the wait
            claimed = await run_in_threadpool(_claim, context, device_id, body)
        except Unavailable:
            continue  # waits here until the database is available; the agent would only retry
        if claimed.state != before:
            break
    if gone.done() and claimed.lease_id is not None:
        # The client is gone: release the lease rather than waiting for it to expire.
        with suppress(EdgefrontError):
            await run_in_threadpool(_release, context, device_id, claimed.lease_id, ())
    return claimed


def _claim(
    context: Context, device_id: str, body: LeaseRequest, instance: str | None = None, facts: DeviceFacts | None = None
) -> launches.GrantedLease:
    """Claims launches for the device. `instance` and `facts` are given only on the first attempt of a request, because
    a request that has waited is no evidence that its agent still runs.
    """
    with context.database.write() as session:
        now = context.database.now(session)
        if facts is not None:
            devices.update_facts(session, device_id, facts)
        claimed = launches.claim(session, device_id, body.max_items, now, context.settings.leases.ttl_s, instance)
    return claimed._replace(heartbeat_s=context.settings.leases.heartbeat_s)


async def _disconnected(request: Request) -> None:
    """Returns when the client has disconnected. The body was read before, so no other message can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post(
    "/leases/{lease_id}/heartbeat",
    summary="Extend a lease",
    response_model=HeartbeatResponse,
    responses=answer(example("heartbeat"), 404),
)
def heartbeat(lease_id: LeaseId, device_id: DeviceId, context: AppContext) -> Response:
    """Extends the lease, and returns which of its launches are no longer wanted."""
    with context.database.write() as session:
        now = context.database.now(session)
        beat = leases.heartbeat(session, device_id, lease_id, now, context.settings.leases.ttl_s)
    return send_view(beat)


@router.post(
    "/leases/{lease_id}/release",
    status_code=204,
    summary="Return launches",
    responses={204: {"description": "Returned"}, **errors(404)},
)
def release(
    lease_id: LeaseId,
    body: Annotated[ReleaseRequest, Body(openapi_examples=sample(example("release_request")))],
    device_id: DeviceId,
    context: AppContext,
) -> None:
    """Returns launches that were not started, or all unfinished ones if none are named. Uses up no attempt."""
    _release(context, device_id, lease_id, body.launch_ids)
    context.changed()


def _release(context: Context, device_id: str, lease_id: str, launch_ids: tuple[str, ...]) -> None:
    with context.database.write() as session:
        leases.release(session, device_id, lease_id, launch_ids, context.database.now(session))


@router.post(
    "/launches/{launch_id}/start",
    status_code=204,
    summary="Report the start of a launch",
    responses={204: {"description": "Noted"}, **errors(404, 409)},
)
def start_launch(
    launch_id: LaunchId,
    body: Annotated[StartRequest, Body(openapi_examples=sample(example("start_request")))],
    device_id: DeviceId,
    context: AppContext,
) -> None:
    """Marks the launch as started. If the agent dies from now on, only this launch loses an attempt."""
    with context.database.write() as session:
        leases.start(session, device_id, launch_id, body.fence, context.database.now(session), body.conditions)


@router.post(
    "/reports",
    summary="Report finished launches",
    response_model=ReportResponse,
    responses=answer(example("report_response"), 409),
)
def report(
    body: Annotated[ReportRequest, Body(openapi_examples=sample(example("report_request")))],
    device_id: DeviceId,
    context: AppContext,
) -> Response:
    """Returns one receipt per report, in order. A report that is sent again gets the same receipt and counts once."""
    devices.check_protocol_version(body.protocol_version)
    with context.database.write() as session:
        receipts = launches.report(session, device_id, body, context.database.now(session))
    context.changed()
    for receipt in receipts.receipts:
        context.metrics.reports.labels(receipt.outcome).inc()
    return send_view(receipts)


@router.post(
    "/agents/enrol",
    status_code=201,
    summary="Exchange an enrolment token for a device's credential",
    responses=answer(example("enrol_response"), 409, status=201, description="The credential; it is shown only once"),
)
def enrol(
    request: Annotated[EnrolRequest, Body(openapi_examples=sample(example("enrol_request")))],
    token: EnrolmentToken,
    context: AppContext,
) -> EnrolResponse:
    """Exchanges the bearer, an enrolment token, for a credential. The token enrols a new device with its own name, or
    the device that the token was made for (`reenrol_device`), whose old credential ends.
    """
    with context.database.write() as session:
        answer_ = leases.enrol(session, token, request, context.database.now(session))
    context.credentials.forget()
    return answer_
