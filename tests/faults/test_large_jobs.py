"""Jobs of any size can be paused, cancelled and deleted, and are stored in parts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from databases import ON_BOTH
from leasing import Leasing
from simulated_agent import SimulatedAgent, by_size, principal
from simulated_service import Service, request
from sqlalchemy import func, insert, select, text, true, update

from edgefront.core.services.jobs import lifecycle
from edgefront.core.services.measuring.queries import leases
from edgefront.core.services.measuring.stranded import return_stranded
from edgefront.core.services.search import advance, stalled
from edgefront.core.services.search.computing import WAIT, Computed, ComputeStep, Step
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Generation, Job, Launch, Lease, Measurement, Target
from edgefront.workers.work import compute_and_store, next_compute_step

MANY = 66_000
"""More than a statement of Postgres can have parameters (65,535)."""


def fill(leasing: Leasing) -> tuple[str, str]:
    """A running job with many launches that wait, all copies of the first; ids of the job and its target."""
    target_id = leasing.target(planned=MANY)
    leasing.launches(1, target_id)
    numbers = func.generate_series(2, MANY).table_valued("value").render_derived()
    number = numbers.c.value
    name = func.lpad(number.concat(""), 64, "0")
    changed = {"id": func.right(name, 8), "measurement_id": func.right(name, 8), "number": number, "digest": name}
    with leasing.write() as session:
        for table in (Measurement, Candidate, Launch):
            columns = [column for column in table.__table__.columns if column.computed is None]
            copies = select(*(changed.get(column.name, column) for column in columns)).join_from(
                table.__table__, numbers, true()
            )
            session.execute(insert(table.__table__).from_select([column.name for column in columns], copies))
        # As autovacuum does, which is off here: a plan made without statistics may read all candidates for each launch.
        session.execute(text("ANALYZE measurement, candidate, launch"))
        target = session.get_one(Target, target_id)
        target.candidates = MANY
        return target.job_id, target_id


def states(leasing: Leasing) -> dict[str, int]:
    with leasing.database.read() as session:
        rows = session.execute(select(Launch.state, func.count()).group_by(Launch.state))
        return {row[0]: row[1] for row in rows}


@pytest.fixture
def large(postgres_url: str, open_database: Callable[..., Database]) -> Leasing:
    return Leasing(open_database(postgres_url))


@pytest.mark.timeout(900)
def test_any_number_of_launches_can_be_returned_withdrawn_and_deleted(large: Leasing) -> None:
    """Leases that ended while no sweep ran, and the launches of a job that is paused, cancelled or deleted."""
    job_id, target_id = fill(large)
    device, user = large.device(), principal(large.database, "ada")
    with large.write() as session:
        session.add(Lease(id="lse_1", device_id=device, created_at=large.now, expires_at=large.now))
        session.flush()
        session.execute(update(Launch.__table__).values(state="leased", lease_id="lse_1", device_id=device))
    large.tick(100)
    for part in (leases.end_expired, return_stranded):
        with large.write() as session:
            part(session, large.now)
    assert states(large) == {"wanted": MANY}
    with suppress(Undone), large.write() as session:
        lifecycle.delete_job(session, user, job_id, large.now)
        assert [session.scalar(select(func.count()).select_from(table)) for table in (Launch, Candidate)] == [0, 0]
        raise Undone
    with large.write() as session:
        assert lifecycle.pause_job(session, user, job_id, large.now).state == "paused"
    assert states(large) == {}
    with large.write() as session:
        assert lifecycle.cancel_job(session, user, job_id, large.now).state == "cancelled"
    with large.database.read() as session:
        cancelled = select(func.count()).select_from(Candidate).where(Candidate.state == "cancelled")
        assert session.scalar(cancelled) == MANY
        target = session.get_one(Target, target_id)
        assert (target.settled, target.candidates) == (0, MANY)  # none was evaluated
        assert session.get_one(Job, job_id).last_event >= MANY


class Undone(Exception):
    """Takes back what a transaction did."""


# Parts ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(advance, "STORE_BATCH", 4)
    return 4


def searching(service: Service) -> tuple[str, ComputeStep]:
    """A job whose baselines are measured; its target, and the step that asks for its first generation."""
    agent = SimulatedAgent(service.database, by_size())
    made = service.submit()
    while agent.step():
        pass
    service.inbox.clear()
    step = next_compute_step(service.database, made.targets[0].id)
    assert step is not None
    return made.id, step


def stored(service: Service, target_id: str) -> tuple[int, int | None]:
    with service.database.read() as session:
        row = session.scalars(
            select(Generation).where(Generation.target_id == target_id).order_by(Generation.number.desc())
        ).first()
        assert row is not None
        return row.stored, row.proposals


def store_part(service: Service, step: ComputeStep, computed: Computed) -> Step:
    with service.database.write() as session:
        return advance.store(session, step, computed, service.database.now(session))


@pytest.mark.usefixtures("in_parts")
def test_proposals_are_stored_in_parts(database: Database) -> None:
    service = Service(database)
    job_id, step = searching(service)
    computed, stored_part, seen = step.compute(), Step(compute=step), list[tuple[int, int | None]]()
    while stored_part.compute is not None:
        stored_part = store_part(service, step, computed)
        seen.append(stored(service, step.target_id))
    assert seen == [(4, 10), (8, 10), (10, 10)]
    service.run(SimulatedAgent(database, by_size()))
    view = service.get(job_id)
    assert (view.state, view.targets[0].candidates) == ("finished", 3 + 18)


@pytest.mark.parametrize("measured", [False, True])
def test_a_worker_that_dies_between_two_parts_loses_nothing(database: Database, in_parts: int, measured: bool) -> None:
    """The rest is proposed as it would have been, by whoever takes it up."""
    service = Service(database)
    job_id, step = searching(service)
    computed = step.compute()
    assert store_part(service, step, computed).compute is step
    assert stored(service, step.target_id) == (in_parts, 10)
    expected = [proposed.proposal.architecture.digest for proposed in computed.proposed]
    agent = SimulatedAgent(database, by_size())
    if measured:
        while agent.step():
            pass
    with database.write() as session:
        now = database.now(session)
        assert stalled.stalled(session, now) == [step.target_id]
        again = advance.advance(session, step.target_id, now).compute
    assert again is not None
    assert again.number == 0
    compute_and_store(database, again)
    service.run(agent)
    assert service.get(job_id).state == "finished"
    with database.read() as session:
        query = select(Candidate.digest).where(Candidate.target_id == step.target_id, Candidate.generation == 0)
        assert list(session.scalars(query.order_by(Candidate.number))) == expected


@ON_BOTH
def test_a_job_that_is_paused_between_two_parts_goes_on(database: Database, in_parts: int) -> None:
    service = Service(database)
    job_id, step = searching(service)
    computed = step.compute()
    assert store_part(service, step, computed).compute is step
    service.act("pause", job_id)
    assert store_part(service, step, computed) == WAIT
    assert stored(service, step.target_id) == (in_parts, 10)
    service.act("resume", job_id)
    service.run(SimulatedAgent(database, by_size()))
    view = service.get(job_id)
    assert (view.state, view.targets[0].candidates) == ("finished", 3 + 18)


# Pauses --------------------------------------------------------------------------------------------------------------


def waiting(service: Service) -> tuple[str, str]:
    """A job of which a generation of 10 waits; its id and its target's."""
    job_id, step = searching(service)
    assert not compute_and_store(service.database, step)
    return job_id, step.target_id


