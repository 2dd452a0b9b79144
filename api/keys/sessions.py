"""`/v1/session`: browsers exchange a key for a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import Context
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import COOKIE, Anyone, Here
from edgefront.api.http.credentials import Credential
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.errors import Forbidden
from edgefront.core.services.access import keys
from edgefront.core.services.access.keys import Principal
from edgefront.core.wire.service import MeView, SessionRequest

router = APIRouter(prefix="/v1/session", tags=["access"], route_class=JsonRoute)


@router.post(
    "",
    status_code=201,
    summary="Exchange a key for a session cookie",
    responses={
        **answer(example("me"), status=201, description="Set-Cookie holds the session; no script can read it"),
        **errors(401, 403, 429),
    },
)
async def open_session(
    body: Annotated[SessionRequest, Body(openapi_examples=sample(example("session_request")))],
    request: Request,
    response: Response,
    here: Here,
) -> MeView:
    """The session lasts for a week, or as long as the key. Only the key in the body is needed."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("log in from this server's own page, not from another site's")
    principal = await run_in_threadpool(_find, here, body.key)
    secret = await run_in_threadpool(_open, here, principal)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(keys.WEB_SESSION.total_seconds()),
        path=request.scope["root_path"] or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return MeView(
        key_id=principal.key_id,
        name=principal.name,
        owner=principal.owner,
        role=principal.role,
        device_id=principal.device_id,
    )


def _find(here: Context, key: str) -> Principal:
    with here.database.read() as session:
        return keys.authenticate(session, key, here.database.now(session))


def _open(here: Context, principal: Principal) -> str:
    with here.database.write() as session:
        return keys.open_web_session(session, principal, here.database.now(session))


@router.delete(
    "",
    status_code=204,
    summary="Log out",
    responses={204: {"description": "Logged out"}},
)
async def close_session(_asker: Anyone, request: Request, here: Here) -> Response:
    """Ends the session of the cookie; without one, does nothing."""
    credential: Credential = request.state.credential
    if credential.cookie:
        await run_in_threadpool(_close, here, credential.secret)
        here.credentials.forget()
    response = Response(status_code=204)
    response.delete_cookie(
        COOKIE,
        path=request.scope["root_path"] or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def _close(here: Context, secret: str) -> None:
    with here.database.write() as session:
        keys.close_web_session(session, secret)
