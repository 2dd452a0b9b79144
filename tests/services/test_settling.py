"""Settling: what follows from reports, derived once, late, after a crash or twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from databases import ON_BOTH
from leasing import START, Leasing, SentTasks, crashed, done, out_of_memory
from simulated_service import advance_target, process_results
from sqlalchemy import update
from sqlalchemy.orm import Session

from edgefront.core.measurement.plausible import STARTED_LATE_S
from edgefront.core.services import tasks
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.result_processing import BATCH, process
from edgefront.core.store.tables import Candidate, Event, Job, Launch, Measurement, Target

Told = Callable[[], list[object]]


def states(leasing: Leasing, table: Any) -> list[str]:
    return [row.state for row in leasing.rows(table)]


def test_a_report_is_only_appended(leasing: Leasing) -> None:
    device, (launch,) = leasing.device(), leasing.launches(1)
    item = leasing.claim(device).items[0]
    assert leasing.append(device, (item, done(12.5))) == ["accepted"]
    row = leasing.launch(launch)
    assert (row.state, row.result["latency"]["samples_ms"], row.lease_id) == ("reported", [12.5] * 5, None)  # type: ignore[index]
    assert (states(leasing, Measurement), states(leasing, Candidate), leasing.rows(Event)) == (
        ["wanted"],
        ["waiting"],
        [],
    )
    assert leasing.append(device, (item, done(12.5))) == ["duplicate"]
    assert leasing.append(device, (item, done(13.0))) == ["conflict"]
    assert not leasing.claim(device).items
    leasing.process()
    assert (states(leasing, Launch), states(leasing, Measurement), states(leasing, Candidate)) == (
        ["done"],
        ["measured"],
        ["measured"],
    )


def test_settling_again_changes_nothing(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    for index in range(3):
        leasing.candidate(target, proxy=10.0 + index)
    items = leasing.claim(device).items
    leasing.append(device, (items[0], done(5.0)), (items[1], out_of_memory()), (items[2], crashed()), busy_s=3.0)
    leasing.process()

    def everything() -> list[dict[str, Any]]:
        found = [row for table in (Launch, Measurement, Candidate, Target, Event) for row in leasing.rows(table)]
        return [{name: value for name, value in vars(row).items() if name != "_sa_instance_state"} for row in found]

    before = everything()
    with leasing.write() as session:
        assert not process(session, target, leasing.now)
    leasing.process()
    assert everything() == before
    (row,) = leasing.rows(Target)
    assert (row.settled, row.launches_done, row.busy_s) == (1, 2, 3.0)


def test_a_crash_before_settling_loses_nothing(
    leasing: Leasing, sent_tasks: SentTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target)
    leasing.append(device, (leasing.claim(device).items[0], done()))

    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edgefront.core.services.measuring.queries.measurements.write_targets", power_cut)
        with pytest.raises(KeyboardInterrupt):
            leasing.process()
    assert (states(leasing, Launch), leasing.rows(Event)) == (["reported"], [])
    sent_tasks.clear()
    leasing.tick(0.5)
    leasing.sweep()
    assert sent_tasks == []  # its task may still be on the way
    leasing.tick(5)
    leasing.sweep()
    assert (tasks.PROCESS_RESULTS, {"target_id": target}) in sent_tasks
    leasing.process()
    assert [event.number for event in leasing.rows(Event)] == [1, 2, 3]
    assert states(leasing, Candidate) == ["measured"]


def test_unsettled_launches_count_as_live(leasing: Leasing) -> None:
    """A search that looks in between neither ends nor asks for the launch again."""
    device, target = leasing.device(), leasing.target()
    measurement, _ = leasing.candidate(target)
    leasing.append(device, (leasing.claim(device).items[0], done()))
    with leasing.database.read() as session:
        counts = demand.launch_counts(session, [measurement])[measurement]
        assert counts["reported"] == 1
        assert demand.has_live_launch(session, session.get_one(Target, target))
    with leasing.write() as session:
        assert demand.withdraw(session, [target], leasing.now) == []


def test_many_reports_are_settled_in_parts(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target(planned=BATCH + 5)
    leasing.launches(BATCH + 5, target)
    while lease := leasing.claim(device, 32).items:
        leasing.append(device, *((item, done(5.0 + index)) for index, item in enumerate(lease)))

    def some(session: Session) -> bool:
        return process(session, target, leasing.now)

    with leasing.write() as session:
        assert some(session)
    with leasing.write() as session:
        assert not some(session)
    assert states(leasing, Candidate) == ["measured"] * (BATCH + 5)
    numbers = [event.number for event in leasing.rows(Event)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


# What cannot be settled --------------------------------------------------------------------------------------------


@pytest.fixture
def told(sent_tasks: SentTasks) -> Told:
    """Targets for which `advance` was sent."""
    return lambda: [arguments["target_id"] for task, arguments in sent_tasks if task == tasks.ADVANCE]


def spoil(leasing: Leasing, launch_id: str) -> None:
    """The stored report without its samples, as if this release could not read what an earlier one took."""
    with leasing.write() as session:
        result = {**(session.get_one(Launch, launch_id).result or {}), "latency": None}
        session.execute(update(Launch).where(Launch.id == launch_id).values(result=result))


def by_id(leasing: Leasing, table: Any) -> dict[str, Any]:
    return {row.id: row for row in leasing.rows(table)}


def test_a_report_that_cannot_be_settled_fails_alone(leasing: Leasing, told: Told) -> None:
    device, target = leasing.device(), leasing.target()
    made = [leasing.candidate(target, proxy=10.0 + index) for index in range(4)]
    leasing.append(device, *((item, done()) for item in leasing.claim(device).items))
    ((bad, (bad_launch,)), *good) = made
    spoil(leasing, bad_launch)
    process_results(leasing.database, target)
    launches, measurements = by_id(leasing, Launch), by_id(leasing, Measurement)
    assert {launches[id_].state for _, (id_,) in good} == {"done"}
    assert {measurements[id_].state for id_, _ in good} == {"measured"}
    assert (launches[bad_launch].state, measurements[bad].state) == ("failed", "failed")
    assert launches[bad_launch].reason == measurements[bad].reason
    assert launches[bad_launch].reason == (
        "its report cannot be processed: internal error (ValidationError); see the worker's log."
    )
    assert launches[bad_launch].result is not None  # for whoever looks into it
    assert told() == [target]
    advance_target(leasing.database, target)
    (ended,) = (row for row in leasing.rows(Candidate) if row.measurement_id == bad)
    assert (ended.state, ended.reason) == ("failed", measurements[bad].reason)
    (row,) = leasing.rows(Target)
    assert (row.settled, row.launches_done) == (4, 3)
    numbers = sorted(event.number for event in leasing.rows(Event))
    assert numbers == list(range(1, len(numbers) + 1))
    process_results(leasing.database, target)
    assert by_id(leasing, Launch)[bad_launch].state == "failed"


def test_an_earlier_measurement_survives_a_further_report_that_cannot_be_settled(leasing: Leasing, told: Told) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, _ = leasing.candidate(target, launches=2)
    first, second = leasing.claim(device).items
    leasing.report(device, (first, done(8.0)))
    leasing.append(device, (second, done(9.0)))
    spoil(leasing, second.id)
    process_results(leasing.database, target)
    assert leasing.launch(second.id).state == "failed"
    found = leasing.row(Measurement, measurement)
    assert (found.state, found.latency_ms, found.launches) == ("measured", 8.0, 1)


def test_a_target_that_cannot_take_results_in_ends_and_the_measurement_is_kept(leasing: Leasing, told: Told) -> None:
    device, target, other = leasing.device(), leasing.target(), leasing.target()
    measurement, _ = leasing.candidate(target)
    leasing.candidate(other, measurement=measurement, launches=0)
    with leasing.write() as session:
        session.get_one(Target, target).reference = {"proxy": 0.0}
    leasing.append(device, (leasing.claim(device).items[0], done(9.0)))
    process_results(leasing.database, target)
    assert (states(leasing, Launch), leasing.row(Measurement, measurement).latency_ms) == (["done"], 9.0)
    assert set(told()) == {target, other}
    for target_id in (target, other):
        advance_target(leasing.database, target_id)
    found = by_id(leasing, Target)
    assert found[target].state == "failed"
    assert found[target].note.startswith("The search cannot continue: internal error (KeyError)")
    assert found[other].state != "failed"
    shared = {row.target_id: row.state for row in leasing.rows(Candidate) if row.measurement_id == measurement}
    assert shared == {target: "cancelled", other: "measured"}
    assert by_id(leasing, Job)[found[target].job_id].state == "failed"


@ON_BOTH
def test_reports_of_a_deleted_target_are_settled_for_their_measurements_or_given_up(
    leasing: Leasing, told: Told
) -> None:
    device, target = leasing.device(), leasing.target()
    (good, (fine,)), (bad, (spoilt,)) = leasing.candidate(target), leasing.candidate(target)
    leasing.append(device, *((item, done(9.0)) for item in leasing.claim(device).items))
    spoil(leasing, spoilt)
    with leasing.write() as session:
        session.delete(session.get_one(Target, target))
    process_results(leasing.database, None)
    launches, measurements = by_id(leasing, Launch), by_id(leasing, Measurement)
    assert (launches[fine].state, measurements[good].latency_ms) == ("done", 9.0)
    assert (launches[spoilt].state, measurements[bad].state, told()) == ("failed", "failed", [])


def test_a_target_starts_no_earlier_than_its_first_launch(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target)
    (item,) = leasing.claim(device).items
    leasing.start(device, item)
    leasing.tick(5)
    leasing.report(device, (item, done().model_copy(update={"wall_s": 1e5})))
    assert leasing.row(Target, target).started_at == START - timedelta(seconds=STARTED_LATE_S)
