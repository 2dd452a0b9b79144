"""Clients that send half a request, or nothing, or hold more connections than there may be."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from running_api import Service

from edgefront.api.http.connections import SPARE
from edgefront.core.store.database import Database

RECEIVE_S = 1.0


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]) -> Service:
    return start_service(open_database(sqlite_url), receive_s=RECEIVE_S, connections=8)


@contextmanager
def connection(service: Service, sent: bytes = b"") -> Iterator[socket.socket]:
    parts = urlsplit(service.url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=60) as opened:
        opened.sendall(sent)
        yield opened


def rest(opened: socket.socket) -> bytes:
    """What the server sends until it ends the connection."""
    found = b""
    try:
        while chunk := opened.recv(65536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b"408"),
        (b"GET /v1/hea", b"408"),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"408"),
        (b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{", b""),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/hea", b"200"),
    ],
)
def test_half_a_request_ends(service: Service, sent: bytes, answer: bytes) -> None:
    with connection(service, sent) as opened:
        assert answer in rest(opened).split(b"\r\n", 1)[0]


def test_a_request_that_trickles_ends(service: Service) -> None:
    """Each byte in time, and the whole never."""
    with connection(service, b"GET /v1/health HTTP/1.1\r\nX-Slow: ") as opened:
        opened.settimeout(0.1)
        for _ in range(600):
            try:
                opened.sendall(b"x")
                answer = opened.recv(100)
            except TimeoutError:
                continue
            except OSError:
                return
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")
            return
    raise AssertionError("it was read for a minute")


def test_a_large_body_that_arrives_steadily_is_read(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> None:
    """A second more for each 16 KiB: who sends faster than that is not cut off."""
    service = start_service(open_database(sqlite_url), receive_s=RECEIVE_S)
    body = b'{"key": "' + b"x" * 200_000 + b'"}'
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key()}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with connection(service, head.encode()) as opened:
        for start in range(0, len(body), 40_000):
            opened.sendall(body[start : start + 40_000])
            time.sleep(RECEIVE_S / 2)
        assert rest(opened).startswith((b"HTTP/1.1 4",))


def test_health_answers_while_all_others_wait(service: Service) -> None:
    polls = [
        "POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f'Authorization: Bearer {service.enrol(name)[1]}\r\nContent-Length: 16\r\n\r\n{{"wait_s": 30.0}}'
        for name in ("one", "another")
    ]
    with ExitStack() as stack:
        held = [stack.enter_context(connection(service, poll.encode())) for poll in polls for _ in range(4)]
        end = time.monotonic() + 60
        while service.context.room.size < 8:
            assert time.monotonic() < end
            time.sleep(0.01)
        with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
            assert client.get("/v1/health").status_code == 200
            refused = client.get("/v1/jobs")
            assert refused.status_code == 503
            assert refused.json()["kind"] == "unavailable"
            assert int(refused.headers["retry-after"]) >= 1
        # Beyond the spare ones nothing is accepted, and these end by themselves.
        idle = [stack.enter_context(connection(service)) for _ in range(SPARE + 8)]
        for opened in idle:
            rest(opened)
        with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
            assert client.get("/v1/health").status_code == 200
        assert len(held) == 8


def test_idle_connections_make_room_for_new_ones(service: Service) -> None:
    """Nobody is refused because others keep connections that they do not use."""
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(httpx.Client(base_url=service.url, trust_env=False, timeout=60))
            assert client.get("/v1/health").status_code == 200
            assert client.get("/login").status_code == 200


def test_a_request_whose_length_is_given_twice_ends_the_connection(service: Service) -> None:
    """Else what one side takes for a body the other takes for another request."""
    head = b"POST /v1/session HTTP/1.1\r\nHost: a\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connection(service, head + b"0\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n") as opened:
        answer = rest(opened)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