def launches(service: Service) -> dict[str, int]:
    with service.database.read() as session:
        rows = session.execute(select(Launch.state, func.count()).group_by(Launch.state))
        return {row[0]: row[1] for row in rows}


def test_pauses_leave_no_rows_of_launches(database: Database) -> None:
    service = Service(database)
    job_id, _ = waiting(service)
    before = launches(service)
    assert before["wanted"] == 10
    for _ in range(5):
        service.act("pause", job_id)
        assert launches(service) == {"done": before["done"]}
        service.act("resume", job_id)
        service.work()
        assert launches(service) == before
    service.run(SimulatedAgent(database, by_size()))
    assert service.get(job_id).state == "finished"


def test_a_launch_that_a_device_has_had_is_kept_as_cancelled(database: Database) -> None:
    """Its report may still come."""
    service = Service(database)
    job_id, _ = waiting(service)
    agent = SimulatedAgent(database, by_size())
    agent.lease(3)
    service.act("pause", job_id)
    assert launches(service)["cancelled"] == 3
    service.act("resume", job_id)
    service.work()
    assert launches(service)["wanted"] == 10


def test_launches_are_made_again_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "CATCH_UP_BATCH", 4)
    service = Service(database)
    job_id, target_id = waiting(service)
    with database.read() as session:
        order = list(
            session.scalars(select(Launch.measurement_id).where(Launch.state == "wanted").order_by(Launch.turn))
        )
    service.act("pause", job_id)
    service.act("resume", job_id)
    seen = []
    more = True
    while more:
        with database.write() as session:
            more = advance.advance(session, target_id, database.now(session)).more
        seen.append((launches(service)["wanted"], more))
    assert seen == [(4, True), (8, True), (10, False)]
    with database.read() as session:
        again = list(
            session.scalars(select(Launch.measurement_id).where(Launch.state == "wanted").order_by(Launch.turn))
        )
    assert again == order


