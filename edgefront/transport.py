"""HTTP of the client: the one place that decides what is retried, and turns problem documents into exceptions.

Requests that certainly were not processed are retried (no connection, 429). Idempotent requests (GET, DELETE, a POST
with an Idempotency-Key) are also retried if they may have been processed (a broken response, 502, 503, 504). Pauses
grow from 0.2 s with full jitter, honour Retry-After, and end after `patience_s` in total.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import BaseModel
from tenacity import Retrying, retry_if_exception, stop_before_delay

from edgefront.core import errors
from edgefront.core.addresses import is_loopback
from edgefront.core.errors import (
    EdgefrontError,
    InvalidInput,
    MeasurementError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.retry import pauses, retry_after_s

Query = Mapping[str, str | int | float | bool | None]

_NOT_BEGUN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Transport:
    """Sends requests to one server with one key. Thread-safe."""

    def __init__(self, url: str, key: str | None, *, timeout_s: float, patience_s: float) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        try:
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise _bad_url(url, str(error)) from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise _bad_url(url, "it does not start with http:// or https:// and a host")
        from edgefront import __version__

        headers = {"User-Agent": f"edgefront/{__version__}", "Accept": "application/json"}
        if key:
            if not key.isascii() or not key.isprintable():
                raise Unauthenticated("this is not an API key: keys are short ASCII text")
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
            # Requests to this machine must not go through a configured proxy.
            trust_env=not is_loopback(parsed.host),
        )

    def close(self) -> None:
        self._http.close()

    def __deepcopy__(self, _memo: object) -> Transport:
        return self  # copies of a job share its connections

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        body: BaseModel | None = None,
        content: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> httpx.Response:
        """The response if it is successful; otherwise raises the exception of its problem document."""
        sent = dict(headers or {})
        payload: bytes | None = None
        if body is not None:
            payload = body.model_dump_json().encode()
        elif content is not None:
            payload = _json(content)
        if payload is not None:
            sent["Content-Type"] = "application/json"
        again = method in ("GET", "DELETE") if repeatable is None else repeatable
        for attempt in self._attempts(again):
            with attempt, self._errors():
                response = self._http.request(
                    method,
                    path,
                    params=_present(params),
                    content=payload,
                    headers=sent,
                )
                raise_for_problem(response)
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
        """One GET with a streamed body. Not retried: the reader knows from where to resume."""
        timeout = httpx.Timeout(read_timeout_s, connect=min(read_timeout_s, 10.0))
        with (
            self._errors(),
            self._http.stream("GET", path, params=_present(params), headers=headers, timeout=timeout) as response,
        ):
            if response.is_error:
                response.read()
            raise_for_problem(response)
            yield response

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
            yield
        except (httpx.LocalProtocolError, UnicodeEncodeError) as error:
            raise InvalidInput(f"this cannot be sent in a header: {error}", allowed="printable ASCII text") from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"cannot reach the edgefront server at {self.url}: {reason}") from error
        except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
            raise _bad_url(self.url, str(error)) from None
        except RuntimeError:
            if self._http.is_closed:
                raise EdgefrontError("this client is closed") from None
            raise


def _json(content: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(content, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"this cannot be sent as JSON: {error}", allowed="values that JSON supports, finite numbers"
        ) from None


def segment(name: str) -> str:
    """A name, percent-encoded as one path segment."""
    return quote(name, safe="")


def raise_for_problem(response: httpx.Response) -> None:
    """Raises the exception of the server's problem document, unless the response is successful."""
    if response.is_success:
        return
    raise problem_error(response)


def problem_error(response: httpx.Response) -> EdgefrontError:
    """The exception of a problem document (RFC 9457) by its `kind`, or by the status if the response is not one."""
    document = _document(response)
    kind = document.get("kind")
    error_class = _BY_KIND.get(kind) if isinstance(kind, str) else None
    error_class = error_class or _BY_STATUS.get(response.status_code) or _by_range(response.status_code)
    detail = document.get("detail") or _plain_detail(response)
    known = {"type", "title", "status", "detail", "kind", "instance"}
    extra = {name: value for name, value in document.items() if name not in known}
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


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


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
_BY_KIND = {one.kind: one for one in _error_classes(errors.EdgefrontError) if "kind" in vars(one)}
_BY_STATUS: dict[int, type[EdgefrontError]] = {
    error_class.status: error_class
    for error_class in errors.EdgefrontError.__subclasses__()
    if error_class is not MeasurementError
}


def _by_range(status: int) -> type[EdgefrontError]:
    return Unavailable if status in (502, 504) else EdgefrontError


def _present(params: Query | None) -> dict[str, str] | None:
    if not params:
        return None
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in params.items()
        if value is not None
    }


def _bad_url(url: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{url!r} is not the URL of a server: {reason}",
        field="url",
        value=url,
        allowed="such as http://127.0.0.1:8090 or https://edgefront.example.org",
    )
