"""Routes that agents call very often are handled without FastAPI's dependency injection.

At hundreds of requests a second, resolving parameters and dependencies costs more of the interpreter's time than the
service's own work. The parameters of such an endpoint are fixed: those of the path, the body, the requesting
device and the application's context. Its OpenAPI document is like that of any other route.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from edgefront.api.http.auth import device_of
from edgefront.api.http.concurrency import in_turn
from edgefront.api.http.json_body import JsonRoute, read_json


class HotRoute(JsonRoute):
    """A route to an endpoint of the parameters `device_id`, `here`, those of its path, `body` if it takes one, and
    `request` if it is a coroutine.

    It must return a `Response`. Functions that are not coroutines run in a thread, as usual.
    """

    waits = False  # `in_turn` is called below instead

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[..., Any] = self.endpoint
        in_path, in_body = self.dependant.path_params, self.body_field
        is_coroutine = inspect.iscoroutinefunction(endpoint)

        async def handle(request: Request) -> Response:
            values = {"device_id": device_of(request), "here": request.app.state.context}
            for field in in_path:
                values[field.name] = _validated(field, request.path_params[field.alias], ("path", field.alias))
            if in_body is not None:
                value = await read_json(request)
                if value is None:
                    missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
                    raise RequestValidationError([missing], body=None)
                values["body"] = _validated(in_body, value, ("body",))
            if is_coroutine:
                answer: Response = await endpoint(request=request, **values)
                return answer
            return await in_turn(endpoint, **values)

        return handle


def _validated(field: Any, value: Any, place: tuple[str, ...]) -> Any:
    parsed, wrong = field.validate(value, {}, loc=place)
    if wrong:
        raise RequestValidationError(wrong, body=value)
    return parsed
