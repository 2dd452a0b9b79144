"""Following a job's events over connections that break: none skipped, none twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler

import pytest
from rough_server import Rough, answer

from edgefront.client.client import Client
from edgefront.core.common.errors import Unavailable

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc).isoformat()


def job(state: str, last_event: int) -> bytes:
    view = {
        "id": "job_1",
        "name": "search",
        "owner": "me",
        "state": state,
        "reason": None,
        "request": {"targets": [{"device": "here"}]},
        "targets": [],
        "created_at": NOW,
        "updated_at": NOW,
        "finished_at": None,
        "last_event": last_event,
    }
    return json.dumps(view).encode()


def event(number: int, kind: str = "launch", **data: object) -> str:
    view = {"number": number, "kind": kind, "target_id": None, "data": data, "created_at": NOW}
    return f"id: {number}\r\nevent: {kind}\r\ndata: {json.dumps(view)}\r\n\r\n"


def stream(*parts: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Sends these and hangs up in the middle of a chunk."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(f"{len(part.encode()):x}\r\n{part}\r\n".encode())
        handler.close_connection = True

    return send


def test_a_broken_stream_is_taken_up_from_the_last_event(rough: Rough) -> None:
    running = answer(200, job("running", 2))
    ended = event(5, "job_state", state="finished")
    rough.answers = [
        running,
        stream(event(1), ": ping\r\n\r\n", event(2), 'id: 3\r\ndata: {"half'),
        running,
        stream(event(2), event(3), event(4), ended),
        answer(200, job("finished", 5)),
    ]
    with Client(rough.url, "efk_x", patience_s=60) as client:
        numbers = [item.number for item in client.jobs.events("job_1")]
    assert numbers == [1, 2, 3, 4, 5]
    streams = [request for request in rough.seen if request[1].endswith("/events")]
    assert [request[2].get("last-event-id") for request in streams] == [None, "2"]


def test_an_ended_job_is_read_to_its_last_event_and_no_further(rough: Rough) -> None:
    rough.answers = [answer(200, job("cancelled", 2)), stream(event(1), event(2))]
    with Client(rough.url, "efk_x", patience_s=60) as client:
        assert [item.number for item in client.jobs.events("job_1")] == [1, 2]
        rough.answers = [answer(200, job("cancelled", 2))]
        assert list(client.jobs.events("job_1", after=2)) == []


def test_what_happens_after_the_end_is_read_too(rough: Rough) -> None:
    """A finished job may be extended."""
    ended = event(2, "job_state", state="finished")
    rough.answers = [
        answer(200, job("finished", 3)),
        stream(event(1), ended),
        answer(200, job("finished", 3)),
        stream(event(3, "frontier")),
    ]
    with Client(rough.url, "efk_x", patience_s=60) as client:
        assert [item.number for item in client.jobs.events("job_1")] == [1, 2, 3]


def test_events_of_a_newer_service_are_passed_on(rough: Rough) -> None:
    ended = event(2, "job_state", state="finished", by="somebody")
    rough.answers = [answer(200, job("finished", 2)), stream(event(1, "weather", sky="blue"), ended)]
    with Client(rough.url, "efk_x", patience_s=60) as client:
        weather, last = client.jobs.events("job_1")
    assert (weather.kind, weather.data) == ("weather", {"sky": "blue"})
    assert json.loads(last.model_dump_json(exclude_unset=True))["data"] == {"state": "finished", "by": "somebody"}


def test_only_the_kinds_that_are_asked_for(rough: Rough) -> None:
    ended = event(3, "job_state", state="failed", reason="x")
    rough.answers = [
        answer(200, job("running", 0)),
        stream(event(1), event(2, "frontier"), ended),
        answer(200, job("failed", 3)),
    ]
    with Client(rough.url, "efk_x", patience_s=60) as client:
        events = list(client.jobs.events("job_1", kinds={"frontier"}))
    assert [item.number for item in events] == [2]


def test_a_stream_that_never_comes_back_is_given_up(rough: Rough) -> None:
    rough.answers = [answer(200, job("running", 1)), stream(event(1)), answer(503, b"{}")]
    with Client(rough.url, "efk_x", patience_s=0.2) as client, pytest.raises(Unavailable):
        list(client.jobs.events("job_1"))
