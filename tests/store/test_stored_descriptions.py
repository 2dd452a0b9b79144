"""What version 0 of the description stored is the same model in version 1, found under its new digest."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import func, select

from edgefront.core.canonical import digest
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import MIGRATIONS, Database
from edgefront.core.store.tables import Artifact, Candidate, Job, Measurement, Target

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
STORED = (
    {
        "version": 0,
        "d_model": 64,
        "embedding": {"vocab_size": 100},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 128}],
    },
    {
        "version": 0,
        "d_model": 128,
        "positions": {"length": 2048, "offset": 2},
        "activation": "relu",
        "embedding": {"vocab_size": 50272, "d_embed": 64, "cutoffs": [100, 200], "div": 2},
        "blocks": [{"kind": "feed_forward", "d_inner": 512}],
    },
)
"""Canonical forms as the first release wrote them."""


def _config(database: Database) -> Config:
    config = Config(str(MIGRATIONS.parent / "alembic.ini"), stdout=io.StringIO())
    config.attributes["url"] = database.url.render_as_string(hide_password=False)
    return config


def _store(database: Database, description: dict[str, Any]) -> None:
    """A measured candidate, as the first release kept it."""
    protocol = MeasurementProtocol()
    described = {"digest": digest(description), "architecture": description, "seed": 1}
    with database.write() as session:
        job = Job(
            name="j", owner="ada", request={}, request_digest="0", state="running", created_at=NOW, updated_at=NOW
        )
        session.add(job)
        session.flush()
        target = Target(
            job_id=job.id,
            position=0,
            name="t",
            device_key="class:lab",
            protocol=protocol.model_dump(mode="json"),
            protocol_digest=protocol.digest,
            limits={},
            seed=1,
            state="searching",
        )
        measurement = Measurement(
            **described,
            device_key="class:lab",
            protocol=protocol.model_dump(mode="json"),
            protocol_digest=protocol.digest,
            state="measured",
            latency_ms=5.0,
        )
        session.add_all([target, measurement])
        session.flush()
        session.add(
            Candidate(
                **described,
                job_id=job.id,
                target_id=target.id,
                measurement_id=measurement.id,
                number=0,
                role="search",
                generation=0,
                operator="sample",
                parents=[],
                genome={},
                decoder_parameters=1,
                total_parameters=1,
                weight_bytes=4,
                flops=2,
                proxy=1.0,
                state="measured",
                created_at=NOW,
            )
        )


@pytest.mark.parametrize("description", STORED)
def test_a_stored_model_is_found_again(database: Database, description: dict[str, Any]) -> None:
    _store(database, description)  # through today's tables: going back leaves what is of version 0 already
    command.downgrade(_config(database), "0001")
    with database.write() as session:
        made = {"format": "onnx", "path": "p", "size": 1, "sha256": "s", "created_at": NOW}
        session.add(Artifact(digest=digest(description), seed=1, **made))
    database.migrate()
    parsed = Architecture.parse(description)
    assert parsed.version == 1
    assert parsed.digest != digest(description)
    with database.read() as session:
        tables: tuple[Any, ...] = (Candidate, Measurement)
        for table in tables:
            row = session.scalars(select(table)).one()
            assert row.digest == parsed.digest
            assert row.architecture == parsed.canonical
        assert session.scalars(select(Measurement.latency_ms)).one() == 5.0
        assert session.scalar(select(func.count()).select_from(Artifact)) == 0
    command.downgrade(_config(database), "0001")
    with database.read() as session:
        assert session.scalars(select(Measurement.architecture)).one() == description
        assert session.scalars(select(Measurement.digest)).one() == digest(description)


def test_going_back_leaves_what_version_0_cannot_say(database: Database) -> None:
    recurrent = Architecture.parse(
        {"d_model": 64, "positions": {"kind": "none"}, "embedding": {"vocab_size": 9}, "blocks": [{"kind": "sru"}]}
    )
    _store(database, recurrent.canonical)
    command.downgrade(_config(database), "0001")
    with database.read() as session:
        assert session.scalars(select(Measurement.architecture)).one() == recurrent.canonical
    database.migrate()
    with database.read() as session:
        assert session.scalars(select(Measurement.digest)).one() == recurrent.digest
