"""The database's clock is set back a day under what runs: nothing waits until it is past what was stored before."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from lease_world import World, crashed, done, facts
from simulated_pool import pool_of
from simulated_service import Service
from sqlalchemy import literal, select

from edgefront.core.common.states import WorkKind
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import EnrolRequest
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services import work
from edgefront.core.services.access import keys
from edgefront.core.services.fleet import devices
from edgefront.core.services.fleet.overview import overview
from edgefront.core.services.measuring import anchors
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.result_processing import process
from edgefront.core.services.search.advance import advance
from edgefront.core.services.trainings import claims
from edgefront.core.store.clock import MARGIN, elapsed_s, over
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Device, Target
from edgefront.core.store.tables.base import UtcDateTime

DAY = timedelta(days=1)
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_a_time_further_ahead_than_it_can_be_is_past(database: Database) -> None:
    hour = timedelta(hours=1)
    ends = {NOW: True, NOW + hour: False, NOW + hour + MARGIN: False, NOW + 2 * hour: True, NOW + DAY: True}
    with database.read() as session:
        found = {end: session.scalar(select(over(literal(end, UtcDateTime), NOW, hour))) for end in ends}
    assert found == ends
    assert elapsed_s(NOW - hour, NOW) == 3600
    assert elapsed_s(NOW + MARGIN / 2, NOW) < 0, "the clocks of two processes differ"
    assert elapsed_s(NOW + DAY, NOW) == float("inf")


def test_launches_of_a_lost_device_are_given_to_another(world: World) -> None:
    lost, other = world.device(), world.device("other")
    world.launches(2)
    assert len(world.claim(lost).items) == 2
    world.now -= DAY
    world.sweep()
    assert len(world.claim(other).items) == 2


def test_a_device_that_goes_on_reports_and_gets_more(world: World) -> None:
    device = world.device()
    world.launches(3)
    held = world.claim(device, 2)
    world.now -= DAY
    world.heartbeat(device, held)
    assert world.append(device, *((item, done()) for item in held.items)) == ["accepted"] * 2
    assert len(world.claim(device).items) == 1


def test_reports_whose_message_was_lost_are_found(world: World) -> None:
    device = world.device()
    world.launches(1)
    world.append(device, *((item, done()) for item in world.claim(device).items))
    with world.database.read() as session:
        assert len(launches.unprocessed_targets(session, world.now - DAY)) == 1


@pytest.mark.parametrize("kind", WorkKind)
def test_work_of_a_worker_that_died_is_done_by_another(database: Database, kind: WorkKind) -> None:
    service = Service(database)
    with service.database.write() as session:
        now = service.database.now(session)
        work.request(session, kind, {"subject": "eve"}, now)
        assert work.claim(session, work.queue_of(kind), "wrk_dead", 1, now) is not None
        assert work.claim(session, work.queue_of(kind), "wrk_2", 1, now - MARGIN / 2) is None
        assert work.claim(session, work.queue_of(kind), "wrk_2", 1, now - DAY) is not None


def test_a_training_of_a_lost_worker_waits_in_its_queue(database: Database, tmp_path: Path) -> None:
    pool = pool_of(database, tmp_path)
    training = pool.submit()
    assert pool.claim() is not None
    with database.write() as session:
        claims.return_expired(session, database.now(session) - DAY)
    assert pool.get(training).state == "queued"


def test_a_launch_under_way_counts_and_the_next_lease_holds(world: World) -> None:
    device = world.device()
    world.launches(3)
    first = world.claim(device, 1)
    world.start(device, first.items[0])
    world.tick(5)
    world.now -= DAY
    world.report(device, (first.items[0], done()))
    assert world.launch(first.items[0].id).state == "done"
    world.now -= DAY
    lease = world.claim(device, 1)
    for _ in range(3):
        world.heartbeat(device, lease)
        world.sweep()


def anchor(world: World, device: str, result: LaunchResult) -> list[str]:
    """The outcomes of reports on what the device is asked to measure now."""
    world.claim(device)
    with world.write() as session:
        anchors.request(session, world.now)
    outcomes = [world.append(device, (item, result))[0] for item in world.claim(device).items]
    with world.write() as session:
        process(session, None, world.now)
    return outcomes


def test_a_device_measures_its_anchor_and_is_online(world: World) -> None:
    device = world.device()
    world.tick(3600)
    assert (anchor(world, device, done()), anchor(world, device, done())) == (["accepted"], [])
    world.now -= DAY
    assert anchor(world, device, done()) == ["accepted"]
    with world.database.read() as session:
        assert devices.view(session, session.get_one(Device, device), world.now).online
        gauges = {gauge.name: gauge.values for gauge in overview(session, world.now)}
    assert gauges["devices_online"] == {"": 1}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("becomes", ["failing", "slow"])
def test_a_device_that_fails_or_drifts_after_it_is_paused(world: World, becomes: str, trusted: bool) -> None:
    device = world.device()
    if trusted:
        with world.write() as session:
            session.get_one(Device, device).trusted_at = world.now
    world.now -= DAY
    usual, off = done(memory=4 << 20), crashed() if becomes == "failing" else done(20.0, memory=4 << 20)
    for result in (*[usual] * 6, *[off] * 3):
        world.tick(1900)
        anchor(world, device, result)
    assert world.row(Device, device).quarantine is not None


def test_a_jobs_minutes_begin_again(world: World) -> None:
    target = world.target()
    with world.write() as session:
        session.get_one(Target, target).started_at = world.now
    world.now -= DAY
    with world.write() as session:
        advance(session, target, world.now)
        assert session.get_one(Target, target).started_at == world.now


def test_keys_and_tokens_hold(world: World) -> None:
    with world.write() as session:
        _, secret = keys.create_key(
            session, name="a", owner="a", role="admin", now=world.now, expires_at=world.now + DAY
        )
        principal = keys.authenticate(session, secret, world.now)
        _, token = devices.create_enrolment_token(session, principal, EnrolmentTokenRequest(), world.now)
    world.now -= DAY
    request = EnrolRequest.model_validate({"name": "pi", "device_class": "x", "facts": facts()})
    with world.write() as session:
        assert keys.authenticate(session, secret, world.now) == principal
        assert devices.enrol(session, token, request, world.now).device_id
