"""Fixtures of the whole suite: real databases, migrated once and copied for each test, and a real Redis."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import URL, make_url

import servers
from core.store.database import Database

# ONNX Runtime would report from a thread that it starts on import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# One profile for everyone: no deadlines (shared machines are noisy), and failures that can be repeated.
settings.register_profile(
    "edgefront", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("edgefront")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    with servers.postgres() as url:
        yield make_url(url)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.redis_server() as url:
        yield url


def _administer(server: URL, *statements: str) -> None:
    conninfo = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgres_template(postgres_server: URL) -> Iterator[str]:
    """A migrated, empty database that tests are cloned from."""
    name = f"edgefront_test_{uuid.uuid4().hex[:12]}"
    _administer(postgres_server, f'CREATE DATABASE "{name}"')
    try:
        _migrate(postgres_server.set(database=name).render_as_string(hide_password=False))
        yield name
    finally:
        _administer(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


def _migrate(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.dispose()


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    path = tmp_path / "edgefront.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres_server: URL, postgres_template: str) -> Iterator[str]:
    name = f"{postgres_template}_{uuid.uuid4().hex[:8]}"
    _administer(postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"')
    yield postgres_server.set(database=name).render_as_string(hide_password=False)
    _administer(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database: each test that asks for it runs on SQLite and on Postgres."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def open_database() -> Iterator[Callable[..., Database]]:
    """Opens databases and closes them at the end: `open_database(url, send=…)`."""
    opened: list[Database] = []

    def opener(url: str, **kwargs: object) -> Database:
        opened.append(Database(url, **kwargs))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for database in opened:
        database.dispose()


@pytest.fixture
def database(database_url: str, open_database: Callable[..., Database]) -> Database:
    """A `Database` on SQLite and on Postgres, whose sent tasks go nowhere."""
    return open_database(database_url)
