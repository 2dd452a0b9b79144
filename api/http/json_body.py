"""JSON bodies: parsed once from the bytes, with limited depth, without values that databases cannot store.

Python's parser accepts `NaN` and integers of any length, but the databases cannot store `NaN`, NUL characters or
integers beyond 64 bits. They are refused here, where the field is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from edgefront.core.errors import InvalidInput

MAX_INTEGER = (1 << 63) - 1

# A body without any of these bytes cannot contain a refused value, so it need not be searched.
_SUSPECTS = re.compile(rb"NaN|Infinity|\\u0000|[0-9]{19}")


def parse_json(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidInput: not JSON, nested too deeply, or with a number that is not finite, an integer beyond 64 bits or a
            NUL character (the field named).
    """
    try:
        value = from_json(body)
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}", allowed="a JSON document (RFC 8259)") from None
    if _SUSPECTS.search(body):
        _refuse_unstorable(value, "")
    return value


def _refuse_unstorable(value: Any, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(
            f"{path or 'the body'}: must be a finite number, not {value!r}",
            field=path,
            value=repr(value),
            allowed="a finite number",
        )
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        shown = str(value)
        raise InvalidInput(
            f"{path or 'the body'}: must fit 64 bits, not an integer of {len(shown.lstrip('-'))} digits",
            field=path,
            value=shown[:80],
            allowed=f"an integer from {-MAX_INTEGER - 1} to {MAX_INTEGER}",
        )
    if isinstance(value, str) and "\0" in value:
        raise InvalidInput(
            f"{path or 'the body'}: must not contain NUL characters",
            field=path,
            value=value,
            allowed="text without NUL",
        )
    if isinstance(value, dict):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            _refuse_unstorable(name, inner)
            _refuse_unstorable(item, inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_unstorable(item, f"{path}.{index}" if path else str(index))


class JsonRequest(Request):
    """A request whose JSON comes from `parse_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_value"):
            self._value = parse_json(await self.body())
        return self._value


class JsonRoute(APIRoute):
    """A route that accepts only JSON bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_json(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            # Parsed before the framework does, which would hide the error.
            await read_json(request)
            return await handle(request)

        return handle_json


async def read_json(request: Request) -> Any:
    """The body's value; None if there is no body. Status 415 for a body of another type."""
    body = await request.body()
    if not body:
        return None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise HTTPException(415, f"Send application/json, not {content_type or 'a body without a type'}.")
    return await request.json() if isinstance(request, JsonRequest) else parse_json(body)
