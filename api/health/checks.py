"""Checks of the database, its schema and the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import text

from edgefront.core.errors import Unavailable
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

BROKER_TIMEOUT_S = 2.0
_log = logging.getLogger("edgefront.api")


def _database(_settings: Settings, database: Database) -> str:
    with database.read() as session:
        session.execute(text("SELECT 1"))
    return "ok"


def _migrations(_settings: Settings, database: Database) -> str:
    return "ok" if database.is_current() else "the schema is not this release's: run alembic upgrade head"


def _broker(settings: Settings, _database: Database) -> str:
    url = settings.broker.url
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return "ok"  # the worker is in this process, or on a broker that only Celery can speak to
    try:
        with closing(
            Redis.from_url(url, socket_timeout=BROKER_TIMEOUT_S, socket_connect_timeout=BROKER_TIMEOUT_S)
        ) as client:
            client.ping()
    except (RedisError, OSError) as error:
        _log.warning("the broker does not answer: %s", error)
        return "the broker does not answer"
    return "ok"


CHECKS: dict[str, Callable[[Settings, Database], str]] = {
    "database": _database,
    "migrations": _migrations,
    "broker": _broker,
}


def run(name: str, settings: Settings, database: Database) -> str:
    """`ok`, or an error message without internal details."""
    try:
        return CHECKS[name](settings, database)
    except Unavailable:
        return "the database does not answer"
