"""`/v1/enrolment-tokens`: tokens with which new devices enrol."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import Admin, Here, Person
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import TokenId
from edgefront.core.services.access import keys
from edgefront.core.services.fleet import devices
from edgefront.core.wire.service import EnrolmentTokenRequest, EnrolmentTokenView

router = APIRouter(prefix="/v1/enrolment-tokens", tags=["devices"], route_class=JsonRoute)


@router.post(
    "",
    status_code=201,
    summary="Create an enrolment token",
    responses=answer(example("token_made"), status=201, description="The token; its secret is shown only once"),
)
def create_enrolment_token(
    request: Annotated[EnrolmentTokenRequest, Body(openapi_examples=sample(example("token_request")))],
    admin: Admin,
    here: Here,
) -> EnrolmentTokenView:
    with here.database.write() as session:
        now = here.database.now(session)
        keys.confirm(session, admin, now)
        token, secret = devices.create_enrolment_token(session, admin, request, now)
        return devices.token_view(token, secret)


@router.get(
    "",
    summary="List enrolment tokens",
    responses=answer([example("token")]),
)
def list_enrolment_tokens(admin: Admin, here: Here) -> list[EnrolmentTokenView]:
    with here.database.read() as session:
        return devices.list_enrolment_tokens(session, admin)


@router.get(
    "/{token_id}",
    summary="One enrolment token, and the devices that enrolled with it",
    responses={**answer(example("token_used")), **errors(404)},
)
def get_enrolment_token(token_id: TokenId, admin: Admin, here: Here) -> EnrolmentTokenView:
    with here.database.read() as session:
        return devices.get_enrolment_token(session, admin, token_id)


@router.delete(
    "/{token_id}",
    status_code=204,
    summary="Revoke an enrolment token",
    responses={204: {"description": "Revoked"}, **errors(404)},
)
def revoke_enrolment_token(token_id: TokenId, person: Person, here: Here) -> None:
    """Devices that enrolled with it stay enrolled. A token for one device is revoked by the device's owner too."""
    with here.database.write() as session:
        devices.revoke_enrolment_token(session, person, token_id, here.database.now(session))
