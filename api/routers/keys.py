"""`/v1/keys`, `/v1/me`, `/v1/session` (browsers exchange a key for a cookie) and `/v1/identifiers`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from edgefront.api.context import AppContext, CurrentAdmin, CurrentPrincipal, CurrentUser, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import COOKIE, SIGN_ON
from edgefront.api.http.credentials import Credential
from edgefront.api.http.parameters import KeyId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.errors import Forbidden
from edgefront.core.common.logs import add_log_facts
from edgefront.core.schemas.service import IdentifiedKind, IdentifierView, KeyRequest, KeyView, MeView, SessionRequest
from edgefront.core.services.access import identifiers, keys
from edgefront.core.services.access.keys import Principal

router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post(
    "/keys",
    tags=["access"],
    status_code=201,
    summary="Create an API key",
    responses=answer(example("key_made"), status=201, description="The key; its secret is shown only once"),
)
def create_key(
    request: Annotated[KeyRequest, Body(openapi_examples=sample(example("key_request")))],
    admin: CurrentAdmin,
    context: AppContext,
) -> KeyView:
    with context.database.write() as session:
        now = context.database.now(session)
        keys.require_valid_key(session, admin, now)
        key, secret = keys.create_key(
            session,
            name=request.name,
            owner=request.owner or request.name,
            role=request.role,
            now=now,
            expires_at=None if request.days is None else now + timedelta(days=request.days),
        )
        add_log_facts(made=key.id)
        return keys.key_view(key, secret)


@router.get("/keys", tags=["access"], summary="List API keys", responses=answer([example("key")]))
def list_keys(user: CurrentUser, context: AppContext) -> list[KeyView]:
    """Returns the caller's own keys without their secrets; an admin sees all keys."""
    with context.database.read() as session:
        return keys.list_keys(session, user)


@router.delete(
    "/keys/{key_id}",
    tags=["access"],
    status_code=204,
    summary="Revoke an API key",
    responses={204: {"description": "Revoked"}, **errors(404, 409)},
)
def revoke_key(
    key_id: KeyId,
    user: CurrentUser,
    context: AppContext,
    force: Annotated[bool, Query(description="Revoke it even if it is the last valid key of an admin")] = False,
) -> None:
    """Revokes the key and its browser sessions, in every process of the service within one second."""
    with context.database.write() as session:
        keys.revoke_key(session, user, key_id, context.database.now(session), force=force)
    context.credentials.forget()


@router.get("/me", tags=["access"], summary="The name, owner and role of this key", responses=answer(example("me")))
async def get_me(principal: CurrentPrincipal) -> MeView:
    return _me(principal)


def _me(principal: Principal) -> MeView:
    return MeView(
        key_id=None if principal.key_id.startswith(SIGN_ON) else principal.key_id,
        name=principal.name,
        owner=principal.owner,
        role=principal.role,
        device_id=principal.device_id,
    )


@router.post(
    "/session",
    tags=["access"],
    status_code=201,
    summary="Exchange a key for a session cookie",
    responses=answer(
        example("me"), 401, 403, 429, status=201, description="Set-Cookie holds the session; no script can read it"
    ),
)
def open_session(
    body: Annotated[SessionRequest, Body(openapi_examples=sample(example("session_request")))],
    request: Request,
    response: Response,
    context: AppContext,
) -> MeView:
    """Opens a session that lasts for a week or as long as the key. Only the key in the body is needed."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("log in from this server's own page, not from another site")
    with context.database.read() as session:
        principal = keys.authenticate(session, body.key, context.database.now(session))
    with context.database.write() as session:
        secret = keys.open_web_session(session, principal, context.database.now(session))
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(keys.WEB_SESSION.total_seconds()),
        path=request.scope["root_path"] or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return _me(principal)


@router.delete(
    "/session", tags=["access"], status_code=204, summary="Log out", responses={204: {"description": "Logged out"}}
)
def close_session(_principal: CurrentPrincipal, request: Request, context: AppContext) -> Response:
    """Ends the session of the cookie; does nothing without a cookie."""
    credential: Credential | None = getattr(request.state, "credential", None)
    if credential is not None and credential.cookie:
        with context.database.write() as session:
            keys.close_web_session(session, credential.secret)
        context.credentials.forget()
    response = Response(status_code=204)
    response.delete_cookie(
        COOKIE,
        path=request.scope["root_path"] or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.get(
    "/identifiers",
    tags=["identifiers"],
    summary="The identifier that a part of it stands for",
    responses=answer(example("identifier"), 404),
)
def find_identifier(
    kind: Annotated[IdentifiedKind, Query(description="What it identifies")],
    text: Annotated[
        str,
        Query(
            min_length=1,
            max_length=100,
            pattern=r"^[^\x00]+$",
            description="Its first or last characters, as long as only one has them, or `last` for the newest. Of a "
            "device also its name",
            examples=["9s8t7v"],
        ),
    ],
    viewer: CurrentViewer,
    context: AppContext,
) -> IdentifierView:
    """Finds an identifier among the rows that the caller may see. Status 422 if several match; the problem document
    lists the matches.
    """
    with context.database.read() as session:
        return IdentifierView(id=identifiers.find(session, viewer, kind, text))
