"""The Celery application: `celery --app edgefront.workers.app worker`; `workers.embedded` runs it in-process.

Tasks are short, idempotent and may run twice or never: the database rows are authoritative, and the sweep, which each
worker requests when it starts and every few seconds, finds work that was not done. So Celery's late acknowledgement,
retries, results and beat are not used.

A worker that trains also names the queues of trainings that it serves, such as
`--queues edgefront,edgefront-train-gpu` (see `core.services.tasks.TRAIN_QUEUES`).
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from edgefront.core.errors import EdgefrontError
from edgefront.core.processes.threads import switch_often
from edgefront.core.services.dispatch import queue_name, sender, transport_options
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.objects import check_store
from edgefront.core.store.database import Database
from edgefront.workers.sweeps import Sweeps
from edgefront.workers.tasks import register
from edgefront.workers.training.pickup import EndTrainings, Trainings


def create_celery(settings: Settings, database: Database | None = None) -> Celery:
    """A Celery application with its tasks; opens a database of its own unless one is given."""
    app = Celery("edgefront", broker=settings.broker.url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_default_queue=queue_name(settings),
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=transport_options(settings),
        edgefront_sweep_s=settings.leases.sweep_s,
        edgefront_settings=settings,
        timezone="UTC",
    )
    if settings.broker.url.startswith(("redis://", "rediss://")):
        app.conf.broker_transport = "edgefront.workers.reconnecting:Transport"
        app.conf.worker_consumer = "edgefront.workers.reconnecting:Consumer"
    register(app, database or open_database(settings), settings)
    app.steps["consumer"].update((Sweeps, Trainings))
    app.steps["worker"].add(EndTrainings)
    return app


def open_database(settings: Settings) -> Database:
    """The settings' database, sending its tasks to the settings' broker."""
    return Database(settings.database_url, send=sender(settings), pool_size=settings.database.pool_size)


def __getattr__(name: str) -> Any:
    # Created when Celery's command needs it, so that importing this module reads no settings.
    if name == "app":
        switch_often()
        settings = Settings()
        try:
            check_store(settings.artifact_url)
        except EdgefrontError as error:
            raise SystemExit(error.detail) from None
        app = create_celery(settings)
        globals()["app"] = app
        return app
    raise AttributeError(name)
