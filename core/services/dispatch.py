"""Sends background tasks to the broker."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from typing import TYPE_CHECKING

from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import PROCESS_RESULTS, SERVED, TRAIN, WORK
from edgefront.core.services.work import REQUESTED_BY
from edgefront.core.services.work import queue_of as queue_of_work
from edgefront.core.store.database import Send
from edgefront.core.store.sql import Document

if TYPE_CHECKING:
    from celery import Celery

PROCESS_INTERVAL_S = 0.4
"""Minimum interval between two `process_results` tasks of one target: one task processes many reports at once."""

PAUSE_S = 5.0
"""Seconds without attempts to send after a failure, so that an unreachable broker does not slow down every request."""

REDIS_OPTIONS = {"socket_connect_timeout": 2.0, "socket_timeout": 10.0, "socket_keepalive": True}
MEMORY_OPTIONS = {"polling_interval": 0.01}

_log = logging.getLogger(__name__)


def queue_name(settings: Settings) -> str:
    """Returns the default queue's name. The name in an embedded service contains a hash of the database URL, because
    several embedded services in one process share the broker `memory://`.
    """
    if not settings.embedded:
        return "edgefront"
    return f"edgefront-{hashlib.sha256(settings.database_url.encode()).hexdigest()[:12]}"


def work_queue(settings: Settings, queue: str) -> str:
    """Returns the full name of a queue of work (`work.Queue.name`)."""
    return f"{queue_name(settings)}-{queue}" if queue else queue_name(settings)


def training_queue(settings: Settings, queue: str) -> str:
    """Returns the full name of a queue of trainings (one of `tasks.TRAIN_QUEUES`)."""
    return f"{queue_name(settings)}-train-{queue}"


def queue_of(settings: Settings, task: str, arguments: Document) -> str:
    """Returns the full name of the queue that a task with these arguments is sent to."""
    if task == TRAIN:
        return training_queue(settings, arguments["queue"])
    if task in (WORK, SERVED):
        return work_queue(settings, arguments["queue"])
    return work_queue(settings, queue_of_work(REQUESTED_BY[task]).name if task in REQUESTED_BY else "")


def broker_app(settings: Settings) -> Celery:
    """Returns a Celery application that uses the broker in `settings`, for API, workers and readiness check."""
    # Slow to import, so only processes that send tasks import it.
    from celery import Celery

    app = Celery("edgefront", broker=settings.broker.url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_transport_options=MEMORY_OPTIONS if settings.embedded else REDIS_OPTIONS,
    )
    return app


def broker_answers(settings: Settings, timeout_s: float) -> bool:
    """Whether the broker accepts a connection within the timeout."""
    options = {"socket_connect_timeout": timeout_s, "socket_timeout": timeout_s}
    try:
        transport = broker_app(settings).connection(transport_options=options).transport
        transport.close_connection(transport.establish_connection())  # one attempt
    except Exception as error:  # transports raise many types
        _log.warning("the broker does not answer: %s", error)
        return False
    return True


def sender(settings: Settings) -> Send:
    """Returns a function `send(task_name, kwargs)` for `Database(url, send=...)`.

    The function never raises, because the transaction has already committed. If the broker is unavailable, the failure
    is logged and the sweep sends the task later. A broker URL `memory://` reaches the worker of this process.
    """
    return _Sender(settings)


class _Throttle:
    """Limits equal messages to one per `every_s` seconds: sends the first at once and merges the later ones."""

    def __init__(self, send: Send, every_s: float) -> None:
        self._send, self._every_s = send, every_s
        self._lock = threading.Lock()
        self._sent_at: dict[str, float] = {}
        self._waiting: set[str] = set()

    def __call__(self, task: str, arguments: Document) -> None:
        key = json.dumps([task, arguments], sort_keys=True)
        now = time.monotonic()
        with self._lock:
            if key in self._waiting:
                return
            wait_s = self._sent_at.get(key, -self._every_s) + self._every_s - now
            if wait_s > 0:
                self._waiting.add(key)
                timer = threading.Timer(wait_s, self._later, (key, task, arguments))
                timer.daemon = True
                timer.start()
                return
            # Drops entries of messages that were sent long ago.
            self._sent_at = {other: at for other, at in self._sent_at.items() if now - at < self._every_s} | {key: now}
        self._send(task, arguments)

    def _later(self, key: str, task: str, arguments: Document) -> None:
        with self._lock:
            self._waiting.discard(key)
            self._sent_at[key] = time.monotonic()
        self._send(task, arguments)


class _Sender:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = broker_app(settings)
        self._app.conf.broker_connection_timeout = 2
        self._lock = threading.Lock()
        self._silent_until = 0.0
        self._throttled = _Throttle(self._deliver, PROCESS_INTERVAL_S)

    def __call__(self, task: str, arguments: Document) -> None:
        (self._throttled if task == PROCESS_RESULTS else self._deliver)(task, arguments)

    def _deliver(self, task: str, arguments: Document) -> None:
        if time.monotonic() < self._silent_until:
            _log.debug("%s %s not sent: the broker was unavailable a moment ago", task, arguments)
            return
        try:
            queue = queue_of(self._settings, task, arguments)
            self._app.send_task(task, kwargs=arguments, queue=queue, retry=False, ignore_result=True)
        except Exception as error:  # transports raise many types; the sweep sends the task again
            with self._lock:
                self._silent_until = time.monotonic() + PAUSE_S
            _log.warning("task %s could not be sent; the sweep sends it again: %s", task, error)
