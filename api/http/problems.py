"""Problem documents (RFC 9457): the format of all errors of the API."""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from edgefront.core.common.errors import EdgefrontError, InvalidInput
from edgefront.core.common.validation import fault, field_path, fields_at

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
"""Maximum number of wrong fields of a request that a problem document lists."""
_MAX_DETAIL = 4000

_STANDARD = frozenset({"type", "title", "status", "detail", "kind", "instance"})
KIND_OF_STATUS = {
    400: "bad-request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    409: "conflict",
    410: "gone",
    413: "too-large",
    415: "unsupported-media-type",
    416: "range-not-satisfiable",
    422: "invalid-input",
    429: "too-many-requests",
    500: "internal-error",
    503: "unavailable",
}

_log = logging.getLogger("edgefront.api")


def respond(
    status: int,
    kind: str,
    detail: str,
    *,
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Response:
    """Returns a problem document; `extra` are further members. Shortens long values; non-finite numbers become text."""
    document: dict[str, Any] = {
        "type": f"urn:edgefront:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail if len(detail) <= _MAX_DETAIL else detail[: _MAX_DETAIL - 3] + "...",
        "kind": kind,
    }
    if instance is not None:
        document["instance"] = instance
    document |= {name: _plain(value) for name, value in (extra or {}).items() if name not in _STANDARD}
    # ASCII escapes represent any input, even lone surrogates.
    return Response(json.dumps(document).encode("ascii"), status, dict(headers or {}), MEDIA_TYPE)


def of_error(error: EdgefrontError) -> Response:
    """Returns the problem document of one of the project's own errors, with the headers of its status."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    retry_after = error.extra.get("retry_after_s")
    if retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    if error.status >= 500 and error.status != 503:
        return of_crash(error)
    detail = error.detail
    if error.status == 503:
        _log.warning("answered with 503: %s", detail)
    if isinstance(error.__cause__, SQLAlchemyError):
        detail = "the database is unavailable or busy; try again"  # the driver's message may name hosts and users
    return respond(error.status, error.kind, detail, headers=headers, extra=error.extra)


def of_crash(error: BaseException) -> Response:
    """Returns a problem document of status 500 without internal details. Logs the traceback with its `instance`."""
    instance = f"urn:uuid:{uuid.uuid4()}"
    _log.error("unexpected error, instance %s", instance, exc_info=error)
    return respond(
        500,
        "internal-error",
        "Internal server error. Nothing of this request was stored; the server's log has the details under this "
        "instance.",
        instance=instance,
    )


def of_http(error: HTTPException) -> Response:
    """Returns the problem document of an error that the framework raises, such as an unknown path or a wrong method."""
    kind = KIND_OF_STATUS.get(error.status_code, "error")
    phrase = HTTPStatus(error.status_code).phrase
    detail = error.detail if error.detail and error.detail != phrase else _PLAIN_DETAIL.get(error.status_code, phrase)
    return respond(error.status_code, kind, detail, headers=error.headers)


_PLAIN_DETAIL = {
    404: "There is no resource at this URL.",
    405: "This URL does not support this method; the Allow header lists the supported ones.",
}


def of_validation(request: Request, error: RequestValidationError) -> Response:
    """Returns a problem document that lists all wrong fields; top-level `field`, `value`, `allowed` show the first."""
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else body.field_info.annotation
    fields = [_wrong_field(item, model) for item in _one_per_field(error.errors())][:MAX_ERRORS]
    first = fields[0]
    detail = first["detail"] if len(fields) == 1 else f"{first['detail']} (and {len(fields) - 1} more, see errors)"
    extra = {name: first[name] for name in ("in", "field", "value", "allowed") if name in first}
    return respond(422, InvalidInput.kind, detail, extra=extra | {"errors": fields})


def _wrong_field(item: Mapping[str, Any], body: Any) -> dict[str, Any]:
    source, *path = item["loc"]
    path, whole = field_path(item, path), "the body" if source == "body" else f"the {source}"
    error = fault(item, InvalidInput, path, whole, fields_at(body, path[:-1]) if source == "body" else ())
    field = {"in": source, "detail": error.detail, **error.extra}
    if item["type"] == "missing":
        del field["value"]
    return field


def _one_per_field(items: Sequence[Any]) -> list[Any]:
    """Returns one error per field, because Pydantic lists several errors for a union or a list with wrong items."""
    inside = {tuple(item["loc"][:depth]) for item in items for depth in range(len(item["loc"]))}
    items = [item for item in items if item["type"] != "too_short" or tuple(item["loc"]) not in inside]
    seen: set[tuple[Any, ...]] = set()
    first = []
    for item in items:
        field = (item["loc"][0], *field_path(item, item["loc"][1:]))
        if field not in seen:
            seen.add(field)
            first.append(item)
    return first


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns a client's `value` as short JSON without large, deep or non-finite input."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= 500 else value[:497] + "..."
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else _short(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth < 2 and isinstance(value, Mapping) and len(value) <= MAX_ERRORS:
        return {str(name)[:100]: _plain(item, depth + 1) for name, item in value.items()}
    if depth < 2 and isinstance(value, list | tuple) and len(value) <= MAX_ERRORS:
        return [_plain(item, depth + 1) for item in value]
    return _short(value)


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 256:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def install(app: FastAPI, missing: Callable[[Request], Response | None]) -> None:
    """Makes `app` answer errors with problem documents, except for 404 if `missing` returns a page to send instead."""

    async def own(_request: Request, error: Exception) -> Response:
        return of_error(cast(EdgefrontError, error))

    async def http(request: Request, error: Exception) -> Response:
        refusal = cast(HTTPException, error)
        return (missing(request) if refusal.status_code == 404 else None) or of_http(refusal)

    async def validation(request: Request, error: Exception) -> Response:
        return of_validation(request, cast(RequestValidationError, error))

    app.add_exception_handler(EdgefrontError, own)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
