"""Migrations: what they build is what the tables say, on both databases, however many start at once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from simulated_agent import principal
from sqlalchemy import Enum, String, bindparam, inspect, literal, select, text, update
from sqlalchemy.exc import IntegrityError

from edgefront.core.services.jobs import law
from edgefront.core.store.database import MIGRATIONS, Database
from edgefront.core.store.tables import Base, Device, Evaluation, WantedRefit
from edgefront.core.store.tables.base import Json, UtcDateTime

ROOT = MIGRATIONS.parent


def _alembic(database: Database) -> Config:
    config = Config(str(ROOT / "alembic.ini"), stdout=io.StringIO())
    config.cmd_opts = None
    config.attributes["url"] = database.url.render_as_string(hide_password=False)
    return config


def test_nothing_is_missing_from_the_migrations(database: Database) -> None:
    command.check(_alembic(database))
    assert database.is_current()


def test_no_other_state_can_be_stored(database: Database) -> None:
    """Alembic compares no CHECKs, and on SQLite a migration that rebuilds a table may lose them."""
    columns = [column for table in Base.metadata.sorted_tables for column in table.c if isinstance(column.type, Enum)]
    assert len(columns) >= 9
    for column in columns:
        (check,) = (
            constraint["sqltext"]
            for constraint in inspect(database.engine).get_check_constraints(column.table.name)
            if constraint["name"] == f"ck_{column.table.name}_{column.name}"
        )
        assert re.findall(r"'(\w+)'", check) == column.type.enums
    now = datetime.now(timezone.utc)
    device = Device(name="a", device_class="c", owner="o", facts={}, protocol_version=1, enrolled_at=now)
    with database.write() as session:
        session.add(device)
    retired = update(Device).values(state=literal("retired", String))
    with database.engine.begin() as connection, pytest.raises(IntegrityError, match="ck_device_state"):
        connection.execute(retired)


def test_migrating_again_changes_nothing(database: Database) -> None:
    database.migrate()
    assert set(inspect(database.engine).get_table_names()) == {*Base.metadata.tables, "alembic_version"}


def test_back_and_forth(database: Database) -> None:
    config = _alembic(database)
    command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    assert not database.is_current()
    database.migrate()
    assert database.is_current()


def test_jobs_of_the_release_before_have_their_law(database: Database) -> None:
    """A database from before laws could be refined is upgraded with its rows."""
    command.downgrade(_alembic(database), "0010")
    request = {"stored_version": 2, "targets": [{}], "proxy": "quality_law"}
    with database.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO job (id, name, owner, request, request_digest, state, last_event, created_at, updated_at) "
                "VALUES ('job_1', 'old', 'ann', :request, '', 'finished', 0, :now, :now)"
            ).bindparams(bindparam("request", type_=Json), bindparam("now", type_=UtcDateTime())),
            {"request": request, "now": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        )
    database.migrate()
    assert database.is_current()
    view = law.law_view(database, principal(database), "job_1")
    assert view.law is not None
    assert (view.law.law, view.moving_to, view.newer) == ("lts-gpt2-wikitext103", None, ())


def test_refined_laws_and_scores_keep_what_they_are_compared_by(database: Database) -> None:
    command.downgrade(_alembic(database), "0034")
    json, now = bindparam("details", type_=Json), bindparam("now", type_=UtcDateTime())
    details = {"manner": "0123456789abcdef", "seed": 3}
    with database.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO quality_refit (manner, wanted_at) VALUES ('0123456789abcdef', :now)").bindparams(now),
            {"now": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        )
        for identifier, values in (("evl_1", details), ("evl_2", {"seed": 3})):
            connection.execute(
                text(
                    "INSERT INTO evaluation (id, digest, dataset, split, metric, value, details, created_at) "
                    "VALUES (:id, 'd', 'letters', 'validation', 'perplexity', 2.0, :details, :now)"
                ).bindparams(json, now),
                {"id": identifier, "details": values, "now": datetime(2026, 1, 1, tzinfo=timezone.utc)},
            )
    database.migrate()
    with database.read() as session:
        assert session.scalars(select(WantedRefit.comparability_key)).all() == ["0123456789abcdef"]
        assert session.get_one(Evaluation, "evl_1").details == {"comparability_key": "0123456789abcdef", "seed": 3}
        assert session.get_one(Evaluation, "evl_2").details == {"seed": 3}
    command.downgrade(_alembic(database), "0034")
    with database.engine.begin() as connection:
        statement = text("SELECT details FROM evaluation ORDER BY id").columns(details=Json)
        assert connection.scalars(statement).all() == [details, {"seed": 3}]
    database.migrate()


def test_a_device_marked_by_the_release_before_is_marked_still(database: Database) -> None:
    command.downgrade(_alembic(database), "0025")
    with database.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO device (id, name, device_class, owner, state, facts, protocol_version, enrolled_at, "
                "busy_s, measuring_s, drift) "
                "VALUES ('dev_1', 'old', 'pi', 'ann', 'active', :facts, 1, :now, 0, 0, 'it is slower')"
            ).bindparams(bindparam("facts", type_=Json), bindparam("now", type_=UtcDateTime())),
            {"facts": {}, "now": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        )
    database.migrate()
    with database.read() as session:
        assert session.get_one(Device, "dev_1").drift == {"cpu": "it is slower"}
    command.downgrade(_alembic(database), "0025")
    with database.engine.begin() as connection:
        assert connection.scalar(text("SELECT drift FROM device")) == "it is slower"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_several_may_start_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, open_database: Callable[..., Database]
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
        command.downgrade(_alembic(open_database(url)), "base")
    failures: list[BaseException] = []

    def start() -> None:
        try:
            database.migrate()
        except BaseException as error:
            failures.append(error)

    database = open_database(url)
    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert database.is_current()


@pytest.mark.slow
def test_migrations_do_not_depend_on_the_folder_one_is_in(tmp_path: Path) -> None:
    code = f"from edgefront.core.store.database import Database; d = Database('sqlite:///{tmp_path}/x.db'); d.migrate()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (tmp_path / "x.db").exists()
