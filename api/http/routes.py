"""FastAPI routes that run endpoints in threads, and the parser of JSON bodies.

Short requests use the framework's threads; requests that take seconds use a few separate threads (`SlowWork`). The
server (`http.connections`) and the proxy limit the number of concurrent requests.

Bodies are parsed once, with limited depth and width. Python's parser accepts `NaN`, numbers that overflow to infinity,
integers of any length and NUL characters, which the databases cannot store. The parser of this module refuses such
values and names the field. It also refuses objects with thousands of fields, because collecting an error for each
unknown field would block the event loop for seconds.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from edgefront.api.http.file_responses import send_view
from edgefront.core.common.errors import InvalidInput

MAX_INTEGER = (1 << 63) - 1
MAX_FIELDS = 1000
"""Maximum number of fields of an object. A `config.json` with labels has some hundred fields."""
_MAX_NAME = 100
"""Maximum number of characters of a field's name in an error."""

# Only a body that matches this can contain a refused value: 19 digits or an exponent of three digits may overflow.
_SUSPECTS = re.compile(rb"NaN|Infinity|\\u0000|[0-9]{19}|[0-9.][eE]\+?[0-9]{3}")

Result = TypeVar("Result")


class SlowWork:
    """Threads for computations of seconds without a database connection (plans, predictions, model files, exports), so
    that short requests always find a thread.
    """

    def __init__(self, threads: int) -> None:
        self.limiter = anyio.CapacityLimiter(threads)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Calls `work` in a thread and returns its result."""
        return await anyio.to_thread.run_sync(work, limiter=self.limiter)

    async def answer(self, work: Callable[[], BaseModel]) -> Response:
        """Calls `work` in a thread and returns the result as a JSON response, encoded in the same thread."""
        return await self.run(lambda: send_view(work()))


class ThreadRoute(APIRoute):
    """A route that runs its endpoint in a thread, unless the endpoint is a coroutine. The thread also encodes responses
    of status 200, because encoding a large response would block the event loop. The OpenAPI operation is named after
    the function.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["operation_id"] = options.get("operation_id") or endpoint.__name__
        if options.get("status_code") in (None, 200) and not inspect.iscoroutinefunction(endpoint):
            endpoint = _encoded(endpoint)
        super().__init__(path, endpoint, **options)


def _encoded(endpoint: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    def work(**values: Any) -> Any:
        answer = endpoint(**values)
        if isinstance(answer, list):
            return Response(to_json(answer), media_type="application/json")
        return send_view(answer) if isinstance(answer, BaseModel) else answer

    @functools.wraps(endpoint)
    async def call(**values: Any) -> Any:
        return await run_in_threadpool(work, **values)

    return call


def parse_json(body: bytes) -> Any:
    """Parses a JSON text and returns its value.

    Raises:
        InvalidInput: the body is not JSON or is nested too deeply; or a field, which the error names, has an object
            with too many fields, a number that is not finite, an integer beyond 64 bits or a NUL character.
    """
    try:
        value = from_json(body)
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}", allowed="a JSON document (RFC 8259)") from None
    if body.count(b":") > MAX_FIELDS or _SUSPECTS.search(body):
        refused = _first_error(value)
        if refused is not None:
            of_body = InvalidInput(f"the body: {refused.detail}", value=refused.value, allowed=refused.allowed)
            raise refused if refused.path else of_body
    return value


def _first_error(value: Any) -> InvalidInput | None:
    """Returns an error for the first refused value, naming the path in `value`; None if all values are accepted."""
    if isinstance(value, dict):
        if len(value) > MAX_FIELDS:
            return InvalidInput(
                f"must have at most {MAX_FIELDS} fields, not {len(value)}", allowed=f"at most {MAX_FIELDS} fields"
            )
        for name, item in value.items():
            error = _first_error(name) or _first_error(item)
            if error is not None:
                return error.under(name[:_MAX_NAME])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            error = _first_error(item)
            if error is not None:
                return error.under(index)
    elif isinstance(value, float):
        if not math.isfinite(value):
            return InvalidInput(f"must be a finite number, not {value!r}", value=repr(value), allowed="a finite number")
    elif isinstance(value, int):
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            shown = str(value)
            return InvalidInput(
                f"must be an integer of 64 bits, not of {len(shown.lstrip('-'))} digits",
                value=shown[:80],
                allowed=f"an integer from {-MAX_INTEGER - 1} to {MAX_INTEGER}",
            )
    elif isinstance(value, str) and "\0" in value:
        return InvalidInput("must not contain NUL characters", value=value, allowed="text without NUL")
    return None


class JsonRequest(Request):
    """A request whose JSON body is parsed by `parse_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_value"):
            self._value = parse_json(await self.body())
        return self._value


class JsonRoute(ThreadRoute):
    """A route that accepts only JSON bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_json(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            # Parsed before FastAPI parses the body, which would hide the error.
            await read_json(request)
            return await handle(request)

        return handle_json


async def read_json(request: Request) -> Any:
    """Returns the parsed JSON body; None without a body. Raises an error of status 415 for other media types."""
    body = await request.body()
    if not body:
        return None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise HTTPException(415, f"Send application/json, not {content_type or 'a body without a type'}.")
    return await request.json() if isinstance(request, JsonRequest) else parse_json(body)
