"""`/v1/reports`: results of launches. A hot path, like the leases."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import DeviceId, Here
from edgefront.api.http.file_responses import send_view
from edgefront.api.http.hot_route import HotRoute
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import reports
from edgefront.core.wire.agent import ReportRequest, ReportResponse

router = APIRouter(prefix="/v1", tags=["agents"], route_class=HotRoute)


@router.post(
    "/reports",
    operation_id="report",
    summary="Report finished launches",
    response_model=ReportResponse,
    responses={**answer(example("report_response")), **errors(409)},
)
def report(
    body: Annotated[ReportRequest, Body(openapi_examples=sample(example("report_request")))],
    device_id: DeviceId,
    here: Here,
) -> Response:
    """Returns one receipt per report, in order. A report that is sent again gets the same answer and counts once."""
    devices.check_protocol_version(body.protocol_version)
    with here.database.write() as session:
        receipts = reports.accept(session, device_id, body, here.database.now(session))
    here.changed()
    for receipt in receipts.receipts:
        here.metrics.reports.labels(receipt.outcome).inc()
    return send_view(receipts)
