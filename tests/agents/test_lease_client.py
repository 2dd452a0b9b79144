"""The client's answers, and what is tried again."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from scripted_server import CREDENTIAL, TOKEN, Script, ScriptedServer
from tenacity import AsyncRetrying, RetryCallState

from edgefront.agents import options
from edgefront.agents.server.client import AgentClient, ProtocolMismatch, RetryPolicy, check_url, error_of, retryable
from edgefront.core.common import errors
from edgefront.core.common.http_client import pauses
from edgefront.core.schemas.agent import MAX_BATCH, LeaseRequest

QUICK = RetryPolicy(base_s=0.01, cap_s=0.02, total_s=5.0)


def test_the_command_line_allows_as_many_launches_as_a_lease():
    assert options.MAX_BATCH == MAX_BATCH


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1/", "http://localhost", "https://far.example"])
def test_urls_that_keep_the_credential_safe(url):
    assert check_url(url) == url.rstrip("/")


def test_plain_http_beyond_this_machine_only_if_asked_for():
    with pytest.raises(errors.InvalidInput, match="plain HTTP"):
        check_url("http://10.0.0.1:8090")
    with pytest.raises(errors.InvalidInput, match="plain HTTP"):
        check_url("http://localhost.evil.example")
    assert check_url("http://10.0.0.1:8090", insecure=True) == "http://10.0.0.1:8090"
    for url in ("far.example", "ftp://far.example", ""):
        with pytest.raises(errors.InvalidInput, match="not the URL"):
            check_url(url)


@pytest.mark.parametrize(
    ("status", "problem", "kind", "again"),
    [
        (401, {}, errors.Unauthenticated, False),
        (403, {}, errors.Forbidden, False),
        (404, {}, errors.NotFound, False),
        (409, {}, errors.Conflict, False),
        (409, {"protocol_version": 3}, ProtocolMismatch, False),
        (410, {}, errors.Gone, False),
        (413, {}, errors.TooLarge, False),
        (422, {"field": "reports.0"}, errors.InvalidInput, False),
        (426, {}, ProtocolMismatch, False),
        (408, {}, errors.Unavailable, True),
        (429, {}, errors.TooManyRequests, True),
        (500, {}, errors.Unavailable, True),
    ],
)
def test_answers_become_errors_in_one_place(status, problem, kind, again):
    error = error_of(httpx.Response(status, json={"detail": "x", **problem}))
    assert type(error) is kind
    assert retryable(error) is again


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 405, 409, 410, 422, 500, 502, 503])
@pytest.mark.parametrize("body", ["", "<html>", "[]", '{"message": "no"}'])
def test_an_error_that_is_not_the_servers_own_is_no_final_answer(status, body):
    assert retryable(error_of(httpx.Response(status, text=body)))
    assert type(error_of(httpx.Response(413, text=body))) is errors.TooLarge  # what a proxy does not let through


def test_retry_after_is_read_and_bounded():
    assert error_of(httpx.Response(503, headers={"Retry-After": "7"})).extra["retry_after_s"] == 7
    assert error_of(httpx.Response(503, headers={"Retry-After": "1e9"})).extra["retry_after_s"] == 3600
    assert "retry_after_s" not in error_of(httpx.Response(503, headers={"Retry-After": "Fri, 1 Jan"})).extra


def test_pauses_have_full_jitter_and_a_cap():
    pause = pauses(base_s=0.5, cap_s=30.0)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    for failures, bound in ((1, 0.5), (2, 1.0), (4, 4.0), (50, 30.0), (100_000, 30.0)):
        state.attempt_number = failures
        drawn = [pause(state) for _ in range(300)]
        assert 0 <= min(drawn) < 0.2 * bound
        assert 0.8 * bound < max(drawn) <= bound


def test_a_pause_is_never_shorter_than_the_server_says():
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.set_exception((errors.Unavailable, errors.Unavailable("away", retry_after_s=7.0), None))
    assert pauses(base_s=0.5, cap_s=30.0)(state) == 7.0


def test_gives_up_in_time_and_at_once_on_permanent_errors(caplog):
    calls = []

    async def away():
        calls.append("away")
        raise errors.Unavailable("away")

    async def refused():
        calls.append("refused")
        raise errors.Conflict("no")

    with pytest.raises(errors.Conflict):
        asyncio.run(QUICK.run("asking", refused))
    assert calls == ["refused"]
    with caplog.at_level(logging.WARNING, logger="edgefront.agents.server.client"), pytest.raises(errors.Unavailable):
        asyncio.run(RetryPolicy(base_s=0.002, cap_s=0.004, total_s=0.3).run("asking", away))
    failures = calls.count("away")
    assert failures > 1
    assert len(caplog.records) <= failures.bit_length()  # a line for each doubling


def ask(server: ScriptedServer, credential: str = CREDENTIAL, wait_s: float = 0.0):
    async def lease():
        async with AgentClient(server.url) as client:
            client.use(credential)
            return await client.lease(LeaseRequest(wait_s=wait_s))

    return asyncio.run(lease())


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"Content-Encoding": "gzip"}, b"no gzip", "cannot be reached"),
        ({}, b"<html>sign in</html>", "not a LeaseResponse"),
        ({}, b'{"lease_id": 3}', "not a LeaseResponse"),
    ],
)
def test_an_answer_that_is_not_the_servers_counts_as_an_unavailable_server(headers, body, said):
    with ScriptedServer(Script(first=(200, headers, body))) as server, pytest.raises(errors.Unavailable, match=said):
        ask(server)


def test_a_closed_port_counts_as_an_unavailable_server():
    with ScriptedServer(Script()) as server:
        assert ask(server).items == ()
        with pytest.raises(errors.Unauthenticated):
            ask(server, credential=TOKEN)
    with pytest.raises(errors.Unavailable, match="cannot be reached"):
        ask(server)
