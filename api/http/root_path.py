"""The URL path below which a proxy serves the service.

The middleware sets ASGI's `root_path` to that path and lets ASGI's `path` begin with `root_path`, whether or not the
proxy strips `root_path`. So links that begin with `root_path` work with and without the proxy. Endpoints set the header
`Location` to a path without `root_path`, and the middleware prepends `root_path`.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefront.core.common.errors import InvalidInput


class BelowPath:
    """ASGI middleware that serves the application below `root_path`."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._next = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                location = headers.get("location", "")
                if location.startswith("/"):
                    headers["location"] = self._root_path + location
            await send(message)

        if scope["type"] == "http":
            root_path, path = self._root_path, scope["path"]
            if not f"{path}/".startswith(f"{root_path}/"):
                path = root_path + path
            scope = {**scope, "root_path": root_path, "path": path if path != root_path else f"{root_path}/"}
        await self._next(scope, receive, send_below)


def check_root_path(root_path: str, paths: Collection[str]) -> None:
    """Raises `InvalidInput` for a `root_path` that begins like one of the service's own paths, because requests would
    be ambiguous behind a proxy that strips `root_path`.
    """
    own = sorted({f"/{path.split('/')[1]}" for path in paths} - {"/"})
    if root_path and f"/{root_path.split('/')[1]}" in own:
        raise InvalidInput(
            f"the path of http.url, {root_path}, begins like one of the service's own paths",
            field="http.url",
            value=root_path,
            allowed="a path that begins with none of " + ", ".join(own),
        )


def own_path(scope: Scope) -> str:
    """Returns the path of a request without the prefix `root_path`."""
    path: str = scope["path"]
    return path.removeprefix(scope["root_path"])
