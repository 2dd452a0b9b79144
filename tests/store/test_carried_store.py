"""A database of an earlier release, with a finished job, one under way, a paused one and a training, is carried over.

`tests/golden/store_0005.sql.gz` was written by that release (schema 0005): SQLite's own dump of it.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import simulated_agent as simulated
from simulated_agent import SimulatedAgent, by_size
from simulated_pool import Pool, settings_for
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs.frontier import frontier_view
from edgefront.core.services.measuring import reports
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Event, Job, Launch, Measurement, Target, Training
from edgefront.core.wire.agent import LaunchReport, ReportRequest

DUMP = Path(__file__).parent.parent / "golden" / "store_0005.sql.gz"
ADMIN = Principal("key_admin", "admin", "admin", "admin")


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture
def service(url: str, open_database: Callable[..., Database]) -> Service:
    database = open_database(url)
    assert not database.is_current()
    database.migrate()
    carried = Service(database)
    carried.user = ADMIN
    return carried


def job_named(service: Service, name: str) -> str:
    with service.database.read() as session:
        return session.scalars(select(Job.id).where(Job.name == name)).one()


def test_a_finished_job_opens_as_it_was(service: Service) -> None:
    job = service.get(job_named(service, "finished"))
    (target,) = job.targets
    assert (job.state, target.state, target.candidates, target.settled) == ("finished", "finished", 7, 7)
    with service.database.read() as session:
        view = frontier_view(session, ADMIN, job.id)
    assert len(view.points) == target.frontier_size > 0
    assert view.hypervolume == target.hypervolume > 0


def test_results_that_an_agent_held_are_reported_and_the_job_finishes(service: Service) -> None:
    job = job_named(service, "under way")
    assert service.get(job).state == "running"
    with service.database.read() as session:
        held = list(session.scalars(select(Launch).where(Launch.state == "leased")))
        described = {row.id: row.architecture for row in session.scalars(select(Measurement))}
    assert len(held) == 2
    told = [
        LaunchReport(
            launch_id=launch.id,
            fence=launch.fence,
            result=by_size()(Architecture.parse(described[launch.measurement_id]), MeasurementProtocol(), 0),
        )
        for launch in held
    ]
    with service.database.write() as session:
        now = service.database.now(session)
        answer = reports.accept(session, str(held[0].device_id), ReportRequest(reports=tuple(told)), now)
    assert [receipt.outcome for receipt in answer.receipts] == ["accepted", "accepted"]
    with service.database.read() as session:
        (target_id,) = session.scalars(select(Target.id).where(Target.job_id == job))
    service.inbox.append(target_id)
    service.run(SimulatedAgent(service.database, by_size(noise=0.02)))
    ended = service.get(job)
    assert (ended.state, ended.targets[0].settled) == ("finished", ended.targets[0].planned)
    with service.database.read() as session:
        numbers = list(session.scalars(select(Event.number).where(Event.job_id == job).order_by(Event.number)))
    assert numbers == list(range(1, len(numbers) + 1))


def test_int8_of_eight_bits_is_shown_and_not_measured_further(service: Service) -> None:
    old = job_named(service, "int8")
    (target,) = service.get(old).targets
    assert target.protocol.weights == "int8_8bit"
    service.act("resume", old)
    facts = simulated.facts().model_dump(mode="json")
    for runtime in facts["runtimes"]:
        runtime["numbers"] = {"cpu": ["float32", "int8"]}
    agent = SimulatedAgent(service.database, device_facts=simulated.DeviceFacts.model_validate(facts))
    other = job_named(service, "under way")
    service.act("cancel", other)
    assert service.run(agent) == 0
    (target,) = service.get(old).targets
    assert target.state == "baselines"
    assert "int8_8bit" in target.note
    new = service.submit(
        request(
            name="new",
            seed=9,
            targets=[{"device_class": simulated.CLASS, "protocol": {"weights": "int8"}}],
            algorithm={"name": "lts", "settings": {"iterations": 1, "population": 4}},
        )
    )
    assert service.run(agent) > 0
    assert service.get(new.id).state == "finished"
    with service.database.read() as session:
        digests = {
            session.get_one(Measurement, row.measurement_id).protocol_digest: row.state
            for row in session.scalars(select(Launch).where(Launch.target_id == target.id))
        }
    assert set(digests) == {target.protocol.digest} != {MeasurementProtocol(weights="int8").digest}


@pytest.mark.slow
def test_a_training_is_carried_over_and_finished(service: Service, url: str, tmp_path: Path) -> None:
    pool = Pool(service.database, settings_for(url, tmp_path / "home"))
    pool.user = ADMIN
    with service.database.read() as session:
        (training,) = session.scalars(select(Training.id))
    assert pool.get(training).state == "queued"
    try:
        assert pool.start() == 1
        assert pool.until_state(training, "done", "failed").state == "done"
    finally:
        pool.end()
