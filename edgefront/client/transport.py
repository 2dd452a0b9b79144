"""HTTP requests of the client: retries requests, and raises exceptions for problem documents.

Requests that were certainly not processed are retried (no connection, 429). Idempotent requests (GET, DELETE, a POST
with an Idempotency-Key) are also retried if they may have been processed (a broken response, 502, 503, 504). Pauses
grow from 0.2 s with full jitter, honour Retry-After, and end after `patience_s` in total.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, get_args
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError
from tenacity import Retrying, retry_if_exception, stop_before_delay

from edgefront import __version__
from edgefront.core.common import errors
from edgefront.core.common.errors import (
    EdgefrontError,
    InvalidInput,
    MeasurementError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.common.http_client import (
    asking,
    client_options,
    pauses,
    problem_document,
    retry_after_s,
    server_url,
)
from edgefront.core.common.validation import invalid_input

Query = Mapping[str, str | int | float | bool | Sequence[str] | None]
Answer = TypeVar("Answer")

_UPLOAD_READ_S = 3600.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Transport:
    """Sends requests to one server with one key. Thread-safe."""

    def __init__(self, url: str, key: str | None, *, timeout_s: float, patience_s: float) -> None:
        self.url = server_url(url)
        self.patience_s = patience_s
        headers = {"User-Agent": f"edgefront/{__version__}", "Accept": "application/json"}
        if key:
            if not key.isascii() or not key.isprintable():
                raise Unauthenticated("this is not an API key: keys are short ASCII text")
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            **client_options(self.url),
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
        )

    def close(self) -> None:
        self._http.close()

    def __deepcopy__(self, _memo: object) -> Transport:
        return self  # copies of a job share its connections

    def ask(self, kind: type[Answer], method: str, path: str, **sent: Any) -> Answer:
        """Sends a request (arguments of `request`) and returns the response parsed as `kind`."""
        content = self.request(method, path, **sent).content
        items = get_args(kind)
        with self.reading(f"a list of {items[0].__name__}" if items else kind.__name__):
            return TypeAdapter(kind).validate_json(content)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Within the block, an error in parsing a response becomes `EdgefrontError`: another release sent `what`."""
        try:
            yield
        except ValueError as error:
            reason = invalid_input(error, InvalidInput).detail if isinstance(error, ValidationError) else str(error)
            raise EdgefrontError(
                f"{self.url} sent a response that edgefront {__version__} cannot read as {what} ({reason}). The "
                f"server may be another release (see {self.url}/v1/health), or not an edgefront server"
            ) from None

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        body: BaseModel | Mapping[str, Any] | None = None,
        content: Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> httpx.Response:
        """Returns a successful response; for an error response, raises the exception of its problem document.

        `content` replaces the JSON `body` and is iterated again for each attempt; the server may take an hour to
        process the content.
        """
        all_headers, timeout = dict(headers or {}), self._http.timeout
        if content is not None:
            timeout = httpx.Timeout(**{**timeout.as_dict(), "read": _UPLOAD_READ_S})
        payload = None if body is None else _json(body)
        if payload is not None:
            all_headers["Content-Type"] = "application/json"
        idempotent = method in ("GET", "DELETE") if repeatable is None else repeatable
        for attempt in self._attempts(idempotent):
            with attempt, self._errors():
                response = self._http.request(
                    method,
                    path,
                    params=_present(params),
                    content=payload if content is None else iter(content),
                    headers=all_headers,
                    timeout=timeout,
                )
                if not response.is_success:
                    raise problem_error(response)
                return response
        raise AssertionError("internal error: the last attempt neither returned nor raised")

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Query | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float,
    ) -> Iterator[httpx.Response]:
        """Sends one GET and streams the response. Never retries, because only the caller knows where to resume."""
        timeout = httpx.Timeout(read_timeout_s, connect=min(read_timeout_s, 10.0))
        with (
            self._errors(),
            self._http.stream("GET", path, params=_present(params), headers=headers, timeout=timeout) as response,
        ):
            if response.is_error:
                response.read()
            if not response.is_success:
                raise problem_error(response)
            yield response

    def _attempts(self, idempotent: bool) -> Retrying:
        def is_retryable(error: BaseException) -> bool:
            if isinstance(error, TooManyRequests):
                return True
            return isinstance(error, Unavailable) and (idempotent or isinstance(error.__cause__, _NOT_SENT))

        return Retrying(
            retry=retry_if_exception(is_retryable),
            wait=pauses(0.2, 5.0),
            stop=stop_before_delay(self.patience_s),
            reraise=True,
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with asking(f"the edgefront server at {self.url}"):
                try:
                    yield
                except (httpx.LocalProtocolError, UnicodeEncodeError) as error:
                    raise InvalidInput(
                        f"the request has an invalid header: {error}", allowed="printable ASCII text"
                    ) from None
        except httpx.InvalidURL as error:  # the path is too long
            raise InvalidInput(f"this URL cannot be requested: {error}", allowed="a shorter name") from None
        except RuntimeError:
            if self._http.is_closed:
                raise EdgefrontError("the client is closed: create a new one") from None
            raise


class Resource:
    """Base class of the client's resources: the requests about one kind of object."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def _json(body: BaseModel | Mapping[str, Any]) -> bytes:
    try:
        if isinstance(body, BaseModel):
            return body.model_dump_json().encode()
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the request cannot be sent as JSON: {error}", allowed="values that JSON supports, finite numbers"
        ) from None


def segment(name: str) -> str:
    """Returns a name, percent-encoded as one path segment."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidInput(f"the name {name!r} cannot be sent in a URL", value=name, allowed="UTF-8 text") from None


def problem_error(response: httpx.Response) -> EdgefrontError:
    """Returns the exception for an error response: by a problem document's `kind` (RFC 9457), else by the status."""
    document = problem_document(response) or {}
    kind = document.get("kind")
    error_class = _BY_KIND.get(kind) if isinstance(kind, str) else None
    error_class = error_class or _BY_STATUS.get(response.status_code)
    error_class = error_class or (Unavailable if response.status_code in (502, 504) else EdgefrontError)
    detail = document.get("detail") or _default_detail(response)
    standard = {"type", "title", "status", "detail", "kind", "instance"}
    extra = {name: value for name, value in document.items() if name not in standard}
    if issubclass(error_class, InvalidInput):
        return error_class(
            detail,
            field=str(extra.get("field") or ""),
            value=extra.get("value"),
            allowed=str(extra.get("allowed") or ""),
        )
    if issubclass(error_class, MeasurementError):
        return error_class(detail, reason=str(extra.pop("reason", "unsupported")), **extra)
    if (delay := retry_after_s(response.headers)) is not None:
        extra["retry_after_s"] = delay
    return error_class(detail, **extra)


def _default_detail(response: httpx.Response) -> str:
    address = response.request.url.copy_with(query=None)
    if response.is_redirect:
        return f"{address} redirects to {response.headers.get('location', '?')}: give the server's own URL"
    return f"{address} answered {response.status_code} {response.reason_phrase} without a reason"


def _error_classes(base: type[EdgefrontError]) -> Iterator[type[EdgefrontError]]:
    for child in base.__subclasses__():
        yield child
        yield from _error_classes(child)


# A class without its own `kind` is a local subclass; a client gets the base class.
_BY_KIND = {
    error_cls.kind: error_cls for error_cls in _error_classes(errors.EdgefrontError) if "kind" in vars(error_cls)
}
_BY_STATUS: dict[int, type[EdgefrontError]] = {
    error_class.status: error_class
    for error_class in errors.EdgefrontError.__subclasses__()
    if error_class is not MeasurementError
}


def _present(params: Query | None) -> dict[str, Any] | None:
    """Returns the query parameters whose value is not None."""
    return {name: value for name, value in params.items() if value is not None} if params else None
