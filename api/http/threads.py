"""Threads that requests run in: short ones in those of the framework, what takes seconds in a few of its own.

How many requests there are at once is bounded by the server (`http.connections`) and by a proxy in front.
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
    """Threads for work that computes for up to seconds (plans, predictions, building models, exports) and holds no
    database connection meanwhile: short requests always find one of theirs.
    """

    def __init__(self, threads: int) -> None:
        self.limiter = anyio.CapacityLimiter(threads)

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which is called in a thread."""
        return await anyio.to_thread.run_sync(work, limiter=self.limiter)

    async def answer(self, work: Callable[[], BaseModel]) -> Response:
        """What `work` returns as JSON, which is made in the same thread: to encode a large answer takes long too."""
        return await self.run(lambda: send_view(work()))


class ThreadRoute(APIRoute):
    """A route whose endpoint, unless it is a coroutine, runs in a thread; an answer of status 200 is encoded there,
    too: in the event loop a large one would hold up everybody. Its operation is named as its function.
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
