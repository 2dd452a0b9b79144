"""Settling: what follows from reports, derived once, late, after a crash or twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from databases import ON_BOTH
from lease_world import World, crashed, done, out_of_memory
from simulated_service import advance_target, process_results
from sqlalchemy import update
from sqlalchemy.orm import Session

from edgefront.core.services import tasks
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.result_processing import BATCH, process
from edgefront.core.store.tables import Candidate, Event, Job, Launch, Measurement, Target

Told = Callable[[], list[object]]


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
    world.process()
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
    world.process()

    def everything() -> list[dict[str, Any]]:
        found = [row for table in (Launch, Measurement, Candidate, Target, Event) for row in world.rows(table)]
        return [{name: value for name, value in vars(row).items() if name != "_sa_instance_state"} for row in found]

    before = everything()
    with world.write() as session:
        assert not process(session, target, world.now)
    world.process()
    assert everything() == before
    (row,) = world.rows(Target)
    assert (row.settled, row.launches_done, row.busy_s) == (1, 2, 3.0)


def test_a_crash_before_settling_loses_nothing(
    world: World, sent: list[tuple[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, target = world.device(), world.target()
    world.candidate(target)
    world.append(device, (world.claim(device).items[0], done()))

    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edgefront.core.services.measuring.queries.measurements.write_targets", power_cut)
        with pytest.raises(KeyboardInterrupt):
            world.process()
    assert (states(world, Launch), world.rows(Event)) == (["reported"], [])
    sent.clear()
    world.tick(0.5)
    world.sweep()
    assert sent == []  # its task may still be on the way
    world.tick(5)
    world.sweep()
    assert (tasks.PROCESS_RESULTS, {"target_id": target}) in sent
    world.process()
    assert [event.number for event in world.rows(Event)] == [1, 2, 3]
    assert states(world, Candidate) == ["measured"]


def test_unsettled_launches_count_as_live(world: World) -> None:
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


def test_many_reports_are_settled_in_parts(world: World) -> None:
    device, target = world.device(), world.target(planned=BATCH + 5)
    world.launches(BATCH + 5, target)
    while lease := world.claim(device, 32).items:
        world.append(device, *((item, done(5.0 + index)) for index, item in enumerate(lease)))

    def some(session: Session) -> bool:
        return process(session, target, world.now)

    with world.write() as session:
        assert some(session)
    with world.write() as session:
        assert not some(session)
    assert states(world, Candidate) == ["measured"] * (BATCH + 5)
    numbers = [event.number for event in world.rows(Event)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


# What cannot be settled --------------------------------------------------------------------------------------------


@pytest.fixture
def told(sent: list[tuple[str, dict[str, object]]]) -> Told:
    """Targets for which `advance` was sent."""
    return lambda: [arguments["target_id"] for task, arguments in sent if task == tasks.ADVANCE]


def spoil(world: World, launch_id: str) -> None:
    """The stored report without its samples, as if this release could not read what an earlier one took."""
    with world.write() as session:
        result = {**(session.get_one(Launch, launch_id).result or {}), "latency": None}
        session.execute(update(Launch).where(Launch.id == launch_id).values(result=result))


def by_id(world: World, table: Any) -> dict[str, Any]:
    return {row.id: row for row in world.rows(table)}


def test_a_report_that_cannot_be_settled_fails_alone(world: World, told: Told) -> None:
    device, target = world.device(), world.target()
    made = [world.candidate(target, proxy=10.0 + index) for index in range(4)]
    world.append(device, *((item, done()) for item in world.claim(device).items))
    ((bad, (bad_launch,)), *good) = made
    spoil(world, bad_launch)
    process_results(world.database, target)
    launches, measurements = by_id(world, Launch), by_id(world, Measurement)
    assert {launches[id_].state for _, (id_,) in good} == {"done"}
    assert {measurements[id_].state for id_, _ in good} == {"measured"}
    assert (launches[bad_launch].state, measurements[bad].state) == ("failed", "failed")
    assert launches[bad_launch].reason == measurements[bad].reason
    assert launches[bad_launch].reason == (
        "its report cannot be processed: internal error (ValidationError); see the worker's log."
    )
    assert launches[bad_launch].result is not None  # for whoever looks into it
    assert told() == [target]
    advance_target(world.database, target)
    (ended,) = (row for row in world.rows(Candidate) if row.measurement_id == bad)
    assert (ended.state, ended.reason) == ("failed", measurements[bad].reason)
    (row,) = world.rows(Target)
    assert (row.settled, row.launches_done) == (4, 3)
    numbers = sorted(event.number for event in world.rows(Event))
    assert numbers == list(range(1, len(numbers) + 1))
    process_results(world.database, target)
    assert by_id(world, Launch)[bad_launch].state == "failed"


def test_an_earlier_measurement_survives_a_further_report_that_cannot_be_settled(world: World, told: Told) -> None:
    device, target = world.device(), world.target()
    measurement, _ = world.candidate(target, launches=2)
    first, second = world.claim(device).items
    world.report(device, (first, done(8.0)))
    world.append(device, (second, done(9.0)))
    spoil(world, second.id)
    process_results(world.database, target)
    assert world.launch(second.id).state == "failed"
    found = world.row(Measurement, measurement)
    assert (found.state, found.latency_ms, found.launches) == ("measured", 8.0, 1)


def test_a_target_that_cannot_take_results_in_ends_and_the_measurement_is_kept(world: World, told: Told) -> None:
    device, target, other = world.device(), world.target(), world.target()
    measurement, _ = world.candidate(target)
    world.candidate(other, measurement=measurement, launches=0)
    with world.write() as session:
        session.get_one(Target, target).reference = {"proxy": 0.0}
    world.append(device, (world.claim(device).items[0], done(9.0)))
    process_results(world.database, target)
    assert (states(world, Launch), world.row(Measurement, measurement).latency_ms) == (["done"], 9.0)
    assert set(told()) == {target, other}
    for target_id in (target, other):
        advance_target(world.database, target_id)
    found = by_id(world, Target)
    assert found[target].state == "failed"
    assert found[target].note.startswith("The search cannot continue: internal error (KeyError)")
    assert found[other].state != "failed"
    shared = {row.target_id: row.state for row in world.rows(Candidate) if row.measurement_id == measurement}
    assert shared == {target: "cancelled", other: "measured"}
    assert by_id(world, Job)[found[target].job_id].state == "failed"


@ON_BOTH
def test_reports_of_a_deleted_target_are_settled_for_their_measurements_or_given_up(world: World, told: Told) -> None:
    device, target = world.device(), world.target()
    (good, (fine,)), (bad, (spoilt,)) = world.candidate(target), world.candidate(target)
    world.append(device, *((item, done(9.0)) for item in world.claim(device).items))
    spoil(world, spoilt)
    with world.write() as session:
        session.delete(session.get_one(Target, target))
    process_results(world.database, None)
    launches, measurements = by_id(world, Launch), by_id(world, Measurement)
    assert (launches[fine].state, measurements[good].latency_ms) == ("done", 9.0)
    assert (launches[spoilt].state, measurements[bad].state, told()) == ("failed", "failed", [])
