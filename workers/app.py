"""The Celery application: `celery --app workers.app worker --beat` for a server, `workers.embedded` in one process.

Tasks are short, idempotent and may run twice or never: the database rows are the truth, and the sweep that runs every
few seconds, and whenever a worker starts, finds what was not done. So nothing is acknowledged late, retried by Celery
or kept as a result.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, signals

from core.services.dispatch import queue_name, sender, transport_options
from core.services.settings import Settings
from core.services.tasks import SWEEP
from core.store.database import Database
from workers.tasks import register


def create_celery(settings: Settings, database: Database | None = None) -> Celery:
    """A Celery application with its tasks; opens a database of its own unless one is given."""
    app = Celery("edgefront", broker=settings.broker.url, set_as_current=False)
    queue = queue_name(settings)
    app.conf.update(
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_default_queue=queue,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=transport_options(settings),
        timezone="UTC",
        beat_schedule={
            "sweep": {
                "task": SWEEP,
                "schedule": settings.leases.sweep_s,
                # Nobody works: then one sweep at the end is enough, not one for each beat.
                "options": {"expires": max(1.0, settings.leases.sweep_s), "queue": queue},
            }
        },
    )
    register(app, database or _opened(settings))
    app.edgefront_settings = settings
    return app


def _opened(settings: Settings) -> Database:
    return Database(settings.database_url, send=sender(settings), pool_size=settings.database.pool_size)


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _sweep_on_start(sender: Any, **_: Any) -> None:
    app = sender.app
    if hasattr(app, "edgefront_settings"):
        app.send_task(SWEEP, queue=app.conf.task_default_queue, ignore_result=True)


def __getattr__(name: str) -> Any:
    # Made when Celery's command asks for it, so that importing this module reads no settings.
    if name == "app":
        app = create_celery(Settings())
        globals()["app"] = app
        return app
    raise AttributeError(name)
