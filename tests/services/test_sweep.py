"""The sweeper: silent agents, jobs that ended by a crash, targets that nobody was told of."""

from __future__ import annotations

from datetime import timedelta

from databases import ON_BOTH
from lease_world import World, done
from sqlalchemy import select

from edgefront.core.services import tasks
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.stranded import KEEP_ENDED_LEASES
from edgefront.core.store.tables import Candidate, Job, Lease, Measurement, Target, WebSession


def test_the_third_loss_fails_it_and_moves_the_job_on(world: World, sent: list[tuple[str, dict[str, object]]]) -> None:
    device, target = world.device(), world.target()
    measurement, (launch,) = world.candidate(target)
    for _ in range(3):
        world.start(device, world.claim(device).items[0])
        world.tick(world.ttl_s + 1)
        sent.clear()
        world.sweep()
    assert (world.launch(launch).state, world.launch(launch).attempts) == ("failed", 3)
    assert world.row(Measurement, measurement).state == "failed"
    (candidate,) = world.rows(Candidate)
    assert candidate.state == "failed"
    assert "3 attempts; the last: the agent was lost" in candidate.reason
    assert sent == [(tasks.ADVANCE, {"target_id": target})]
    world.sweep()
    assert world.launch(launch).attempts == 3


@ON_BOTH
def test_unneeded_launches_of_cancelled_and_deleted_jobs_are_cancelled(world: World) -> None:
    gone, deleted, running = (world.target() for _ in range(3))
    mine = world.launches(1, gone)[0]
    measurement, (shared,) = world.candidate(gone)
    world.candidate(running, measurement=measurement, launches=0)
    kept, orphan = world.launches(1, running)[0], world.launches(1, deleted)[0]
    world.set_job(gone, "cancelled")
    with world.write() as session:
        session.delete(session.get_one(Job, session.get_one(Target, deleted).job_id))
    world.sweep()
    states = [world.launch(id_).state for id_ in (mine, shared, kept, orphan)]
    assert states == ["cancelled", "wanted", "wanted", "cancelled"]


def test_stalled_targets_are_sent_for_again(world: World, sent: list[tuple[str, dict[str, object]]]) -> None:
    stalled, busy = world.target(), world.target()
    world.launches(1, busy)
    world.sweep()
    assert sent == [(tasks.ADVANCE, {"target_id": stalled})]


@ON_BOTH
def test_ended_leases_are_forgotten_in_time(world: World) -> None:
    device, target = world.device(), world.target()
    world.launches(2, target)
    first = world.claim(device, 1)
    world.report(device, (first.items[0], done()))
    second = world.claim(device, 1)
    with world.write() as session:
        demand.withdraw(session, [target], world.now)
    world.tick(world.ttl_s + 1)
    world.sweep()
    assert {row.id for row in world.rows(Lease)} == {first.lease_id, second.lease_id}
    assert world.launch(second.items[0].id).lease_id is None
    world.tick(KEEP_ENDED_LEASES.total_seconds() + 1)
    world.sweep()
    assert world.rows(Lease) == []


def test_expired_browser_sessions_are_deleted(world: World) -> None:
    with world.write() as session:
        _, secret = keys.create_key(session, name="ada", owner="ada", role="user", now=world.now)
        keys.open_web_session(session, keys.authenticate(session, secret, world.now), world.now)
    world.now += keys.WEB_SESSION + timedelta(seconds=1)
    world.sweep()
    with world.database.read() as session:
        assert session.scalars(select(WebSession)).all() == []
