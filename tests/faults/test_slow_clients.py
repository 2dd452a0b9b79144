"""Clients that send half a request, or nothing, do not read, or hold more connections than there may be."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import large_job
import pytest
from running_api import Service

from edgefront.api.http import connections
from edgefront.api.http.connections import SPARE
from edgefront.core.store.database import Database

RECEIVE_S = 1.0
SESSION = b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = SESSION + b"Transfer-Encoding: chunked\r\n\r\n"
EXPECTING = SESSION + b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n"


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]) -> Service:
    return start_service(open_database(sqlite_url), receive_s=RECEIVE_S, connections=8)


@contextmanager
def connection(service: Service, sent: bytes = b"", buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection that has sent this; `buffer`: bytes that the system receives for it before they are read."""
    parts = urlsplit(service.url)
    with socket.socket() as opened:
        if buffer is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        opened.settimeout(60)
        opened.connect((str(parts.hostname), int(parts.port or 0)))
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
        (SESSION + b"Content-Length: 50\r\n\r\n{", b""),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/hea", b"200"),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 60_000, b"400"),
        (CHUNKED + b"1\r\n{\r\n", b""),
        (EXPECTING, b"100"),
    ],
)
def test_half_a_request_ends(service: Service, sent: bytes, answer: bytes) -> None:
    with connection(service, sent) as opened:
        assert answer in rest(opened).split(b"\r\n", 1)[0]


@pytest.mark.parametrize(("begin", "piece"), [(b"GET /v1/health HTTP/1.1\r\nX-Slow: ", b"x"), (CHUNKED, b"1\r\nx\r\n")])
def test_a_request_that_trickles_ends(service: Service, begin: bytes, piece: bytes) -> None:
    """Each byte in time, and the whole never."""
    with connection(service, begin) as opened:
        opened.settimeout(0.1)
        for _ in range(600):
            try:
                opened.sendall(piece)
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
        # Those who ask for nothing do not keep it from answering, and end.
        idle = [stack.enter_context(connection(service)) for _ in range(SPARE + 8)]
        for opened in idle:
            rest(opened)
        with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
            assert client.get("/v1/health").status_code == 200
        assert len(held) == 8


def test_idle_connections_make_room_for_new_ones(service: Service) -> None:
    """Nobody is refused because others keep connections that they do not use."""
    with ExitStack() as stack:
        for _ in range(2 * (8 + SPARE)):
            opened = stack.enter_context(connection(service, b"GET /login HTTP/1.1\r\nHost: x\r\n\r\n"))
            assert opened.recv(12) == b"HTTP/1.1 200"


WAITING = {
    "nothing": b"",
    "half a head": b"GET /v1/health HTTP/1.1\r\nX: ",
    "half a body": SESSION + b"Content-Length: 50\r\n\r\n{",
    "half a chunked body": CHUNKED + b"1\r\n{\r\n",
    "a body that was announced": EXPECTING,
    "a change of the protocol": b"GET /login HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "answers that nobody reads": b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
}


@pytest.mark.parametrize("sent", WAITING.values(), ids=WAITING)
def test_new_clients_get_in_while_others_hold_all_connections(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service], sent: bytes
) -> None:
    """None of them ends by itself in this test: each makes room for whoever comes."""
    service = start_service(open_database(sqlite_url), receive_s=600, send_s=600, connections=8)
    key = service.key()
    headers, sent = {"Authorization": f"Bearer {key}"}, sent.replace(b"KEY", key.encode())
    with ExitStack() as stack:
        for _ in range(3 * (8 + SPARE)):
            stack.enter_context(connection(service, sent, buffer=4096))
        for path in ("/v1/health", "/v1/me", "/v1/jobs"):
            with httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60) as client:
                assert client.get(path).status_code == 200
        end = time.monotonic() + 60
        while len(service.server.server_state.connections) > 8 + SPARE:
            assert time.monotonic() < end
            time.sleep(0.01)


def export(service: Service, key: str, count: int = 4000) -> bytes:
    """The request of an export of some megabytes by the owner ann."""
    job_id = large_job.fill(service.database, count, "ann", models=20)
    head = f"GET /v1/jobs/{job_id}/candidates?format=csv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode()


def test_a_client_that_does_not_read_its_answer_ends_and_frees_what_it_held(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> None:
    service = start_service(open_database(sqlite_url), send_s=RECEIVE_S, slow_requests=1)
    key = service.key("user", "ann")
    asked = export(service, key)
    with connection(service, asked, buffer=4096) as unread:
        assert unread.recv(12) == b"HTTP/1.1 200"
        with connection(service, asked) as refused:
            assert rest(refused).startswith(b"HTTP/1.1 429")
        # Some bytes now and then are not enough.
        end = time.monotonic() + 60
        while service.context.slow._accepted:
            assert time.monotonic() < end
            unread.recv(16)
            time.sleep(0.05)
        with connection(service, asked) as opened:
            answer = rest(opened)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"0\r\n\r\n")
        assert len(rest(unread)) < len(answer)


def test_a_client_that_reads_slowly_gets_all_of_its_answer(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> None:
    """It takes longer than `send_s`, and each part of it does not."""
    service = start_service(open_database(sqlite_url), send_s=4)
    asked = export(service, service.key("user", "ann"))
    with connection(service, asked, buffer=65536) as opened:
        answer, begun = b"", time.monotonic()
        while chunk := opened.recv(65536):
            answer += chunk
            if time.monotonic() - begun < 8:
                time.sleep(len(chunk) / (256 << 10))
        assert answer.endswith(b"0\r\n\r\n")


def test_an_idle_stream_of_events_stays(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> None:
    service = start_service(open_database(sqlite_url), receive_s=0.2, send_s=0.2)
    job_id = large_job.fill(service.database, 20, "ann", models=2)
    head = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key('user', 'ann')}"
    with connection(service, f"{head}\r\n\r\n".encode()) as opened:
        answer = b""
        while b"events follow" not in answer:
            answer += opened.recv(65536)
        opened.settimeout(2)
        with pytest.raises(TimeoutError):
            opened.recv(1)


def test_unread_answers_take_a_bounded_memory(
    sqlite_url: str,
    open_database: Callable[..., Database],
    start_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = start_service(open_database(sqlite_url), send_s=600)
    monkeypatch.setattr(connections, "UNSENT", 1 << 20)
    headers = {"Authorization": f"Bearer {service.key()}"}
    asked = f"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n\r\n".encode()
    with ExitStack() as stack:
        held = [stack.enter_context(connection(service, asked, buffer=4096)) for _ in range(20)]
        for opened in held:
            assert opened.recv(12) == b"HTTP/1.1 200"
        protocol = service.server.config.http_protocol_class
        size = len(httpx.get(f"{service.url}/v1/openapi.json", headers=headers, trust_env=False, timeout=60).content)
        assert size > connections.PART
        assert protocol.unsent <= (1 << 20) + size  # type: ignore[union-attr]
        assert len(rest(held[0])) < size


def test_a_request_whose_length_is_given_twice_ends_the_connection(service: Service) -> None:
    """Else what one side takes for a body the other takes for another request."""
    head = b"POST /v1/session HTTP/1.1\r\nHost: a\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connection(service, head + b"0\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n") as opened:
        answer = rest(opened)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
