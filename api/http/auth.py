"""Authentication of requests. Endpoints declare the permitted roles by their dependencies (`api.context`)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefront.api.http.credentials import CHECKED_S, ENROLMENT_PREFIX, Credential, Credentials
from edgefront.api.http.root_path import own_path
from edgefront.core.common.errors import EdgefrontError, Forbidden, Unauthenticated, Unavailable
from edgefront.core.common.logs import add_log_facts
from edgefront.core.common.states import KeyRole
from edgefront.core.services.access.keys import Principal

COOKIE = "edgefront_session"
METRICS_PATH = "/metrics"
SIGN_ON = "sign-on:"
"""What begins the `key_id` of a person whom a proxy has signed in."""
ENROL_PATH = "/v1/agents/enrol"
MAX_SECRET = 200

SESSION_PATH = "/v1/session"

# Public paths: health, and the web pages, which contain no data.
PUBLIC = frozenset(
    {
        "/v1/health",
        "/v1/ready",
        "/",
        "/new",
        "/jobs",
        "/compare",
        "/trainings",
        "/devices",
        "/docs",
        "/login",
        "/favicon.ico",
    }
)
PUBLIC_BELOW = ("/static/", "/jobs/", "/trainings/", "/devices/")
_NO_PAGES = ("/v1", "/static", "/metrics")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWNER = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_FOR_VIEWERS = frozenset({SESSION_PATH, "/v1/predictions", "/v1/models/import", "/v1/catalogue/describe"})
"""Paths whose unsafe methods viewers may use: computations that store nothing, and signing out."""


class SignedIn:
    """ASGI middleware that stores `signed_in`, the name in the header of a trusted proxy, in the request's state. It
    must see the true address of the peer. From other peers the header means nothing.
    """

    def __init__(self, app: ASGIApp, header: str, proxies: Sequence[str]) -> None:
        self.app = app
        self._header, self._proxies = header, [ip_network(proxy, strict=False) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = Headers(scope=scope).getlist(self._header) if scope["type"] == "http" else []
        if len(names) == 1 and _OWNER.fullmatch(names[0]) and scope.get("client"):
            peer = ip_address(scope["client"][0])
            if any(peer in network for network in self._proxies):
                scope.setdefault("state", {})["signed_in"] = names[0]
        await self.app(scope, receive, send)


class Authenticate:
    """ASGI middleware that stores `credential` and `principal` in the request's state, or raises an error.

    For unsafe methods a cookie is accepted only from the server's own pages: the browser must send `Sec-Fetch-Site:
    same-origin` or, without this header, this server as `Origin`.

    Long requests are authenticated again after the body has arrived and while the response is sent. The response is
    aborted if the credential has been revoked or has expired.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_public(scope["method"], own_path(scope)) or wants_missing_page(scope):
            await self.app(scope, receive, send)
            return
        await self._admit(scope)
        if "credential" not in scope["state"] or "principal" not in scope["state"]:
            # A proxy has signed the person in, or the endpoint checks an enrolment token.
            await self.app(scope, receive, send)
            return
        credentials: Credentials = scope["app"].state.context.credentials
        credential: Credential = scope["state"]["credential"]
        valid_at = time.monotonic()

        async def authenticate_again() -> None:
            nonlocal valid_at
            if time.monotonic() - valid_at > CHECKED_S:
                with suppress(Unavailable):  # no key can end while the database is unavailable
                    await credentials.resolve(credential)
                    valid_at = time.monotonic()

        async def receive_valid() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await authenticate_again()
            return message

        async def send_valid(message: Message) -> None:
            if message["type"] == "http.response.body" and message.get("more_body", False):
                try:
                    await authenticate_again()
                except EdgefrontError as error:
                    raise ConnectionAbortedError(str(error)) from None
            await send(message)

        await self.app(scope, receive_valid, send_valid)

    async def _admit(self, scope: Scope) -> None:
        credentials: Credentials = scope["app"].state.context.credentials
        path = own_path(scope)
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        if "signed_in" in state and "authorization" not in headers:
            name = state["signed_in"]
            person = Principal(key_id=f"{SIGN_ON}{name}", name=name, owner=name, role=KeyRole.USER)
            self._permit(scope, headers, person, by_browser=True)
            return
        credential = credential_of(headers)
        state["credential"] = credential
        if credential.secret.startswith(ENROLMENT_PREFIX) and not credential.cookie:
            if path != ENROL_PATH:
                raise Unauthenticated(
                    "an enrolment token can only enrol a device; use the credential of the enrolled device"
                )
            return
        principal = credentials.remembered(credential)
        if principal is None:
            try:
                principal = await credentials.resolve(credential)
            except Unavailable:
                # During an outage, metrics stay readable for everybody who could read them before.
                principal = credentials.last_known(credential) if path == METRICS_PATH else None
                if principal is None:
                    raise
        self._permit(scope, headers, principal, by_browser=credential.cookie)

    def _permit(self, scope: Scope, headers: Headers, principal: Principal, *, by_browser: bool) -> None:
        """Stores the principal in the request's state, if the principal may use the method. `by_browser`: whether a
        browser authenticates the request, so that another site could have caused it.
        """
        path, state = own_path(scope), scope["state"]
        if by_browser and scope["method"] not in SAFE_METHODS:
            require_same_origin(headers, scope["scheme"])
        if principal.role == KeyRole.VIEWER and scope["method"] not in SAFE_METHODS and path not in _FOR_VIEWERS:
            raise Forbidden(f"{principal.name!r} has the role viewer, which may read but not change anything")
        state["principal"] = principal
        add_log_facts(**({"device": principal.device_id} if principal.device_id else {"owner": principal.owner}))


def is_public(method: str, path: str) -> bool:
    """Whether requests with this method and path need no key."""
    return path in PUBLIC or path.startswith(PUBLIC_BELOW) or (method == "POST" and path == SESSION_PATH)


def wants_page(scope: Scope) -> bool:
    """Whether a browser requests a page: a GET that accepts HTML, for a path outside of API and static files."""
    path = own_path(scope)
    if scope["method"] != "GET" or any(path == root or path.startswith(f"{root}/") for root in _NO_PAGES):
        return False
    accepted = Headers(scope=scope).get("accept", "").lower()
    return any(part.split(";")[0].strip() == "text/html" for part in accepted.split(","))


def wants_missing_page(scope: Scope) -> bool:
    """Whether a browser requests a page that does not exist; the "not found" response needs no key."""
    return wants_page(scope) and all(route.matches(scope)[0] is Match.NONE for route in scope["app"].routes)


def credential_of(headers: Headers) -> Credential:
    """Returns the bearer secret, else the session cookie's secret. Raises `Unauthenticated` if both are missing."""
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the Authorization header must be: Bearer <key>")
        return Credential(_checked(secret))
    cookie = _session_cookie(headers)
    if cookie:
        return Credential(_checked(cookie), cookie=True)
    raise Unauthenticated("no API key: send the header Authorization: Bearer <key>, or log in at /login")


def _session_cookie(headers: Headers) -> str | None:
    """Returns the first cookie with the session's name. Browsers send the cookie of the longest path first, so the
    first one belongs to this service even if several services share a host below different paths.
    """
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == COOKIE:
            return value.strip()
    return None


def require_same_origin(headers: Headers, scheme: str) -> None:
    """Raises `Forbidden` unless the headers show that the request comes from one of this server's own pages."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise Forbidden(f"a request without a key must come from this server's own pages, not {site}")
        return
    origin = headers.get("origin")
    if origin is None or urlsplit(origin)[:2] != (scheme, headers.get("host", "")):
        raise Forbidden(f"a request without a key must come from this server's own pages, not {origin or 'nowhere'}")


def _checked(secret: str) -> str:
    if len(secret) > MAX_SECRET or not secret.isascii() or not secret.isprintable():
        raise Unauthenticated("this is not an API key: keys are short ASCII text")
    return secret
