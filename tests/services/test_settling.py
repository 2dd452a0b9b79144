"""Settling: what follows from reports, derived once, late, after a crash or twice."""

from __future__ import annotations

from typing import Any

import pytest
from lease_world import World, crashed, done, out_of_memory
from sqlalchemy.orm import Session

from edgefront.core.services import tasks
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.settling import AT_ONCE, settle
from edgefront.core.store.tables import Candidate, Event, Launch, Measurement, Target


def states(world: World, table: Any) -> list[str]:
    return [row.state for row in world.rows(table)]


def test_a_report_is_only_appended(world: World) -> None:
    device, (launch,) = world.device(), world.launches(1)
    item = world.claim(device).items[0]
    assert world.append(device, (item, done(12.5))) == ["accepted"]
    row = world.launch(launch)
    assert (row.state, row.result["latency"]["samples_ms"], row.lease_id) == ("reported", [12.5] * 5, None)  # type: ignore[index]
    assert (states(world, Measurement), states(world, Candidate), world.rows(Event)) == (["wanted"], ["waiting"], [])
    assert world.append(device, (item, done(12.5))) == ["duplicate"]
    assert world.append(device, (item, done(13.0))) == ["conflict"]
    assert not world.claim(device).items
    world.settle()
    assert (states(world, Launch), states(world, Measurement), states(world, Candidate)) == (
        ["done"],
        ["measured"],
        ["measured"],
    )


def test_settling_again_changes_nothing(world: World) -> None:
    device, target = world.device(), world.target()
    for index in range(3):
        world.candidate(target, proxy=10.0 + index)
    items = world.claim(device).items
    world.append(device, (items[0], done(5.0)), (items[1], out_of_memory()), (items[2], crashed()), busy_s=3.0)
    world.settle()
    before = [
        (type(row).__name__, {name: value for name, value in vars(row).items() if name != "_sa_instance_state"})
        for table in (Launch, Measurement, Candidate, Target, Event)
        for row in world.rows(table)
    ]
    with world.write() as session:
        assert not settle(session, target, world.now)
    world.settle()
    after = [
        (type(row).__name__, {name: value for name, value in vars(row).items() if name != "_sa_instance_state"})
        for table in (Launch, Measurement, Candidate, Target, Event)
        for row in world.rows(table)
    ]
    assert after == before
    (row,) = world.rows(Target)
    assert (row.settled, row.launches_done, row.busy_s) == (2, 2, 3.0)


def test_a_crash_before_settling_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    device, target = world.device(), world.target()
    world.candidate(target)
    world.append(device, (world.claim(device).items[0], done()))

    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edgefront.core.services.measuring.queries.measurements.write_targets", power_cut)
        with pytest.raises(KeyboardInterrupt):
            world.settle()
    assert (states(world, Launch), world.rows(Event)) == (["reported"], [])
    sent: list[tuple[str, dict[str, Any]]] = []
    world.database.send = lambda task, arguments: sent.append((task, arguments))
    world.tick(0.5)
    world.sweep()
    assert sent == []  # its task may still be on the way
    world.tick(5)
    world.sweep()
    assert (tasks.SETTLE, {"target_id": target}) in sent
    world.settle()
    assert [event.number for event in world.rows(Event)] == [1, 2, 3]
    assert states(world, Candidate) == ["measured"]


def test_what_is_not_settled_is_still_to_come(world: World) -> None:
    """A search that looks in between neither ends nor asks for the launch again."""
    device, target = world.device(), world.target()
    measurement, _ = world.candidate(target)
    world.append(device, (world.claim(device).items[0], done()))
    with world.database.read() as session:
        counts = demand.launch_counts(session, [measurement])[measurement]
        assert counts["reported"] == 1
        assert demand.has_live_launch(session, session.get_one(Target, target))
    with world.write() as session:
        assert demand.withdraw(session, [target], world.now) == []


def test_a_launch_of_a_deleted_job_is_settled_for_its_measurement(world: World) -> None:
    device, target = world.device(), world.target()
    measurement, _ = world.candidate(target)
    world.append(device, (world.claim(device).items[0], done(9.0)))
    with world.write() as session:
        session.delete(session.get_one(Target, target))
    world.settle()
    assert world.row(Measurement, measurement).latency_ms == 9.0
    assert states(world, Launch) == ["done"]


def test_many_reports_are_settled_in_parts(world: World) -> None:
    device, target = world.device(), world.target(planned=AT_ONCE + 5)
    world.launches(AT_ONCE + 5, target)
    while lease := world.claim(device, 32).items:
        world.append(device, *((item, done(5.0 + index)) for index, item in enumerate(lease)))

    def some(session: Session) -> bool:
        return settle(session, target, world.now)

    with world.write() as session:
        assert some(session)
    with world.write() as session:
        assert not some(session)
    assert states(world, Candidate) == ["measured"] * (AT_ONCE + 5)
    numbers = [event.number for event in world.rows(Event)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