def test_results_that_came_meanwhile_are_taken_in_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of measurements that came to an end while a crash kept them from their candidates."""
    monkeypatch.setattr(advance, "CATCH_UP_BATCH", 4)
    service = Service(database)
    job_id, target_id = waiting(service)
    with database.write() as session:
        session.execute(update(Measurement).where(Measurement.state == "wanted").values(state="failed", reason="no"))
    settled = []
    for _ in range(3):
        with database.write() as session:
            assert advance.advance(session, target_id, database.now(session)).more
        settled.append(service.get(job_id).targets[0].settled)
    assert settled == [7, 11, 13]


def test_jobs_that_are_submitted_and_deleted_leave_no_rows(database: Database) -> None:
    service = Service(database)
    SimulatedAgent(database, by_size())
    kept = service.submit()

    def rows() -> list[int]:
        with database.read() as session:
            tables = (Measurement, Launch, Candidate, Target)
            return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]

    before = rows()
    for seed in range(3):
        service.act("delete", service.submit(request(seed=seed)).id)  # measurements of its own
        service.act("delete", service.submit().id)  # those of the other
    assert rows() == before
    service.run(SimulatedAgent(database, by_size()))
    assert service.get(kept.id).state == "finished"
    measured = rows()[0]
    service.act("delete", kept.id)
    assert rows()[0] == measured, "what was measured is kept"


def test_a_measurement_that_goes_while_it_is_asked_for_is_made_again(
    postgres_url: str, open_database: Callable[..., Database]
) -> None:
    """A job is deleted while another comes to share its measurements."""
    service = Service(open_database(postgres_url))
    SimulatedAgent(service.database, by_size())
    first = service.submit()
    other = service.create()
    with ThreadPoolExecutor(1) as another:
        with service.database.write() as session:
            lifecycle.delete_job(session, service.user, first.id, service.database.now(session))
            moved = another.submit(service.work)
            session.execute(text("SELECT pg_sleep(0.2)"))
        moved.result(60)
    view = service.get(other.id)
    assert (view.state, view.targets[0].candidates) == ("running", 3)
    service.run(SimulatedAgent(service.database, by_size()))
    assert service.get(other.id).state == "finished"
