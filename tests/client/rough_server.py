"""A real HTTP server that answers as told: breaks off, refuses, sends half. For what a healthy server never does."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from http_server import QuietHandler, serving


@dataclass
class Rough:
    """`answers` are used up one a request, the last of them again and again; `seen` are the requests that came."""

    url: str = ""
    answers: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def rough_server(tls: ssl.SSLContext | None = None) -> Iterator[Rough]:
    rough = Rough()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes

        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            rough.seen.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
            answer = rough.answers.pop(0) if len(rough.answers) > 1 else rough.answers[0]
            answer(self)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

    with serving(Handler, tls) as rough.url:
        yield rough


def answer(
    status: int, body: bytes = b"", *, content_type: str = "application/json", **headers: str
) -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Closes the connection without a word."""
    handler.close_connection = True
