"""Routes that agents call very often: handled without FastAPI's resolution of dependencies.

At hundreds of requests a second, resolving parameters and dependencies costs more of the interpreter's time than the
service's own work. The parameters of such an endpoint are fixed: the body, the requesting device, the application's
context. Its OpenAPI document is like that of any other route.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool

from edgefront.api.http.auth import device_of
from edgefront.api.http.json_body import JsonRoute, read_json


class HotRoute(JsonRoute):
    """A route to an endpoint of the parameters `body`, `device_id`, `here` and, if it is a coroutine, `request`.

    It must return a `Response`. Functions that are not coroutines run in a thread, as usual.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[..., Any] = self.endpoint
        field = self.body_field
        assert field is not None, f"{self.path} takes no body"
        is_coroutine = inspect.iscoroutinefunction(endpoint)

        async def handle(request: Request) -> Response:
            device_id, here = device_of(request), request.app.state.context
            value = await read_json(request)
            if value is None:
                missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
                raise RequestValidationError([missing], body=None)
            body, wrong = field.validate(value, {}, loc=("body",))
            if wrong:
                raise RequestValidationError(wrong, body=value)
            if is_coroutine:
                answer: Response = await endpoint(body=body, device_id=device_id, request=request, here=here)
                return answer
            return await run_in_threadpool(endpoint, body=body, device_id=device_id, here=here)

        return handle
