"""Log lines, the same in every process: time, level, logger, message, and what the process is doing.

    2026-11-29T20:11:05.123Z INFO edgefront.access: GET /v1/jobs 200 12 ms request=4f1c owner=ada

As JSON, a line is an object with the members `time`, `level`, `logger`, `message` and these facts.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Literal

LogFormat = Literal["text", "json"]

_facts: ContextVar[dict[str, str]] = ContextVar("edgefront_log_facts")


@contextmanager
def log_facts(**facts: str) -> Iterator[None]:
    """Adds facts (a request, an owner, a job) to the lines that are logged in the block, also by its threads."""
    token = _facts.set({**_facts.get({}), **facts})
    try:
        yield
    finally:
        _facts.reset(token)


def add_log_facts(**facts: str) -> None:
    """Adds facts to the lines that follow in the block of `log_facts`; without such a block, does nothing."""
    _facts.get({}).update(facts)


class LogLines(logging.Formatter):
    """Formats a record as described in the module."""

    def __init__(self, form: LogFormat = "text") -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
        facts, text = _facts.get({}), record.getMessage()
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if self._form == "json":
            line = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": text, **facts}
            return json.dumps(line | ({"error": error} if error else {}))
        said = "".join(f" {name}={value}" for name, value in facts.items())
        return f"{time} {record.levelname} {record.name}: {text}{said}" + (f"\n{error}" if error else "")


def log_to_stderr(form: LogFormat = "text", *, logger: str | None = None, level: int = logging.INFO) -> None:
    """Writes the lines of a logger (the root logger by default) to standard error, and only there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(form))
    configured = logging.getLogger(logger)
    configured.handlers[:] = [handler]
    configured.setLevel(level)
    configured.propagate = False
