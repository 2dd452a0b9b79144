"""Reports: taken in once, whoever holds the lease by then; three deaths make a failure."""

from __future__ import annotations

import pytest
from lease_world import World, crashed, done, out_of_memory, unsupported

from edgefront.core.common.errors import InvalidInput
from edgefront.core.services import tasks
from edgefront.core.store.tables import Candidate, Device, Event, Launch, Measurement, Target


def candidate_of(world: World, measurement: str) -> Candidate:
    (found,) = [row for row in world.rows(Candidate) if row.measurement_id == measurement]
    assert isinstance(found, Candidate)
    return found


def test_a_report_goes_from_the_launch_to_the_candidate(
    world: World, sent: list[tuple[str, dict[str, object]]]
) -> None:
    device, target = world.device(), world.target()
    measurement, (launch,) = world.candidate(target)
    item = world.claim(device).items[0]
    assert world.outcomes(device, (item, done(12.5))) == ["accepted"]
    row = world.launch(launch)
    assert (row.state, row.device_id, row.lease_id, row.finished_at) == ("done", device, None, world.now)
    assert row.result is not None
    assert row.result["latency"]["samples_ms"] == [12.5] * 5
    known = world.row(Measurement, measurement)
    assert (known.state, known.launches, known.latency_ms, known.memory_bytes) == ("measured", 1, 12.5, 1 << 20)
    candidate = candidate_of(world, measurement)
    assert (candidate.state, candidate.latency_ms, candidate.launches) == ("measured", 12.5, 1)
    assert candidate.on_frontier
    reported = world.row(Target, target)
    assert (reported.settled, reported.launches_done, reported.measuring_s) == (1, 1, 0.5)
    assert [event.kind for event in world.rows(Event)] == ["launch", "candidate", "frontier"]
    assert sent == [(task, {"target_id": target}) for task in (tasks.PROCESS_RESULTS, tasks.ADVANCE)]


def test_the_next_generation_is_sent_for_only_when_the_last_candidate_is_settled(
    world: World, sent: list[tuple[str, dict[str, object]]]
) -> None:
    device = world.device()
    world.launches(2)
    first, second = world.claim(device).items
    world.report(device, (first, done()))
    assert [task for task, _ in sent] == [tasks.PROCESS_RESULTS]
    world.report(device, (second, done()))
    assert [task for task, _ in sent] == [tasks.PROCESS_RESULTS, tasks.PROCESS_RESULTS, tasks.ADVANCE]


def test_infeasible_twice_ends_it_and_spares_the_sibling(world: World) -> None:
    device, target = world.device(), world.target(state="baselines")
    measurement, launches = world.candidate(target, role="baseline", launches=3)
    for _ in range(2):
        item = world.claim(device, 1).items[0]
        assert world.outcomes(device, (item, out_of_memory())) == ["accepted"]
    assert [world.launch(launch).state for launch in launches] == ["infeasible", "infeasible", "cancelled"]
    candidate = candidate_of(world, measurement)
    assert (candidate.state, candidate.reason) == ("infeasible", "out_of_memory: killed")


def test_an_infeasible_refinement_leaves_the_measurement_measured(world: World) -> None:
    device, target = world.device(), world.target()
    measurement, _ = world.candidate(target, launches=2)
    first, second = world.claim(device).items
    world.report(device, (first, done(10.0)))
    world.report(device, (second, out_of_memory()))
    assert world.row(Measurement, measurement).state == "measured"
    assert candidate_of(world, measurement).state == "measured"


def test_a_failed_launch_waits_for_its_sibling(world: World) -> None:
    device, target = world.device(), world.target()
    measurement, (first, _) = world.candidate(target, launches=2)
    for _ in range(3):
        item = world.claim(device, 1).items[0]
        assert item.id == first
        world.report(device, (item, crashed()))
    assert world.row(Measurement, measurement).state == "wanted"
    assert candidate_of(world, measurement).state == "waiting"
    item = world.claim(device, 1).items[0]
    world.report(device, (item, done(10.0)))
    assert candidate_of(world, measurement).state == "measured"


