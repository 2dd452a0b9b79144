"""A reverse proxy that serves a service below a path, which it strips: as `handle_path` of Caddy does."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


@dataclass
class PathProxy:
    """`url` is the service's through it."""

    url: str
    outside: list[str] = field(default_factory=list)
    """Paths of requests that were not below its path: it answers 404."""


@contextmanager
def path_proxy(target: str, prefix: str) -> Iterator[PathProxy]:
    """Passes on what is below `prefix` to `target`. It streams answers as they come."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=target, timeout=60, trust_env=False) as client:
            app.state.client = client
            yield

    async def answer(request: Request) -> Response:
        path = request.scope["raw_path"].decode()
        if not path.startswith(f"{prefix}/"):
            proxy.outside.append(path)
            return PlainTextResponse("another service", 404)
        client: httpx.AsyncClient = request.app.state.client
        sent = [(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP]
        url = httpx.URL(path.removeprefix(prefix), query=request.url.query.encode())
        passed = client.build_request(request.method, url, headers=sent, content=await request.body())
        got = await client.send(passed, stream=True)
        response = StreamingResponse(got.aiter_raw(), got.status_code, background=BackgroundTask(got.aclose))
        response.raw_headers = [
            (name, value) for name, value in got.headers.raw if name.decode().lower() not in _HOP_BY_HOP
        ]
        return response

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", answer, methods=methods)], lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the proxy ended while it started"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    proxy = PathProxy(f"http://127.0.0.1:{port}{prefix}")
    try:
        yield proxy
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the proxy did not stop"
