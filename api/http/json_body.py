"""JSON bodies: parsed once, with limited depth and width, without values that databases cannot store.

Python's parser accepts `NaN`, numbers that overflow to infinity, integers of any length and NUL characters, which the
databases cannot store. They are refused here, where the field is known. So are objects with thousands of fields: to
collect an error for each unknown field would block the event loop for seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from edgefront.api.http.threads import ThreadRoute
from edgefront.core.common.errors import InvalidInput

MAX_INTEGER = (1 << 63) - 1
MAX_FIELDS = 1000
"""Maximum number of fields of an object. A `config.json` with labels has some hundred."""
_MAX_NAME = 100
"""Maximum number of characters of a field's name in an error."""

# Only a body that matches can contain a refused value: 19 digits, or an exponent of three digits, may overflow.
_SUSPECTS = re.compile(rb"NaN|Infinity|\\u0000|[0-9]{19}|[0-9.][eE]\+?[0-9]{3}")


def parse_json(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidInput: not JSON, nested too deeply, or (the field named) an object with too many fields, a number that is
            not finite, an integer beyond 64 bits or a NUL character.
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
    """The error of the first refused value, with its path within `value`."""
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
                f"must fit 64 bits, not an integer of {len(shown.lstrip('-'))} digits",
                value=shown[:80],
                allowed=f"an integer from {-MAX_INTEGER - 1} to {MAX_INTEGER}",
            )
    elif isinstance(value, str) and "\0" in value:
        return InvalidInput("must not contain NUL characters", value=value, allowed="text without NUL")
    return None


class JsonRequest(Request):
    """A request whose JSON comes from `parse_json`."""

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
            # Before FastAPI parses it, which would hide the error.
            await read_json(request)
            return await handle(request)

        return handle_json


async def read_json(request: Request) -> Any:
    """The body's value; None without a body. Status 415 for another media type."""
    body = await request.body()
    if not body:
        return None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise HTTPException(415, f"Send application/json, not {content_type or 'a body without a type'}.")
    return await request.json() if isinstance(request, JsonRequest) else parse_json(body)
