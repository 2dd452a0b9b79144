"""Tasks that a transaction wants sent: delivered after its commit, dropped with it on rollback.

The rows are the truth and a task only says "look now", so a task that is lost between commit and delivery (a crash,
a broker that is away) delays work until the next sweep and loses nothing.
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
    """Asks that `task` be sent with `arguments` once `session` has committed. Asking twice sends once."""
    message = (task, arguments)
    waiting: list[tuple[str, dict[str, Any]]] = session.info.setdefault(_KEY, [])
    if message not in waiting:
        waiting.append(message)


def take(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """The messages that wait in `session`, in the order they were asked for; it holds none afterwards."""
    waiting: list[tuple[str, dict[str, Any]]] = session.info.pop(_KEY, [])
    return waiting


def deliver(messages: list[tuple[str, dict[str, Any]]], send: Send | None) -> None:
    """Sends `messages`. A broker that is away is logged, not raised: their transaction has committed."""
    if send is None:
        return
    for task, arguments in messages:
        try:
            send(task, arguments)
        except Exception:
            _log.warning("task %s %s could not be sent; the sweep sends it again", task, arguments, exc_info=True)
