"""Int8 measurements of weights of eight bits keep their name and digest, and never meet those of seven."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, Table, select
from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.store.database import MIGRATIONS, Database
from edgefront.core.store.tables import Device, Measurement

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD = MeasurementProtocol(weights="int8_8bit")
RUNTIME = {"runtime": "onnxruntime", "version": "1", "providers": ["cpu"], "memory_methods": ["anonymous"]}


def _config(database: Database) -> Config:
    config = Config(str(MIGRATIONS.parent / "alembic.ini"), stdout=io.StringIO())
    config.attributes["url"] = database.url.render_as_string(hide_password=False)
    return config


def _insert(session: Session, table: str, **values: Any) -> None:
    """Into a table as it was then: it has got more columns since."""
    session.execute(Table(table, MetaData(), autoload_with=session.connection()).insert().values(**values))


def _measured(session: Session, protocol: dict[str, Any], digest: str, *, seed: int) -> None:
    _insert(
        session, "measurement", id=f"mea_{seed}", digest="a" * 64, architecture={"version": 1}, seed=seed,
        device_key="class:lab", protocol=protocol, protocol_digest=digest, state="measured", launches=1, latency_ms=5.0,
    )  # fmt: skip


def _device(session: Session, database: Database) -> None:
    numbers = {"cpu": ["float32", "int8"]}
    facts = {"cores": 4, "memory_bytes": 1, "runtimes": [{**RUNTIME, "numbers": numbers}, RUNTIME]}
    now = f"{NOW:%Y-%m-%d %H:%M:%S.%f}" if database.sqlite else NOW
    _insert(
        session, "device", id="dev_1", name="bench", device_class="lab", owner="ada", state="active", facts=facts,
        protocol_version=2, enrolled_at=now, busy_s=0.0, measuring_s=0.0,
    )  # fmt: skip


def test_stored_int8_is_read_as_the_format_it_was_measured_in(database: Database) -> None:
    command.downgrade(_config(database), "0005")
    stored = {**OLD.model_dump(mode="json"), "weights": "int8"}
    full = MeasurementProtocol()
    with database.write() as session:
        _device(session, database)
        _measured(session, stored, OLD.digest, seed=1)
        _measured(session, full.model_dump(mode="json"), full.digest, seed=2)
    database.migrate()
    with database.read() as session:
        by_seed = {row.seed: row for row in session.scalars(select(Measurement))}
        assert MeasurementProtocol.model_validate(by_seed[1].protocol) == OLD
        assert OLD.digest == by_seed[1].protocol_digest != MeasurementProtocol(weights="int8").digest
        assert by_seed[2].protocol == full.model_dump(mode="json")
        runtimes = session.scalars(select(Device.facts)).one()["runtimes"]
        assert [runtime.get("numbers", {}).get("cpu", []) for runtime in runtimes] == [["float32"], []]
    command.downgrade(_config(database), "0005")
    with database.read() as session:
        assert session.scalars(select(Measurement.protocol).where(Measurement.seed == 1)).one() == stored
