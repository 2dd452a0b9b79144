"""A Celery bootstep that requests a sweep when the worker has connected to the broker, and every few seconds then."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps

from edgefront.core.services.tasks import SWEEP

_log = logging.getLogger(__name__)


class Sweeps(bootsteps.StartStopStep):  # type: ignore[misc]
    """Is started by Celery with every connection to the broker, so that work delayed by an outage continues at once.

    Its messages expire when the next one is due, so a worker that was busy sweeps once, not once per message. Several
    workers sweep more often than one, which is harmless.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._entry: Any = None

    def start(self, consumer: Any) -> None:
        interval_s = consumer.app.conf.edgefront_sweep_s
        self._ask(consumer)
        self._entry = consumer.timer.call_repeatedly(interval_s, self._ask, (consumer, interval_s))

    def stop(self, consumer: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _ask(self, consumer: Any, interval_s: float | None = None) -> None:
        app = consumer.app
        try:
            app.send_task(
                SWEEP,
                queue=app.conf.task_default_queue,
                expires=None if interval_s is None else max(1.0, interval_s),
                retry=False,
                ignore_result=True,
            )
        except Exception as error:  # transports raise many types; Celery reconnects, and starts this again
            _log.warning("no sweep could be requested: %s", error)
