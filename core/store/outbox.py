"""Tasks that a transaction wants sent: delivered after its commit, dropped with it on rollback.

The rows are authoritative and a task is only a notification. A task that is lost between commit and delivery (a crash,
an unavailable broker) delays work until the next sweep, but loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

Send = Callable[[str, dict[str, Any]], None]

_KEY = "edgefront.outbox"
_log = logging.getLogger(__name__)


def enqueue(session: Session, task: str, **arguments: Any) -> None:
    """Sends `task` with `arguments` after `session` has committed. A task that is enqueued twice is sent once."""
    message = (task, arguments)
    waiting: list[tuple[str, dict[str, Any]]] = session.info.setdefault(_KEY, [])
    if message not in waiting:
        waiting.append(message)


def take(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """Removes and returns the messages of `session`, in the order in which they were enqueued."""
    waiting: list[tuple[str, dict[str, Any]]] = session.info.pop(_KEY, [])
    return waiting


def deliver(messages: list[tuple[str, dict[str, Any]]], send: Send | None) -> None:
    """Sends `messages`. If the broker is unavailable, that is logged, not raised: the transaction has committed."""
    if send is None:
        return
    for task, arguments in messages:
        try:
            send(task, arguments)
        except Exception:
            _log.warning("task %s %s could not be sent; the sweep sends it again", task, arguments, exc_info=True)
