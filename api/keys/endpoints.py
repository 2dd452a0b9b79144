"""`/v1/keys` and `/v1/me`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import Admin, Anyone, Here, Person
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import KeyId
from edgefront.core.services.access import keys
from edgefront.core.wire.service import KeyRequest, KeyView, MeView

router = APIRouter(prefix="/v1", tags=["access"], route_class=JsonRoute)


@router.post(
    "/keys",
    status_code=201,
    summary="Create an API key",
    responses=answer(example("key_made"), status=201, description="The key; its secret is shown only once"),
)
def create_key(
    request: Annotated[KeyRequest, Body(openapi_examples=sample(example("key_request")))], admin: Admin, here: Here
) -> KeyView:
    with here.database.write() as session:
        now = here.database.now(session)
        keys.confirm(session, admin, now)
        key, secret = keys.create_key(
            session,
            name=request.name,
            owner=request.owner or request.name,
            role=request.role,
            now=now,
            expires_at=None if request.days is None else now + timedelta(days=request.days),
        )
        return keys.key_view(key, secret)


@router.get("/keys", summary="List API keys", responses=answer([example("key")]))
def list_keys(person: Person, here: Here) -> list[KeyView]:
    """The caller's own keys, without their secrets; an admin sees all."""
    with here.database.read() as session:
        return keys.list_keys(session, person)


@router.delete(
    "/keys/{key_id}",
    status_code=204,
    summary="Revoke an API key",
    responses={204: {"description": "Revoked"}, **errors(404, 409)},
)
def revoke_key(
    key_id: KeyId,
    person: Person,
    here: Here,
    force: Annotated[bool, Query(description="Revoke it even if it is the last valid key of an admin")] = False,
) -> None:
    """Revokes the key and its browser sessions, in every process of the service within one second."""
    with here.database.write() as session:
        keys.revoke_key(session, person, key_id, here.database.now(session), force=force)
    here.credentials.forget()


@router.get("/me", summary="The name, owner and role of this key", responses=answer(example("me")))
async def get_me(asker: Anyone) -> MeView:
    return MeView(key_id=asker.key_id, name=asker.name, owner=asker.owner, role=asker.role, device_id=asker.device_id)
