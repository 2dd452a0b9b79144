"""File responses with the SHA-256 as ETag. They support If-None-Match, and one Range with If-Range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import Header, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from edgefront.core.common.errors import Unavailable
from edgefront.core.services.trainings.downloads import Download

_RANGE = re.compile(r"^bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))$")

IfNoneMatch = Annotated[str | None, Header(max_length=2000, examples=['"0"'])]


def send_file(
    request: Request, file: Download, if_none_match: str | None, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns the file or the requested range, or status 304 (the client has the file) or 416 (wrong range)."""
    etag = f'"{file.sha256}"'
    sent = {"ETag": etag, "Cache-Control": "private, no-cache", "Accept-Ranges": "bytes", **(headers or {})}
    etags = {tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")}
    if etag in etags or "*" in etags:
        return Response(status_code=304, headers=sent)
    whole = not _is_partial(request, etag, file.size)
    return _RangedFile(file.path, whole=whole, headers=sent, media_type=file.media_type, filename=file.name)


def send_view(view: BaseModel) -> Response:
    """Returns a response with the view as JSON, encoded in the caller's thread instead of the event loop."""
    return Response(view.model_dump_json(), media_type="application/json")


class _RangedFile(FileResponse):
    """A file response; `whole` ignores the header Range. Raises `Unavailable` if the file has been deleted."""

    chunk_size = 1 << 20

    def __init__(self, *arguments: Any, whole: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.whole = whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.whole:
            scope = {**scope, "headers": [item for item in scope["headers"] if item[0] != b"range"]}
        if not await anyio.Path(self.path).is_file():
            raise Unavailable("the file was just removed: request it again")
        await super().__call__(scope, receive, send)


def _is_partial(request: Request, etag: str, size: int) -> bool:
    """Whether the request asks for one valid range. Invalid and multiple ranges are ignored, as RFC 9110 permits.
    Raises an error of status 416 for a range after the end of the file.
    """
    match = _RANGE.match(request.headers.get("range", "").strip().lower())
    if match is None or request.headers.get("if-range", etag) != etag:
        return False
    first, last, suffix = match.groups()
    if first is not None and last and int(last) < int(first):
        return False
    if (suffix is not None and int(suffix) == 0) or (first is not None and int(first) >= size):
        raise HTTPException(416, f"the file has {size} bytes", {"Content-Range": f"bytes */{size}"})
    return True
