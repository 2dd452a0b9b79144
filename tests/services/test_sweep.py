"""The sweeper: silent agents, jobs that ended by a crash, targets that nobody was told of."""

from __future__ import annotations

from datetime import timedelta

from databases import ON_BOTH
from leasing import Leasing, SentTasks, crashed, done
from sqlalchemy import select

from edgefront.core.services import tasks
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.queries import leases
from edgefront.core.services.measuring.stranded import KEEP_ENDED_LEASES, forget_ended_leases
from edgefront.core.store.tables import Candidate, Job, Lease, Measurement, Target, WebSession


def test_the_third_loss_fails_it_and_moves_the_job_on(leasing: Leasing, sent_tasks: SentTasks) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, (launch,) = leasing.candidate(target)
    for _ in range(3):
        leasing.start(device, leasing.claim(device).items[0])
        leasing.tick(leasing.ttl_s + 1)
        sent_tasks.clear()
        leasing.sweep()
    assert (leasing.launch(launch).state, leasing.launch(launch).attempts) == ("failed", 3)
    assert leasing.row(Measurement, measurement).state == "failed"
    (candidate,) = leasing.rows(Candidate)
    assert candidate.state == "failed"
    assert "3 attempts; the last: the agent was lost" in candidate.reason
    assert sent_tasks == [(tasks.ADVANCE, {"target_id": target})]
    leasing.sweep()
    assert leasing.launch(launch).attempts == 3


def test_a_measurement_outlives_a_launch_whose_sibling_is_live(leasing: Leasing) -> None:
    device = leasing.device()
    measurement, _ = leasing.candidate(leasing.target(), launches=2)
    for _ in range(3):
        leasing.start(device, leasing.claim(device, 1).items[0])
        leasing.tick(leasing.ttl_s + 1)
        leasing.sweep()
    (sibling,) = leasing.claim(device).items
    assert leasing.row(Measurement, measurement).state == "wanted"
    leasing.report(device, (sibling, done()))
    assert leasing.row(Measurement, measurement).state == "measured"


def test_only_the_launch_that_was_started_last_pays_for_a_lost_lease_and_only_once(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(3)
    items = leasing.claim(device).items
    for item in items[:2]:
        leasing.start(device, item)
        leasing.tick(1)
    leasing.tick(leasing.ttl_s)
    leasing.sweep()
    assert [leasing.launch(item.id).attempts for item in items] == [0, 1, 0]
    assert leasing.outcomes(device, (items[1], crashed())) == ["conflict"], "the sweep has charged this failure"
    assert leasing.launch(items[1].id).attempts == 1
    assert leasing.outcomes(device, (items[1], done())) == ["accepted"]


@ON_BOTH
def test_unneeded_launches_of_cancelled_and_deleted_jobs_are_cancelled(leasing: Leasing) -> None:
    gone, deleted, running = (leasing.target() for _ in range(3))
    mine = leasing.launches(1, gone)[0]
    measurement, (shared,) = leasing.candidate(gone)
    leasing.candidate(running, measurement=measurement, launches=0)
    kept, orphan = leasing.launches(1, running)[0], leasing.launches(1, deleted)[0]
    leasing.set_job(gone, "cancelled")
    with leasing.write() as session:
        session.delete(session.get_one(Job, session.get_one(Target, deleted).job_id))
    leasing.sweep()
    states = [leasing.launch(id_).state for id_ in (mine, shared, kept, orphan)]
    assert states == ["cancelled", "wanted", "wanted", "cancelled"]


def test_stalled_targets_are_sent_for_again(leasing: Leasing, sent_tasks: SentTasks) -> None:
    stalled, busy = leasing.target(), leasing.target()
    leasing.launches(1, busy)
    leasing.sweep()
    assert sent_tasks == [(tasks.ADVANCE, {"target_id": stalled})]


@ON_BOTH
def test_ended_leases_are_forgotten_in_time(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.launches(2, target)
    first = leasing.claim(device, 1)
    leasing.report(device, (first.items[0], done()))
    second = leasing.claim(device, 1)
    with leasing.write() as session:
        demand.withdraw(session, [target], leasing.now)
    leasing.tick(leasing.ttl_s + 1)
    leasing.sweep()
    assert {row.id for row in leasing.rows(Lease)} == {first.lease_id, second.lease_id}
    assert leasing.launch(second.items[0].id).lease_id is None
    leasing.tick(KEEP_ENDED_LEASES.total_seconds() + 1)
    leasing.sweep()
    assert leasing.rows(Lease) == []


def test_a_lease_is_kept_as_long_as_a_launch_refers_to_it(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(1)
    leasing.claim(device)
    for seconds in (leasing.ttl_s + 1, KEEP_ENDED_LEASES.total_seconds() + 1):
        leasing.tick(seconds)
        with leasing.write() as session:
            leases.end_expired(session, leasing.now)
            forget_ended_leases(session, leasing.now)
    assert len(leasing.rows(Lease)) == 1


def test_expired_browser_sessions_are_deleted(leasing: Leasing) -> None:
    with leasing.write() as session:
        _, secret = keys.create_key(session, name="ada", owner="ada", role="user", now=leasing.now)
        keys.open_web_session(session, keys.authenticate(session, secret, leasing.now), leasing.now)
    leasing.now += keys.WEB_SESSION + timedelta(seconds=1)
    leasing.sweep()
    with leasing.database.read() as session:
        assert session.scalars(select(WebSession)).all() == []
