"""Sends what the agent logs to the server, so that people read it on the device's page. Nothing else depends on it.

The newest lines are kept in memory until they are sent; they are lost with the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone

from edgefront.agents.server.client import AgentClient
from edgefront.core.errors import InvalidInput, NotFound, TooLarge
from edgefront.core.wire.agent import MAX_LOG_LINES, MAX_LOG_TEXT, Level, LogLine, LogRequest

SEND_INTERVAL_S = 15.0
"""Seconds between two requests, the same as between two heartbeats."""
LOGGER = "edgefront.agents"
"""Name of the parent logger of the agent's modules."""


class LogBuffer(logging.Handler):
    """Keeps the last lines that were logged, from any thread. `added` is called with each."""

    def __init__(self) -> None:
        super().__init__()
        self.added: Callable[[], None] = lambda: None
        self._lines: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {record.exc_info[1]}"
        self.add(_level(record.levelno), message)
        self.added()

    def add(self, level: Level, message: str) -> None:
        self._lines.append(LogLine(at=datetime.now(timezone.utc), level=level, message=message[:MAX_LOG_TEXT]))

    def peek(self) -> tuple[LogLine, ...]:
        return tuple(self._lines.copy())  # `copy` and `append` of a deque are atomic

    def drop(self, lines: tuple[LogLine, ...]) -> None:
        """Removes these lines; newer ones stay."""
        for line in lines:
            with suppress(ValueError):
                self._lines.remove(line)  # it may have made room for a new one


class LogSender:
    """Sends the lines of `buffer` while `run` runs. It stops if the server is too old to take lines."""

    def __init__(self, client: AgentClient, buffer: LogBuffer) -> None:
        self._client = client
        self._buffer = buffer
        self._server_takes_lines = True

    async def run(self) -> None:
        loop, has_lines = asyncio.get_running_loop(), asyncio.Event()
        self._buffer.added = lambda: _wake(loop, has_lines)
        try:
            while self._server_takes_lines:
                if not self._buffer.peek():
                    await has_lines.wait()
                has_lines.clear()
                await self.send()
                await asyncio.sleep(SEND_INTERVAL_S)
        finally:
            self._buffer.added = lambda: None

    async def send(self) -> None:
        """Sends all lines in one request. Those that the server cannot take now are kept."""
        lines = self._buffer.peek()
        if not lines or not self._server_takes_lines:
            return
        try:
            await self._client.log(LogRequest(lines=lines))
        except NotFound:
            self._server_takes_lines = False
        except (InvalidInput, TooLarge):
            self._buffer.drop(lines)  # the server will never take them
        except Exception:
            return  # whatever is wrong, requests for work run into it too, and log it
        else:
            self._buffer.drop(lines)


def _wake(loop: asyncio.AbstractEventLoop, has_lines: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(has_lines.set)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
