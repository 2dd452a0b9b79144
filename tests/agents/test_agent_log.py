"""What an agent logs reaches its server, each line once, and nothing depends on it."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from scripted_server import CREDENTIAL, TOKEN, Script, ScriptedServer, wait_for
from test_agent_loop import config, folder, item, running  # noqa: F401

from edgefront.agents.server import credential, logs
from edgefront.agents.server.client import AgentClient
from edgefront.agents.server.logs import LOGGER, LogBuffer, LogSender
from edgefront.core.errors import InvalidInput
from edgefront.core.wire.agent import MAX_LOG_LINES, MAX_LOG_TEXT

_log = logging.getLogger(f"{LOGGER}.loop")


@pytest.fixture(autouse=True)
def informed() -> Iterator[None]:
    """The level that agents log at."""
    logger = logging.getLogger(LOGGER)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)


@pytest.fixture
def buffer() -> Iterator[LogBuffer]:
    made = LogBuffer()
    logging.getLogger(LOGGER).addHandler(made)
    yield made
    logging.getLogger(LOGGER).removeHandler(made)


def test_a_run_is_told_from_its_enrolment_to_its_end(config) -> None:  # noqa: F811
    script = Script()
    script.items.extend(item(number) for number in range(2))
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        wait_for(lambda: len(script.reports) == 2)
        wait_for(lambda: script.log)
        run.agent.stop()
        assert run.ended()
    messages = [line.message for line in script.log]
    assert "enrolled as" in messages[0]
    assert sum("% of it measuring" in message for message in messages) == 2
    assert messages[-1] == "drained"
    assert len(messages) == len(set(messages))
    assert not [handler for handler in logging.getLogger(LOGGER).handlers if isinstance(handler, LogBuffer)]


def test_a_server_that_takes_no_logs_is_asked_once(config) -> None:  # noqa: F811
    script = Script(status={"/v1/agents/log": 404})
    script.items.extend(item(number) for number in range(2))
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        wait_for(lambda: len(script.reports) == 2)
        wait_for(lambda: "/v1/agents/log" in script.requests)
        run.agent.stop()
        assert run.ended()
        assert run.error is None
    assert script.requests.count("/v1/agents/log") == 1


@pytest.mark.anyio
async def test_lines_wait_for_an_unavailable_server_and_are_bounded(buffer: LogBuffer) -> None:
    script = Script(status={"/v1/agents/log": 503})
    with ScriptedServer(script) as server:
        async with AgentClient(server.url) as client:
            client.use(CREDENTIAL)
            sender = LogSender(client, buffer)
            for number in range(MAX_LOG_LINES + 3):
                _log.info("line %d %s", number, "x" * MAX_LOG_TEXT)
            await sender.send()
            assert len(buffer.peek()) == MAX_LOG_LINES
            assert script.log == []
            script.status.clear()
            await sender.send()
            await sender.send()
    assert len(script.log) == MAX_LOG_LINES
    assert script.log[0].message.startswith("line 3 ")
    assert {len(line.message) for line in script.log} == {MAX_LOG_TEXT}
    assert buffer.peek() == ()


@pytest.mark.anyio
async def test_what_another_thread_logs_wakes_the_sender(buffer: LogBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SEND_INTERVAL_S", 0.01)
    script = Script()
    with ScriptedServer(script) as server:
        async with AgentClient(server.url) as client:
            client.use(CREDENTIAL)
            running_ = asyncio.create_task(LogSender(client, buffer).run())
            try:
                for message in ("first", "second"):
                    threading.Thread(target=_log.warning, args=(message,)).start()
                    await asyncio.to_thread(wait_for, partial(has_come, script, message))
            finally:
                running_.cancel()
    assert [(line.level, line.message) for line in script.log] == [("warning", "first"), ("warning", "second")]


def has_come(script: Script, message: str) -> bool:
    return message in [line.message for line in script.log]


def test_a_token_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\r\n", encoding="utf-8-sig")
    assert credential.read_token(tmp_path / "token") == TOKEN


def test_a_token_comes_by_standard_input_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN} \n"))
    assert credential.read_token(Path("-")) == TOKEN
    with pytest.raises(InvalidInput, match="no enrolment token"):
        credential.read_token(Path("-"))  # it has been read
