"""Who gets in after a key, a credential, a token or a session has ended; on two processes of the service."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from concurrency import at_once
from databases import ON_BOTH
from running_api import Service, job, problem
from simulated_agent import CLASS
from simulated_pool import ARCHITECTURE, DATA, prepare
from sqlalchemy import func, select, update

from edgefront.core.store.database import Database
from edgefront.core.store.tables import ApiKey, Job, WebSession

ENDED_S = 1.2
"""Seconds after which what was revoked elsewhere has ended here."""
LEASE = {"wait_s": 0, "max_items": 1}
SIZE = 32 << 20


@pytest.fixture
def services(database: Database, start_service: Callable[..., Service]) -> tuple[Service, Service]:
    """Two processes of one service."""
    return start_service(database), start_service(database)


def bearer(service: Service, secret: str) -> httpx.Client:
    return service.client_with({"Authorization": f"Bearer {secret}"})


def made_key(service: Service, admin: httpx.Client, **asked: Any) -> tuple[str, str]:
    made = admin.post("/v1/keys", json={"name": "bob", **asked})
    assert made.status_code == 201
    return made.json()["id"], made.json()["key"]


def count(service: Service, table: Any) -> int:
    with service.database.read() as session:
        return int(session.scalar(select(func.count()).select_from(table)) or 0)


@contextmanager
def asked(service: Service, secret: str, path: str, body: bytes | None = None) -> Iterator[socket.socket]:
    """A connection with a request, without the last byte of its body; `GET` without a body."""
    parts = urlsplit(service.url)
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
    head += "Connection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        opened.settimeout(60)
        opened.connect((str(parts.hostname), int(parts.port or 0)))
        opened.sendall(head.encode() + b"\r\n" + (body or b"")[:-1])
        yield opened


def received(opened: socket.socket, pause_s: Callable[[], float] = lambda: 0.0) -> bytes:
    """What comes until the connection ends, read in small pieces."""
    content = bytearray()
    try:
        while chunk := opened.recv(64 << 10):
            content += chunk
            time.sleep(pause_s())
    except ConnectionResetError:
        pass
    return bytes(content)


@ON_BOTH
def test_what_ends_while_a_body_arrives_does_nothing(services: tuple[Service, Service]) -> None:
    here, elsewhere = services
    admin = elsewhere.client()
    device, credential = here.enrol("board", CLASS)
    assert bearer(here, credential).post("/v1/leases", json=LEASE).status_code == 200
    admin_key, user_key = made_key(here, admin, role="admin"), made_key(here, admin)
    requests = [
        (admin_key[1], "/v1/keys", {"name": "mine", "role": "admin"}),
        (admin_key[1], "/v1/enrolment-tokens", {"uses": 9}),
        (user_key[1], "/v1/jobs", job()),
        (credential, "/v1/leases", LEASE),
    ]
    with ExitStack() as stack:
        waiting = [
            (stack.enter_context(asked(here, secret, path, json.dumps(body).encode())), path)
            for secret, path, body in requests
        ]
        time.sleep(0.3)
        for key_id, _ in (admin_key, user_key):
            assert admin.delete(f"/v1/keys/{key_id}").status_code == 204
        assert admin.post(f"/v1/devices/{device}/revoke").status_code == 200
        before = count(here, ApiKey)
        time.sleep(ENDED_S)
        for opened, path in waiting:
            opened.sendall(b"}")
            answer = received(opened)
            status, kind = (b"410", b"gone") if path == "/v1/leases" else (b"401", b"unauthenticated")
            assert answer.startswith(b"HTTP/1.1 " + status), (path, answer)
            assert kind in answer
    assert (count(here, ApiKey), count(here, Job)) == (before, 0)
    assert len(admin.get("/v1/enrolment-tokens").json()) == 1  # that of the board


@ON_BOTH
@pytest.mark.parametrize("path", ["files/result/weights", "archive"])
def test_a_download_is_cut_when_its_key_ends(
    services: tuple[Service, Service], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    here, elsewhere = services
    prepare(here.settings.data_folder)
    admin = elsewhere.client()
    key_id, secret = made_key(here, admin)
    training = {
        "architecture": ARCHITECTURE,
        "dataset": DATA,
        "overrides": {"steps": 5, "segment": 8, "schedule": {"warmup": 0}},
    }
    made = bearer(here, secret).post("/v1/trainings", json=training).json()["items"][0]["id"]
    folder = here.settings.artifact_folder / "trainings" / made / "result"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(SIZE))
    url, ended, noticed = f"/v1/trainings/{made}/{path}", threading.Event(), threading.Event()
    with (
        asked(here, secret, url) as cut,
        asked(here, made_key(here, admin)[1], url) as whole,
        ThreadPoolExecutor(2) as pool,
    ):
        download = pool.submit(received, cut, lambda: 0.0 if noticed.is_set() else 0.1)
        other = pool.submit(received, whole, lambda: 0.0 if ended.is_set() else 0.1)
        time.sleep(1)
        assert admin.delete(f"/v1/keys/{key_id}").status_code == 204
        time.sleep(2)
        noticed.set()  # what the system had taken in before is still read: megabytes
        answer = download.result()
        ended.set()
        assert SIZE > len(answer) > 1000
        assert len(answer) < SIZE / 2
        assert len(other.result()) > SIZE
    assert not [record for record in caplog.records if record.exc_info]


@ON_BOTH
def test_a_browser_session_ends_when_it_expires(services: tuple[Service, Service]) -> None:
    here, _ = services
    answer = here.client(None).post("/v1/session", json={"key": here.key()})
    with here.database.write() as session:
        session.execute(update(WebSession).values(expires_at=here.database.now(session) + timedelta(seconds=2)))
    browser = here.client_with({"Cookie": f"edgefront_session={answer.cookies['edgefront_session']}"})
    assert browser.get("/v1/me").status_code == 200
    end = time.monotonic() + 20  # less than what is remembered of a key
    while (last := browser.get("/v1/me")).status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    problem(last, 401)


@ON_BOTH
def test_two_admins_do_not_revoke_each_other(services: tuple[Service, Service]) -> None:
    first = services[0].client()
    [key] = first.get("/v1/keys").json()
    assert problem(first.delete(f"/v1/keys/{key['id']}"), 409)["field"] == "force"
    other_id, secret = made_key(services[0], first, role="admin")
    second = bearer(services[1], secret)
    answers = at_once(lambda: first.delete(f"/v1/keys/{other_id}"), lambda: second.delete(f"/v1/keys/{key['id']}"))
    codes = {answer.status_code for answer in answers}
    assert 204 in codes
    assert codes <= {204, 401, 409}
    with services[0].database.read() as session:
        assert session.scalar(select(func.count()).where(ApiKey.role == "admin", ApiKey.revoked_at.is_(None))) == 1
