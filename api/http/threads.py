"""Threads of requests: the framework's pool for short requests, and a small pool for those that take seconds.

The server (`http.connections`) and the proxy limit the number of concurrent requests.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from edgefront.api.http.file_responses import send_view

Result = TypeVar("Result")


class SlowWork:
    """Threads for computations of seconds without a database connection (plans, predictions, model files, exports), so
    that short requests always find a thread.
    """

    def __init__(self, threads: int) -> None:
        self.limiter = anyio.CapacityLimiter(threads)

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, called in a thread."""
        return await anyio.to_thread.run_sync(work, limiter=self.limiter)

    async def answer(self, work: Callable[[], BaseModel]) -> Response:
        """The result of `work` as JSON, encoded in the same thread, because that may take long too."""
        return await self.run(lambda: send_view(work()))


class ThreadRoute(APIRoute):
    """A route whose endpoint, unless it is a coroutine, runs in a thread. The thread also encodes its answer of status
    200: a large one would block the event loop. The operation has the function's name.
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
