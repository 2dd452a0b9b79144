"""`/v1/agents/enrol`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import EnrolmentToken, Here
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.services.measuring import release_leases
from edgefront.core.wire.agent import EnrolRequest, EnrolResponse

router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=JsonRoute)


@router.post(
    "/enrol",
    status_code=201,
    summary="Exchange an enrolment token for a device's credential",
    responses={
        **answer(example("enrol_response"), status=201, description="The credential; it is shown only once"),
        **errors(409),
    },
)
def enrol(
    request: Annotated[EnrolRequest, Body(openapi_examples=sample(example("enrol_request")))],
    token: EnrolmentToken,
    here: Here,
) -> EnrolResponse:
    """The bearer is the enrolment token. It enrols a device with a name of its own, or the one that the token was made
    for (`reenrol_device`), whose old credential ends.
    """
    with here.database.write() as session:
        answer_ = release_leases.enrol(session, token, request, here.database.now(session))
    here.credentials.forget()
    return answer_
