"""A job's events over SSE: replayed, followed, resumed; none skipped, none doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from concurrency import until
from httpx_sse import EventSource, ServerSentEvent
from running_api import Service, problem
from simulated_agent import CLASS
from starlette.types import Message, Receive, Scope, Send

from edgefront.api import polling
from edgefront.api.http import auth
from edgefront.api.http.credentials import Credential
from edgefront.core.common.errors import EdgefrontError, Unauthenticated, Unavailable
from edgefront.core.common.states import JobEventKind, KeyRole
from edgefront.core.schemas.messages import Event
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.event_log import Entry
from edgefront.core.store.database import Database


@contextmanager
def follow(client: httpx.Client, path: str, headers: dict[str, str] | None = None, **params: Any) -> Iterator[Iterator[ServerSentEvent]]:  # fmt: skip  # noqa: E501
    with client.stream("GET", f"{path}/events", params=params, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield (event for event in EventSource(response).iter_sse() if event.data)


def test_a_key_that_ends_elsewhere_ends_its_streams_here(
    database: Database, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "RECHECK_S", 1e9)  # new events are announced, not found by polling
    here, elsewhere = start_service(database), start_service(database)
    here.enrol("board", CLASS)
    made = elsewhere.client().post("/v1/keys", json={"name": "bob"}).json()
    client = here.client_with({"Authorization": f"Bearer {made['key']}"})
    job = here.submit(client)
    with follow(client, f"/v1/jobs/{job['id']}") as events:
        next(events)
        assert elsewhere.client().delete(f"/v1/keys/{made['id']}").status_code == 204
        assert all(event.data for event in events)  # to their end
    problem(client.get("/v1/me"), 401)


def take(events: Iterator[ServerSentEvent], number: int) -> list[Event]:
    taken = []
    for event in events:
        view = Event.model_validate_json(event.data)
        assert (event.id, event.event) == (str(view.number), view.kind)
        taken.append(view)
        if len(taken) == number:
            break
    return taken


def append(service: Service, job_id: str, count: int = 1) -> None:
    with service.database.write() as session:
        entries = [Entry(JobEventKind.LAUNCH, {"made": number}) for number in range(count)]
        event_log.append(session, job_id, entries, service.database.now(session))


@pytest.fixture
def job(service: Service, client: httpx.Client) -> dict[str, Any]:
    service.enrol("board", CLASS)
    made = service.submit(client)
    view: dict[str, Any] = client.get(f"/v1/jobs/{made['id']}").json()
    return view


@pytest.fixture
def path(job: dict[str, Any]) -> str:
    return f"/v1/jobs/{job['id']}"


def test_replay_resume_then_follow(service: Service, client: httpx.Client, job: dict[str, Any], path: str) -> None:
    last = job["last_event"]
    assert last > 2
    with follow(client, path, headers={"Last-Event-ID": str(last - 1)}, after=1) as events:
        assert take(events, 1)[0].number == last
    with follow(client, path) as events, follow(client, path, after=last - 2) as later:
        assert [event.number for event in take(events, last)] == list(range(1, last + 1))
        assert [event.number for event in take(later, 2)] == [last - 1, last]
        append(service, job["id"], 3)
        for reader in (events, later):
            assert [event.data for event in take(reader, 3)] == [{"made": 0}, {"made": 1}, {"made": 2}]


def test_numbers_that_were_never_given_out_are_refused(client: httpx.Client, path: str) -> None:
    for headers, params in (({}, {"after": 10**6}), ({"Last-Event-ID": "1000000"}, {})):
        response = client.get(f"{path}/events", headers=headers, params=params)
        assert problem(response, 422)["field"] == "after"
    problem(client.get(f"{path}/events", headers={"Last-Event-ID": "x"}), 422)
    problem(client.get(f"{path}/events", params={"after": -1}), 422)


def test_a_long_log_comes_whole_to_every_reader(
    service: Service, client: httpx.Client, job: dict[str, Any], path: str
) -> None:
    count = polling.PAGE * 2 + polling.KEPT + 7
    append(service, job["id"], count)
    whole = job["last_event"] + count
    with follow(client, path) as first, follow(client, path, after=whole - 5) as second:
        assert [event.number for event in take(second, 5)] == list(range(whole - 4, whole + 1))
        assert [event.number for event in take(first, whole)] == list(range(1, whole + 1))
        append(service, job["id"], polling.PAGE + 1)
        for events in (first, second):
            assert take(events, polling.PAGE + 1)[-1].number == whole + polling.PAGE + 1


def test_readers_of_one_job_share_a_feed_that_ends_with_them(
    service: Service, client: httpx.Client, job: dict[str, Any], path: str
) -> None:
    with follow(client, path) as first, follow(client, path) as second:
        take(first, job["last_event"])
        take(second, job["last_event"])
        append(service, job["id"])
        take(first, 1)
        take(second, 1)
        assert service.context.feeds.readers == 2
        assert len(service.context.feeds._feeds) == 1
    until(lambda: service.context.feeds.readers == 0)
    assert service.context.feeds._feeds == {}


def test_a_stream_ends_when_its_job_is_deleted_or_its_key_revoked(
    service: Service, client: httpx.Client, job: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "RECHECK_S", 0.2)
    admin = service.client("admin", "root")
    made = admin.post("/v1/keys", json={"name": "second", "owner": "bob"}).json()
    other = service.client_with({"Authorization": f"Bearer {made['key']}"})
    with follow(other, path, after=job["last_event"]) as revoked, follow(client, path) as events:
        take(events, job["last_event"])
        admin.delete(f"/v1/keys/{made['id']}")
        assert list(revoked) == []
        client.post(f"{path}/cancel")
        client.delete(path)
        rest = [Event.model_validate_json(event.data).number for event in events]
        assert rest == list(range(job["last_event"] + 1, job["last_event"] + 1 + len(rest)))


def test_streams_are_bounded_for_each_key(client: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "MAX_READERS_PER_KEY", 1)
    with follow(client, path) as events:
        take(events, 1)
        refused = client.get(f"{path}/events")
        assert problem(refused, 429)["kind"] == "too-many-requests"
        assert refused.headers["retry-after"]


def test_silence_is_filled_with_comments(client: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefront.api.routers.events.HEARTBEAT_S", 0.1)
    with client.stream("GET", f"{path}/events") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("retry:")) == "retry: 2000"
        assert next(line for line in lines if line == ": still here")


def test_stopping_the_server_ends_streams(start_service: Callable[..., Service], database: Database) -> None:
    service = start_service(database)
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    made = service.submit(client)
    with follow(client, f"/v1/jobs/{made['id']}") as events:
        take(events, 1)
        service.server.should_exit = True
        for _ in events:
            pass


def test_a_stream_outlives_an_outage_but_not_its_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its credential is checked again before each part: while the database is away nothing ends."""
    monkeypatch.setattr(auth, "CHECKED_S", -1.0)
    valid = Principal("key_1", "bob", "bob", KeyRole.USER)
    answers = [valid, valid, Unavailable("away"), Unavailable("away"), valid, Unauthenticated("the key was revoked")]

    async def resolve(_credential: Credential) -> Principal:
        answer = answers.pop(0)
        if isinstance(answer, EdgefrontError):
            raise answer
        return answer

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        for part in (b"1", b"2", b"3", b"4", b"5"):
            await send({"type": "http.response.body", "body": part, "more_body": True})

    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message["body"])

    async def receive() -> Message:
        return {"type": "http.request"}

    credentials = SimpleNamespace(remembered=lambda _credential: None, resolve=resolve)
    app = SimpleNamespace(state=SimpleNamespace(context=SimpleNamespace(credentials=credentials)))
    headers = [(b"authorization", b"Bearer efk_x")]
    scope = {"type": "http", "method": "GET", "path": "/v1/jobs/job_1/events", "root_path": "", "headers": headers}
    with pytest.raises(ConnectionAbortedError, match="revoked"):
        asyncio.run(auth.Authenticate(stream)({**scope, "app": app}, receive, send))
    assert sent == [b"1", b"2", b"3", b"4"]
