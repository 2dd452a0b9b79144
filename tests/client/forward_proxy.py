"""A real forward proxy on this machine: absolute URLs and CONNECT. It takes every name for 127.0.0.1."""

from __future__ import annotations

import base64
import http.client
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from http_server import QuietHandler, serving


@dataclass
class ForwardProxy:
    """`asked` are the methods and hosts with ports of what went through it; `password` is asked for where it is set."""

    port: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    password: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def forward_proxy() -> Iterator[ForwardProxy]:
    proxy = ForwardProxy()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def refused(self) -> bool:
            expected = proxy.password and f"Basic {base64.b64encode(f'user:{proxy.password}'.encode()).decode()}"
            if expected is None or self.headers.get("Proxy-Authorization") == expected:
                return False
            self.send_response(407)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return True

        def do_CONNECT(self) -> None:  # noqa: N802
            proxy.asked.append(("CONNECT", self.path))
            if self.refused():
                return
            with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as there:
                self.send_response(200)
                self.end_headers()
                ends = {self.connection: there, there: self.connection}
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        data = end.recv(65536)
                        if not data:
                            self.close_connection = True
                            return
                        ends[end].sendall(data)

        def do_any(self) -> None:
            url = urlsplit(self.path)
            proxy.asked.append((self.command, url.netloc))
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.refused():
                return
            there = http.client.HTTPConnection("127.0.0.1", url.port or 80)
            there.request(self.command, url.path or "/", body, dict(self.headers))
            answer = there.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("date", "server", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            there.close()

        do_GET = do_POST = do_any  # noqa: N815

    with serving(Handler) as url:
        proxy.port = urlsplit(url).port or 0
        yield proxy
