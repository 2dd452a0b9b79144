"""Sends tasks to the broker, for processes that run none themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Send = Callable[[str, dict[str, Any]], None]


def sender(broker_url: str) -> Send:
    """A `send(task_name, kwargs)` for `Database(url, send=...)`.

    It never raises: the commit stands before anything is sent, so a broker that is away costs a log line, and the
    sweep finds what was not sent. With `memory://` the message reaches the worker of this process.
    """
    raise NotImplementedError
