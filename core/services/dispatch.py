"""Sends tasks to the broker, for processes that run none themselves."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import TRAIN

Send = Callable[[str, dict[str, Any]], None]

PAUSE_S = 5.0
"""After a failure nothing is tried for so long: a broker that does not answer must not slow every request down."""

REDIS_OPTIONS = {"socket_connect_timeout": 2.0, "socket_timeout": 10.0, "socket_keepalive": True}
MEMORY_OPTIONS = {"polling_interval": 0.01}

_log = logging.getLogger(__name__)


def queue_name(settings: Settings) -> str:
    """The queue of this installation's tasks.

    The memory transport is one for the whole process, so its queues are told apart by the database they are about.
    """
    if not settings.embedded:
        return "edgefront"
    return f"edgefront-{hashlib.sha256(settings.database_url.encode()).hexdigest()[:12]}"


def training_queue(settings: Settings, queue: str) -> str:
    """The queue of trainings that need such a worker (one of `tasks.TRAIN_QUEUES`)."""
    return f"{queue_name(settings)}-train-{queue}"


def queue_of(settings: Settings, task: str, arguments: dict[str, Any]) -> str:
    """Where a task is sent to."""
    return training_queue(settings, arguments["queue"]) if task == TRAIN else queue_name(settings)


def transport_options(settings: Settings) -> dict[str, Any]:
    return dict(MEMORY_OPTIONS if settings.embedded else REDIS_OPTIONS)


def sender(settings: Settings) -> Send:
    """A `send(task_name, kwargs)` for `Database(url, send=...)`.

    It never raises: the commit stands before anything is sent, so a broker that is away costs a log line, and the
    sweep finds what was not sent. With `memory://` the message reaches the worker of this process.
    """
    return _Sender(settings)


class _Sender:
    def __init__(self, settings: Settings) -> None:
        # Celery takes long to load: only those who send pay for it.
        from celery import Celery

        self._settings = settings
        self._app = Celery("edgefront", broker=settings.broker.url, set_as_current=False)
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            broker_transport_options=transport_options(settings),
            broker_connection_timeout=2,
        )
        self._lock = threading.Lock()
        self._silent_until = 0.0

    def __call__(self, task: str, arguments: dict[str, Any]) -> None:
        if time.monotonic() < self._silent_until:
            _log.debug("%s %s not sent: the broker was away a moment ago", task, arguments)
            return
        try:
            queue = queue_of(self._settings, task, arguments)
            self._app.send_task(task, kwargs=arguments, queue=queue, retry=False, ignore_result=True)
        except Exception as error:  # whatever a transport raises: the sweep catches up
            with self._lock:
                self._silent_until = time.monotonic() + PAUSE_S
            _log.warning("task %s could not be sent, the sweep will catch up: %s", task, error)