def test_launches_are_aggregated(world: World) -> None:
    device, target = world.device(), world.target()
    measurement, _ = world.candidate(target, launches=5)
    items = world.claim(device).items
    latencies = [10.0, 14.0, 11.0, 30.0, 12.0]
    sizes = [100, 110, 101, 102, 103]
    told = [(item, done(ms, size)) for item, ms, size in zip(items, latencies, sizes, strict=True)]
    world.report(device, *told[:3])  # three of one measurement in one batch
    known = world.row(Measurement, measurement)
    assert (known.launches, known.latency_ms, known.latency_p90_ms) == (3, 11.0, None)
    world.report(device, *told[3:])
    known = world.row(Measurement, measurement)
    assert (known.launches, known.latency_ms, known.memory_bytes) == (5, 12.0, 102)
    assert known.latency_p90_ms == 30.0  # 25 samples by now
    candidate = candidate_of(world, measurement)
    assert candidate.launches == 5
    assert candidate.latency_half_width_ms == pytest.approx(12.0), "as wide as the latency itself at most"
    other, _ = world.candidate(target, launches=2)
    world.report(device, *((item, done(ms)) for item, ms in zip(world.claim(device).items, (10.0, 10.5), strict=True)))
    assert 0 < (candidate_of(world, other).latency_half_width_ms or 0) < 2


def test_where_there_is_no_room_to_note_it_an_unsupported_protocol_costs_attempts(world: World) -> None:
    device = world.device(extra={f"note {number}": "" for number in range(60)})
    target = world.target()
    measurement, (launch,) = world.candidate(target)
    told = []
    for _ in range(3):
        (item,) = world.claim(device).items  # the same device is asked again
        (receipt,) = world.report(device, (item, unsupported()))
        told.append((receipt.outcome, receipt.detail))
    again = ("accepted", "an attempt is used up; the launch will be repeated")
    assert told == [again, again, ("accepted", "")]
    assert (world.launch(launch).state, world.launch(launch).attempts) == ("failed", 3)
    assert world.row(Measurement, measurement).reason == "3 attempts; the last: unsupported: no such provider"
    assert len(world.row(Device, device).facts["extra"]) == 60
    assert not world.claim(device).items


def test_an_unsupported_protocol_goes_to_another_device_and_one_note_serves_all_its_launches(world: World) -> None:
    device, other = world.device(extra={f"note {number}": "" for number in range(59)}), world.device("other")
    world.launches(3)
    items = world.claim(device).items
    receipts = world.report(device, *((item, unsupported()) for item in items))
    assert {receipt.detail for receipt in receipts} == {
        "the launch goes to another device; this device skips it until its agent restarts"
    }
    assert [(row.state, row.attempts) for row in world.rows(Launch)] == [("wanted", 0)] * 3
    assert len(world.row(Device, device).facts["extra"]) == 60
    assert not world.claim(device).items
    assert len(world.claim(other).items) == 3


def test_a_deleted_jobs_launch_and_a_strangers_are_unknown(world: World) -> None:
    device, stranger = world.device(), world.device("stranger", device_class="elsewhere")
    world.launches(1)
    item = world.claim(device).items[0]
    gone = item._replace(id="lau_gone")
    assert world.outcomes(device, (gone, done())) == ["unknown"]
    assert world.outcomes(stranger, (item, done())) == ["unknown"]
    (receipt,) = world.report(device, (item._replace(fence=9), done()))
    assert (receipt.outcome, "with this fencing token" in receipt.detail) == ("conflict", True)
    assert world.launch(item.id).state == "leased"


def test_time_is_split_among_the_targets_that_asked(world: World) -> None:
    device, first, second = world.device(), world.target(), world.target()
    world.launches(1, first)
    world.launches(2, second)
    items = world.claim(device).items
    world.report(device, *((item, done()) for item in items), busy_s=6.0)
    assert [(row.busy_s, row.measuring_s) for row in sorted(world.rows(Target), key=lambda row: row.id)] == [
        (2.0, 0.5),
        (4.0, 1.0),
    ]
    assert {row.state for row in world.rows(Launch)} == {"done"}


def test_another_memory_method_is_refused(world: World) -> None:
    device, target = world.device(), world.target()
    world.candidate(target)
    (item,) = world.claim(device).items
    result = done()
    assert result.memory is not None
    other = result.model_copy(update={"memory": result.memory.model_copy(update={"method": "resident"})})
    with pytest.raises(InvalidInput, match="'anonymous', not 'resident'") as caught:
        world.report(device, (item, other))
    assert caught.value.field == "reports.0.result.memory.method"
    assert world.launch(item.id).state == "leased"
    assert world.outcomes(device, (item, result)) == ["accepted"]
