"""HTTP requests of the client. This module alone decides what is retried, and turns problem documents into exceptions.

Requests that certainly were not processed are retried (no connection, 429). Idempotent requests (GET, DELETE, a POST
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
_NOT_BEGUN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


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
        """The answer to a request (its arguments are those of `request`), as this model or list of models."""
        content = self.request(method, path, **sent).content
        items = get_args(kind)
        with self.reading(f"a list of {items[0].__name__}" if items else kind.__name__):
            return TypeAdapter(kind).validate_json(content)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Context in which an answer is read: an answer that this release cannot read raises `EdgefrontError`."""
        try:
            yield
        except ValueError as error:
            reason = invalid_input(error, InvalidInput).detail if isinstance(error, ValidationError) else str(error)
            raise EdgefrontError(
                f"{self.url} sent what edgefront {__version__} cannot read as {what} ({reason}): it is another release "
                f"({self.url}/v1/health names it), or no edgefront server"
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
        """The response if it is successful; otherwise raises the exception of its problem document.

        `content`, instead of a `body` of JSON, is read anew for each attempt; the server may take an hour to look at
        it.
        """
        sent, timeout = dict(headers or {}), self._http.timeout
        if content is not None:
            timeout = httpx.Timeout(**{**timeout.as_dict(), "read": _UPLOAD_READ_S})
        payload = None if body is None else _json(body)
        if payload is not None:
            sent["Content-Type"] = "application/json"
        again = method in ("GET", "DELETE") if repeatable is None else repeatable
        for attempt in self._attempts(again):
            with attempt, self._errors():
                response = self._http.request(
                    method,
                    path,
                    params=_present(params),
                    content=payload if content is None else iter(content),
                    headers=sent,
                    timeout=timeout,
                )
                self._raise_for_problem(response)
                return response
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Query | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float,
    ) -> Iterator[httpx.Response]:
        """One GET with a streamed body. It is not retried, because the reader knows from where to resume."""
        timeout = httpx.Timeout(read_timeout_s, connect=min(read_timeout_s, 10.0))
        with (
            self._errors(),
            self._http.stream("GET", path, params=_present(params), headers=headers, timeout=timeout) as response,
        ):
            if response.is_error:
                response.read()
            self._raise_for_problem(response)
            yield response

    def _raise_for_problem(self, response: httpx.Response) -> None:
        if not response.is_success:
            raise problem_error(response)

    def _attempts(self, repeatable: bool) -> Retrying:
        def worth_another(error: BaseException) -> bool:
            if isinstance(error, TooManyRequests):
                return True
            return isinstance(error, Unavailable) and (repeatable or isinstance(error.__cause__, _NOT_BEGUN))

        return Retrying(
            retry=retry_if_exception(worth_another),
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
                        f"this cannot be sent in a header: {error}", allowed="printable ASCII text"
                    ) from None
        except httpx.InvalidURL as error:  # a path that is too long
            raise InvalidInput(f"this cannot be asked for: {error}", allowed="a shorter name") from None
        except RuntimeError:
            if self._http.is_closed:
                raise EdgefrontError("this client is closed") from None
            raise


def _json(body: BaseModel | Mapping[str, Any]) -> bytes:
    try:
        if isinstance(body, BaseModel):
            return body.model_dump_json().encode()
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"this cannot be sent as JSON: {error}", allowed="values that JSON supports, finite numbers"
        ) from None


def segment(name: str) -> str:
    """A name, percent-encoded as one path segment."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidInput(f"{name!r} cannot be sent", value=name, allowed="UTF-8 text") from None


def problem_error(response: httpx.Response) -> EdgefrontError:
    """The exception of a problem document (RFC 9457) by its `kind`, or by the status if the response is not one."""
    document = problem_document(response) or {}
    kind = document.get("kind")
    error_class = _BY_KIND.get(kind) if isinstance(kind, str) else None
    error_class = error_class or _BY_STATUS.get(response.status_code)
    error_class = error_class or (Unavailable if response.status_code in (502, 504) else EdgefrontError)
    detail = document.get("detail") or _plain_detail(response)
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


def _plain_detail(response: httpx.Response) -> str:
    address = response.request.url.copy_with(query=None)
    if response.is_redirect:
        return f"{address} redirects to {response.headers.get('location', '?')}: give the server's own URL"
    return f"{address} answered {response.status_code} {response.reason_phrase} without a reason"


def _error_classes(base: type[EdgefrontError]) -> Iterator[type[EdgefrontError]]:
    for child in base.__subclasses__():
        yield child
        yield from _error_classes(child)


# A class without its own `kind` refines another for local use; a client gets the base class.
_BY_KIND = {
    error_cls.kind: error_cls for error_cls in _error_classes(errors.EdgefrontError) if "kind" in vars(error_cls)
}
_BY_STATUS: dict[int, type[EdgefrontError]] = {
    error_class.status: error_class
    for error_class in errors.EdgefrontError.__subclasses__()
    if error_class is not MeasurementError
}


def _present(params: Query | None) -> dict[str, Any] | None:
    """Those that have a value, as httpx writes them: `true`, and a list as several of one name."""
    return {name: value for name, value in params.items() if value is not None} if params else None
