"""Clients that send half a request, or nothing, do not read, or hold many connections: the real nginx with the shipped
configuration in front of the real API, and what the API does by itself.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import large_job
import pytest
from concurrency import until
from running_api import Service, problem

from edgefront.core.common.states import JobEventKind
from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.store.database import Database
from servers import OwnNginx, own_nginx

WAIT_S = 1
"""Seconds that the proxy waits for a client here, instead of 10 and 120."""
CONNECTIONS = 80
"""Of the API."""
SESSION = b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = SESSION + b"Transfer-Encoding: chunked\r\n\r\n"
EXPECTING = SESSION + b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n"


@pytest.fixture
def start_proxy(service: Service) -> Iterator[Callable[..., OwnNginx]]:
    """`start_proxy(**values)`: a proxy in front of `service` that does not wait long."""
    with ExitStack() as stack:

        def start(**values: object) -> OwnNginx:
            given = {"RECEIVE_S": WAIT_S, "SEND_S": WAIT_S, "REQUESTS": 8, **values}
            return stack.enter_context(own_nginx(urlsplit(service.url).netloc, **given))

        yield start


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]) -> Service:
    """An API of few connections and one slow request of each owner."""
    return start_service(open_database(sqlite_url), connections=CONNECTIONS)


@contextmanager
def connection(
    url: str, sent: bytes = b"", *, buffer: int | None = None, source: str = "127.0.0.1"
) -> Iterator[socket.socket]:
    """A connection that has sent this; `buffer`: bytes that the system receives for it before they are read."""
    parts = urlsplit(url)
    with socket.socket() as opened:
        if buffer is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        opened.settimeout(60)
        opened.bind((source, 0))
        opened.connect((str(parts.hostname), int(parts.port or 0)))
        opened.sendall(sent)
        yield opened


def rest(opened: socket.socket) -> bytes:
    """What the server sends until it ends the connection."""
    received = bytearray()
    with suppress(ConnectionError):
        while part := opened.recv(1 << 20):
            received += part
    return bytes(received)


def get(path: str, key: str) -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    return head.encode()


def poll(service: Service, name: str, seconds: float = 30) -> bytes:
    """The request for work of a device, for which there is none."""
    body = f'{{"wait_s": {seconds}}}'
    head = (
        "POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.enrol(name)[1]}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def export(service: Service, key: str, count: int = 4000) -> bytes:
    """The request of an export of some megabytes by the owner ann."""
    job_id = large_job.fill(service.database, count, "ann", models=20)
    return get(f"/v1/jobs/{job_id}/candidates?format=csv", key)


# Requests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ", b""),
        (SESSION + b"Content-Length: 50\r\n\r\n{", b""),
        (CHUNKED + b"1\r\n{\r\n", b""),
        (EXPECTING, b"100"),
    ],
)
def test_half_a_request_ends(start_proxy: Callable[..., OwnNginx], sent: bytes, answer: bytes) -> None:
    with connection(start_proxy().url, sent) as opened:
        assert answer in rest(opened).split(b"\r\n", 1)[0]


@pytest.mark.parametrize("begin", [SESSION + b"Content-Length: 500000\r\n\r\n", CHUNKED])
def test_a_body_that_trickles_does_not_reach_the_api(
    service: Service, start_proxy: Callable[..., OwnNginx], begin: bytes
) -> None:
    url = start_proxy().url
    with ExitStack() as stack:
        trickling = [stack.enter_context(connection(url, begin)) for _ in range(CONNECTIONS + 20)]
        for _ in range(8):
            for opened in trickling:
                opened.sendall(b"1\r\nx\r\n")
            time.sleep(WAIT_S / 4)
        assert not service.server.server_state.connections
        assert service.client(base_url=url).get("/v1/me").status_code == 200


def test_a_body_that_is_too_large_is_refused_by_the_api_else_by_the_proxy(
    service: Service, start_proxy: Callable[..., OwnNginx]
) -> None:
    client, most = service.client(base_url=start_proxy().url), service.settings.http.max_body_bytes
    client.headers["Content-Type"] = "application/json"
    assert f"{most} bytes" in problem(client.post("/v1/jobs", content=b" " * (most + 1)), 413)["detail"]
    assert "the limit of the proxy" in problem(client.post("/v1/jobs", content=b" " * (6 << 20)), 413)["detail"]


def test_a_model_passes_the_proxy_and_the_api_bounds_it(service: Service, start_proxy: Callable[..., OwnNginx]) -> None:
    client = service.client("user", "bob", base_url=start_proxy().url)
    answer = client.post("/v1/trainings/import", content=b"x" * (6 << 20))
    assert "not a tar archive" in problem(answer, 422)["detail"]


# Connections ----------------------------------------------------------------------------------------------------------


UNANSWERED = {
    "half a head": b"GET /v1/health HTTP/1.1\r\nX: ",
    "half a chunked body": CHUNKED + b"1\r\n{\r\n",
}
ANSWERED = {
    "an announced body": EXPECTING,
    "an idle connection": b"GET /login HTTP/1.1\r\nHost: x\r\n\r\n",
    "an answer that nobody reads": b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
}


@pytest.mark.parametrize("held", [*UNANSWERED, *ANSWERED])
def test_new_clients_get_in_while_others_hold_many_connections(
    service: Service, start_proxy: Callable[..., OwnNginx], held: str
) -> None:
    """More than the API has. None of them ends by itself in this test."""
    url, client = start_proxy(RECEIVE_S=600, SEND_S=600).url, service.client()
    key = client.headers["Authorization"].removeprefix("Bearer ").encode()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS + 20):
            sent = {**UNANSWERED, **ANSWERED}[held].replace(b"KEY", key)
            opened = stack.enter_context(connection(url, sent, buffer=4096))
            if held in ANSWERED:
                assert opened.recv(10) in (b"HTTP/1.1 1", b"HTTP/1.1 2")
        for path in ("/v1/health", "/v1/me", "/v1/jobs"):
            assert httpx.get(f"{url}{path}", headers=client.headers, trust_env=False, timeout=60).status_code == 200
        # No more than the proxy keeps for next requests.
        until(lambda: len(service.server.server_state.connections) < CONNECTIONS / 2)


def test_health_answers_while_the_api_has_all_requests_that_it_may(
    service: Service, start_proxy: Callable[..., OwnNginx]
) -> None:
    url = start_proxy().url
    with ExitStack() as stack:
        for name in ("one", "another"):
            asked = poll(service, name)
            for _ in range(4):
                stack.enter_context(connection(url, asked))
        until(lambda: service.context.room.size == 8)
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            assert client.get("/v1/health").status_code == 200
            refused = client.get("/v1/jobs")
            assert problem(refused, 503)["kind"] == "unavailable"
            assert int(refused.headers["retry-after"]) >= 1


def test_one_address_leaves_requests_for_others(service: Service, start_proxy: Callable[..., OwnNginx]) -> None:
    url = start_proxy(ADDRESS_CONNECTIONS=4).url
    ask = get("/v1/jobs", service.key())
    with ExitStack() as stack:
        asked = poll(service, "one")
        for _ in range(4):
            stack.enter_context(connection(url, asked, source="127.0.0.2"))
        until(lambda: service.context.room.size == 4)
        with connection(url, ask, source="127.0.0.2") as refused:
            answer = rest(refused)
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"Retry-After: 2\r\n" in answer
        assert b'"kind":"too-many-requests"' in answer
        with connection(url, ask, source="127.0.0.3") as other:
            assert rest(other).startswith(b"HTTP/1.1 200")


def test_one_address_sends_a_bounded_number_of_requests_a_second(
    service: Service, start_proxy: Callable[..., OwnNginx]
) -> None:
    url = start_proxy(ADDRESS_REQUESTS=4).url
    headers = {"Authorization": f"Bearer {service.key()}"}
    busy, other = (httpx.HTTPTransport(local_address=f"127.0.0.{number}") for number in (2, 3))
    with httpx.Client(base_url=url, transport=busy, trust_env=False, timeout=60) as client:
        answers = [client.get("/v1/me", headers=headers) for _ in range(200)]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert {problem(answer, 429)["kind"] for answer in answers if answer.status_code == 429} == {"too-many-requests"}
    with httpx.Client(base_url=url, transport=other, trust_env=False, timeout=60) as client:
        assert client.get("/v1/me", headers=headers).status_code == 200


def test_the_api_alone_bounds_its_connections(service: Service) -> None:
    """Without a proxy: uvicorn refuses requests beyond `http.connections`, and answers again when there are fewer."""
    with ExitStack() as stack:
        for _ in range(CONNECTIONS - 1):
            stack.enter_context(connection(service.url))
        until(lambda: len(service.server.server_state.connections) == CONNECTIONS - 1)
        assert httpx.get(f"{service.url}/v1/health", trust_env=False).status_code == 503
    until(lambda: not service.server.server_state.connections)
    assert httpx.get(f"{service.url}/v1/health", trust_env=False).status_code == 200


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4000, pytest.param(12_000, marks=pytest.mark.long)])
def test_a_client_that_does_not_read_its_answer_ends_and_frees_what_it_held(
    service: Service, start_proxy: Callable[..., OwnNginx], count: int
) -> None:
    """Also one of more than the 16 MiB that the proxy keeps."""
    url = start_proxy().url
    asked = export(service, service.key("user", "ann"), count)
    with connection(url, asked, buffer=4096) as unread:
        assert unread.recv(12) == b"HTTP/1.1 200"
        until(lambda: not service.server.server_state.tasks)
        with connection(url, asked) as opened:
            answer = rest(opened)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"0\r\n\r\n")
        time.sleep(2 * WAIT_S)
        assert len(rest(unread)) < len(answer)


def test_events_pass_as_they_come_and_a_stream_without_any_stays(
    service: Service, start_proxy: Callable[..., OwnNginx]
) -> None:
    job_id = large_job.fill(service.database, 20, "ann", models=2)
    asked = get(f"/v1/jobs/{job_id}/events", service.key("user", "ann"))
    with connection(start_proxy().url, asked) as opened:
        answer = b""
        while b"events follow" not in answer:
            answer += opened.recv(65536)
        for number in range(3):
            opened.settimeout(2 * WAIT_S)
            with pytest.raises(TimeoutError):
                opened.recv(1)
            with service.database.write() as session:
                entry = Entry(JobEventKind.LAUNCH, {"made": number})
                event_log.append(session, job_id, [entry], service.database.now(session))
            opened.settimeout(60)
            answer = b""
            while f'"made":{number}'.encode() not in answer:
                answer += opened.recv(65536)


def test_a_request_that_waits_for_work_is_answered(service: Service, start_proxy: Callable[..., OwnNginx]) -> None:
    """After a longer time than the proxy waits for a client."""
    with connection(start_proxy().url, poll(service, "one", 3 * WAIT_S)) as opened:
        answer = opened.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"items":[]' in answer


def test_the_proxy_answers_while_the_api_is_away(service: Service, start_proxy: Callable[..., OwnNginx]) -> None:
    url = start_proxy().url
    service.server.should_exit = True
    until(lambda: not any(thread.name == "warm-up" for thread in threading.enumerate()))
    client = service.client(None, base_url=url)
    until(lambda: client.get("/v1/health").status_code == 503)
    refused = client.get("/v1/health")
    assert problem(refused, 503)["kind"] == "unavailable"
    assert int(refused.headers["retry-after"]) >= 1
