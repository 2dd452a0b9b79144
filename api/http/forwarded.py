"""Behind a proxy: the client that it forwards for, and the path below which it serves the service.

ASGI's `root_path` is that path, and `path` begins with it, whether or not the proxy has stripped it. So a link that
begins with `root_path` works through the proxy and beside it. Endpoints set `Location` to the service's own paths: here
they are put below `root_path`.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from edgefront.api.http import problems
from edgefront.core.errors import InvalidInput
from edgefront.core.services.settings import ROOT_PATH

OWN_ROOTS = frozenset(
    {"v1", "static", "metrics", "new", "jobs", "compare", "trainings", "devices", "docs", "login", "favicon.ico"}
)
"""First segments of the service's own paths."""


class Forwarded:
    """ASGI middleware, the outermost. `X-Forwarded-For`, `-Proto` and `-Prefix` of a trusted proxy replace what the
    connection says; those of anybody else are ignored.

    Args:
        trusted: addresses and networks of proxies, separated by commas. root_path: that of requests without a prefix of
        their own.
    """

    def __init__(self, app: ASGIApp, trusted: str, root_path: str) -> None:
        self._next = ProxyHeadersMiddleware(app, trusted_hosts=trusted or [])  # type: ignore[arg-type]
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root_path = self._forwarded(scope)
            if root_path is None:
                root_path = self._root_path
            elif root_path and not _is_possible(root_path):
                await _impossible(scope, receive, send)
                return
            path = scope["path"]
            if path != root_path and not path.startswith(f"{root_path}/"):
                path = root_path + path
            scope = {**scope, "root_path": root_path, "path": path if path != root_path else f"{root_path}/"}
            if root_path:
                send = _below(root_path, send)
        await self._next(scope, receive, send)  # type: ignore[arg-type]

    def _forwarded(self, scope: Scope) -> str | None:
        """The prefixes that the trusted proxies have stripped, the outermost first; None if they name none."""
        client = scope.get("client")
        if client is None or client[0] not in self._next.trusted_hosts:
            return None
        named = Headers(scope=scope).getlist("x-forwarded-prefix")
        return "".join(part.strip().rstrip("/") for part in ",".join(named).split(",")) if named else None


def check_root_path(root_path: str) -> None:
    """Raises `InvalidInput` for a `root_path` that begins like one of the service's own paths: where a proxy has
    stripped it, a request could mean either.
    """
    if root_path and not _is_possible(root_path):
        raise InvalidInput(
            f"http.root_path {root_path} begins like one of the service's own paths",
            field="http.root_path",
            value=root_path,
            allowed="a path that begins with none of " + ", ".join(f"/{name}" for name in sorted(OWN_ROOTS)),
        )


def _is_possible(root_path: str) -> bool:
    return re.fullmatch(ROOT_PATH, root_path) is not None and root_path.split("/")[1] not in OWN_ROOTS


def _below(root_path: str, send: Send) -> Send:
    async def send_below(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            location = headers.get("location", "")
            if location.startswith("/"):
                headers["location"] = root_path + location
        await send(message)

    return send_below


def own_path(scope: Scope) -> str:
    """The path of a request without the one below which a proxy serves the service."""
    path: str = scope["path"]
    return path.removeprefix(scope["root_path"])


_impossible = problems.respond(
    400,
    "bad-request",
    "X-Forwarded-Prefix must be a path such as /edgefront, of letters, digits and -._~, that does not begin like one "
    "of the service's own",
)
