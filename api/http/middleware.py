"""ASGI middleware around every request: metrics, limits on body sizes, and problem documents for all errors."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from sse_starlette.sse import SendTimeoutError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefront.api.http import problems
from edgefront.api.http.auth import ENROL_PATH, SAFE_METHODS, is_public
from edgefront.api.http.metrics import Metrics
from edgefront.api.http.root_path import own_path
from edgefront.core.common.errors import EdgefrontError, TooLarge
from edgefront.core.common.logs import log_facts
from edgefront.core.common.validation import printable
from edgefront.core.services.access.keys import Principal

PUBLIC_BYTES = 16 << 10
"""Maximum size of the body of a request without a key, bytes. A sign-in has some hundred bytes."""
ENROL_BYTES = 128 << 10
"""Maximum body of an enrolment in bytes, read before its token is checked. A device's facts take at most half."""

IMPORT_PATH = "/v1/trainings/import"

_log = logging.getLogger("edgefront.api")
_access = logging.getLogger("edgefront.access")
_audit = logging.getLogger("edgefront.audit")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Request ids that are taken over from the header X-Request-ID."""
_POLLED = frozenset({"/v1/health", "/v1/ready", "/metrics"})
"""Paths whose answers are logged at level DEBUG."""

_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
)
"""Default headers of responses."""


class Guard:
    """The outermost middleware: counts responses, sets security headers, turns exceptions into problem documents."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        with log_facts(request=request_id, client=(scope.get("client") or ("unknown",))[0]):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        begun = time.perf_counter()
        state: dict[str, Any] = scope.setdefault("state", {})
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start" and not started:
                started = True
                headers = MutableHeaders(raw=message["headers"])
                for name, value in (*_HEADERS, ("X-Request-ID", request_id)):
                    headers.setdefault(name, value)
                seconds = time.perf_counter() - begun - state.get("waited_s", 0.0)
                route = str(getattr(scope.get("route"), "path_format", None) or "unmatched")
                metrics: Metrics = scope["app"].state.context.metrics
                metrics.answered(scope["method"], route, message["status"], max(0.0, seconds))
                _log_answer(scope, message["status"], seconds, headers.get("location", ""))
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except (ClientDisconnect, SendTimeoutError):
            _log.debug("the client of %s %s disconnected", scope["method"], scope["path"])
        except Exception as error:
            if started and isinstance(error, OSError):
                _log.info("the response to %s %s was aborted: %s", scope["method"], scope["path"], error)
                return
            response = problems.of_error(error) if isinstance(error, EdgefrontError) else problems.of_crash(error)
            if not started:
                await response(scope, receive, watch)


def _log_answer(scope: Scope, status: int, seconds: float, location: str) -> None:
    """Logs an answer, and what a person has changed in the audit log as well."""
    request = f"{scope['method']} {printable(scope['path'])}"
    level = logging.DEBUG if own_path(scope) in _POLLED else logging.INFO
    _access.log(level, "%s %d %.0f ms", request, status, 1000 * seconds)
    principal: Principal | None = scope["state"].get("principal")
    if principal is not None and principal.device_id is None and status < 400 and scope["method"] not in SAFE_METHODS:
        _audit.info("%s (%s) %s %s", principal.key_id, principal.role, request, location)


class BodyLimit:
    """Refuses bodies above the size limit: by the header Content-Length or, for chunked bodies, while receiving."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_import_bytes: int) -> None:
        self.app = app
        self.max_bytes, self.max_import_bytes = max_bytes, max_import_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = own_path(scope)
        if scope["method"] == "POST" and path == IMPORT_PATH:  # this body is written to disk as it arrives
            limit = self.max_import_bytes
        elif is_public(scope["method"], path):
            limit = min(self.max_bytes, PUBLIC_BYTES)
        else:
            limit = min(self.max_bytes, ENROL_BYTES) if path == ENROL_PATH else self.max_bytes
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            await _ambiguous(scope, receive, send)
            return
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise _too_large(limit)
            return message

        await self.app(scope, bounded, send)


_ambiguous = problems.respond(
    400,
    "bad-request",
    "the length of the body is given twice: send Content-Length or Transfer-Encoding",
    headers={"Connection": "close"},
)
"""Response to a body with two lengths. A proxy may have used the other length (RFC 9112, section 6.1), so that the
following bytes of the connection cannot be attributed to a request.
"""


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes, the limit of this endpoint")
