"""The database's clock is set back a day under what runs: nothing waits until it is past what was stored before."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from leasing import Leasing, crashed, done, facts
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


def test_launches_of_a_lost_device_are_given_to_another(leasing: Leasing) -> None:
    lost, other = leasing.device(), leasing.device("other")
    leasing.launches(2)
    assert len(leasing.claim(lost).items) == 2
    leasing.now -= DAY
    leasing.sweep()
    assert len(leasing.claim(other).items) == 2


def test_a_device_that_goes_on_reports_and_gets_more(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(3)
    held = leasing.claim(device, 2)
    leasing.now -= DAY
    leasing.heartbeat(device, held)
    assert leasing.append(device, *((item, done()) for item in held.items)) == ["accepted"] * 2
    assert len(leasing.claim(device).items) == 1


def test_reports_whose_message_was_lost_are_found(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(1)
    leasing.append(device, *((item, done()) for item in leasing.claim(device).items))
    with leasing.database.read() as session:
        assert len(launches.unprocessed_targets(session, leasing.now - DAY)) == 1


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


def test_a_launch_under_way_counts_and_the_next_lease_holds(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(3)
    first = leasing.claim(device, 1)
    leasing.start(device, first.items[0])
    leasing.tick(5)
    leasing.now -= DAY
    leasing.report(device, (first.items[0], done()))
    assert leasing.launch(first.items[0].id).state == "done"
    leasing.now -= DAY
    lease = leasing.claim(device, 1)
    for _ in range(3):
        leasing.heartbeat(device, lease)
        leasing.sweep()


def anchor(leasing: Leasing, device: str, result: LaunchResult) -> list[str]:
    """The outcomes of reports on what the device is asked to measure now."""
    leasing.claim(device)
    with leasing.write() as session:
        anchors.request(session, leasing.now)
    outcomes = [leasing.append(device, (item, result))[0] for item in leasing.claim(device).items]
    with leasing.write() as session:
        process(session, None, leasing.now)
    return outcomes


def test_a_device_measures_its_anchor_and_is_online(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.tick(3600)
    assert (anchor(leasing, device, done()), anchor(leasing, device, done())) == (["accepted"], [])
    leasing.now -= DAY
    assert anchor(leasing, device, done()) == ["accepted"]
    with leasing.database.read() as session:
        assert devices.view(session, session.get_one(Device, device), leasing.now).online
        gauges = {gauge.name: gauge.values for gauge in overview(session, leasing.now)}
    assert gauges["devices_online"] == {"": 1}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("becomes", ["failing", "slow"])
def test_a_device_that_fails_or_drifts_after_it_is_paused(leasing: Leasing, becomes: str, trusted: bool) -> None:
    device = leasing.device()
    if trusted:
        with leasing.write() as session:
            session.get_one(Device, device).trusted_at = leasing.now
    leasing.now -= DAY
    usual, off = done(memory=4 << 20), crashed() if becomes == "failing" else done(20.0, memory=4 << 20)
    for result in (*[usual] * 6, *[off] * 3):
        leasing.tick(1900)
        anchor(leasing, device, result)
    assert leasing.row(Device, device).quarantine is not None


def test_a_jobs_minutes_begin_again(leasing: Leasing) -> None:
    target = leasing.target()
    with leasing.write() as session:
        session.get_one(Target, target).started_at = leasing.now
    leasing.now -= DAY
    with leasing.write() as session:
        advance(session, target, leasing.now)
        assert session.get_one(Target, target).started_at == leasing.now


def test_keys_and_tokens_hold(leasing: Leasing) -> None:
    with leasing.write() as session:
        _, secret = keys.create_key(
            session, name="a", owner="a", role="admin", now=leasing.now, expires_at=leasing.now + DAY
        )
        principal = keys.authenticate(session, secret, leasing.now)
        _, token = devices.create_enrolment_token(session, principal, EnrolmentTokenRequest(), leasing.now)
    leasing.now -= DAY
    request = EnrolRequest.model_validate({"name": "pi", "device_class": "x", "facts": facts()})
    with leasing.write() as session:
        assert keys.authenticate(session, secret, leasing.now) == principal
        assert devices.enrol(session, token, request, leasing.now).device_id
