"""What the client does with a server that stumbles, and how problem documents become exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from rough_server import Rough, answer, hang_up, rough_server

from edgefront.client.client import Client
from edgefront.client.transport import Transport
from edgefront.core.common.errors import (
    ArchitectureError,
    Conflict,
    EdgefrontError,
    InvalidInput,
    NotFound,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)


@pytest.fixture
def transport(rough: Rough) -> Iterator[Transport]:
    made = Transport(rough.url, "efk_secret", timeout_s=60, patience_s=30)
    yield made
    made.close()


def problem(status: int, kind: str, detail: str = "no", **extra: object) -> bytes:
    document = {"type": "about:blank", "title": "x", "status": status, "detail": detail, "kind": kind, **extra}
    return json.dumps(document).encode()


def test_a_get_is_sent_again_after_a_broken_connection_and_a_503(rough: Rough, transport: Transport) -> None:
    rough.answers = [hang_up, answer(503, problem(503, "unavailable")), answer(200, b'{"fine": true}')]
    assert transport.request("GET", "/v1/jobs").json() == {"fine": True}
    assert len(rough.seen) == 3
    assert rough.seen[0][2]["authorization"] == "Bearer efk_secret"


def test_a_post_that_may_have_been_done_is_not_sent_again(rough: Rough, transport: Transport) -> None:
    rough.answers = [hang_up]
    with pytest.raises(Unavailable):
        transport.request("POST", "/v1/keys")
    assert len(rough.seen) == 1


def test_a_post_with_an_idempotency_key_is_sent_again(rough: Rough, transport: Transport) -> None:
    rough.answers = [hang_up, answer(201, b"{}")]
    headers = {"Idempotency-Key": "once"}
    assert transport.request("POST", "/v1/jobs", headers=headers, repeatable=True).status_code == 201
    assert [request[2]["idempotency-key"] for request in rough.seen] == ["once", "once"]


def test_a_rate_bound_is_waited_out_even_by_a_post(rough: Rough, transport: Transport) -> None:
    rough.answers = [answer(429, problem(429, "too-many-requests"), Retry_After="0"), answer(200, b"{}")]
    assert transport.request("POST", "/v1/keys").status_code == 200


def test_a_wait_longer_than_the_patience_is_not_begun(rough: Rough, transport: Transport) -> None:
    rough.answers = [answer(429, problem(429, "too-many-requests"), Retry_After="3600")]
    with pytest.raises(TooManyRequests):
        transport.request("GET", "/v1/jobs")
    assert len(rough.seen) == 1


@pytest.mark.parametrize(
    ("status", "kind", "error_class"),
    [
        (404, "not-found", NotFound),
        (409, "conflict", Conflict),
        (401, "unauthenticated", Unauthenticated),
        (422, "invalid-architecture", ArchitectureError),
        (404, "a-kind-of-tomorrow", NotFound),
        (418, "a-kind-of-tomorrow", EdgefrontError),
    ],
)
def test_problems_become_exceptions_by_kind_then_by_status(
    rough: Rough, transport: Transport, status: int, kind: str, error_class: type[EdgefrontError]
) -> None:
    rough.answers = [answer(status, problem(status, kind, "what was wrong"))]
    with pytest.raises(error_class, match="what was wrong") as raised:
        transport.request("GET", "/v1/jobs/job_x")
    assert type(raised.value) is error_class


def test_invalid_input_keeps_field_value_and_what_is_allowed(rough: Rough, transport: Transport) -> None:
    body = problem(422, "invalid-input", "no", field="budget.minutes", value=-1, allowed="above 0")
    rough.answers = [answer(422, body)]
    with pytest.raises(InvalidInput) as raised:
        transport.request("POST", "/v1/jobs")
    error = raised.value
    assert (error.field, error.value, error.allowed) == ("budget.minutes", -1, "above 0")


def test_a_response_of_another_server_is_reported(rough: Rough, transport: Transport) -> None:
    rough.answers = [answer(404, b"<html>nginx</html>", content_type="text/html")]
    with pytest.raises(NotFound, match="answered 404"):
        transport.request("GET", "/v1/jobs")
    rough.answers = [answer(302, b"", Location="https://elsewhere.example/")]
    with pytest.raises(EdgefrontError, match=r"elsewhere\.example"):
        transport.request("GET", "/v1/jobs")


@pytest.mark.parametrize("url", ["", "localhost:8090", "ftp://host", "http://", "http://host:port"])
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Transport(url, None, timeout_s=1, patience_s=1)
    assert raised.value.field == "url"


def test_a_server_that_is_not_there(unused_url: str) -> None:
    with Client(unused_url, "efk_x", patience_s=0.1) as client, pytest.raises(Unavailable, match="cannot be reached"):
        list(client.jobs.list())


@pytest.fixture
def unused_url() -> str:
    with rough_server() as server:
        return server.url


def test_a_closed_client_raises(rough: Rough) -> None:
    client = Client(rough.url, "efk_x")
    client.close()
    with pytest.raises(EdgefrontError, match="closed"):
        client.jobs.get("job_1")


@pytest.mark.parametrize("key", ["clé", "a\nb", "a\0b"])
def test_a_key_that_no_header_takes_is_refused(key: str) -> None:
    with pytest.raises(Unauthenticated, match="not an API key"):
        Transport("http://127.0.0.1:1", key, timeout_s=1.0, patience_s=0.0)


@pytest.mark.parametrize("value", ["é", "a\nb"])
def test_a_header_that_cannot_be_sent_is_no_servers_absence(transport: Transport, value: str) -> None:
    with pytest.raises(InvalidInput, match="header"):
        transport.request("POST", "/v1/jobs", headers={"Idempotency-Key": value}, repeatable=True)
