"""Files by their hash: an ETag that is the SHA-256, If-None-Match, and one Range with If-Range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

_RANGE = re.compile(r"^bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))$")

IfNoneMatch = Annotated[str | None, Header(max_length=2000, examples=['"0"'])]


def send_file(
    request: Request,
    path: Path,
    *,
    sha256: str,
    size: int,
    name: str,
    media_type: str,
    if_none_match: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The file, the one part of it that is asked for, or 304 for who has it. 416 for a range that begins behind it."""
    etag = f'"{sha256}"'
    sent = {"ETag": etag, "Cache-Control": "private, no-cache", "Accept-Ranges": "bytes", **(headers or {})}
    if if_none_match is not None and _names(if_none_match, etag):
        return Response(status_code=304, headers=sent)
    whole = not _wants_part(request, etag, size)
    return _WholeOrPart(path, whole=whole, headers=sent, media_type=media_type, filename=name)


class _WholeOrPart(FileResponse):
    """A file by its hash. `whole` sends all of it whatever Range says."""

    chunk_size = 1 << 20

    def __init__(self, *arguments: Any, whole: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.whole = whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.whole:
            scope = {**scope, "headers": [item for item in scope["headers"] if item[0] != b"range"]}
        await super().__call__(scope, receive, send)


def _names(if_none_match: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag in tags or "*" in tags


def _wants_part(request: Request, etag: str, size: int) -> bool:
    """Whether to answer with the one range asked for. What is no range, or several, is left aside, as RFC 9110 lets.

    416 for a range that begins behind the end.
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
