"""Reports: taken in once, whoever holds the lease by then; three deaths make a failure."""

from __future__ import annotations

import pytest
from leasing import Leasing, SentTasks, crashed, done, out_of_memory, unsupported

from edgefront.core.common.errors import InvalidInput
from edgefront.core.search.pareto.options import Estimate
from edgefront.core.services import tasks
from edgefront.core.store.tables import Candidate, Device, Event, Launch, Measurement, Target


def candidate_of(leasing: Leasing, measurement: str) -> Candidate:
    (found,) = [row for row in leasing.rows(Candidate) if row.measurement_id == measurement]
    assert isinstance(found, Candidate)
    return found


def test_a_report_goes_from_the_launch_to_the_candidate(leasing: Leasing, sent_tasks: SentTasks) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, (launch,) = leasing.candidate(target)
    item = leasing.claim(device).items[0]
    assert leasing.outcomes(device, (item, done(12.5))) == ["accepted"]
    row = leasing.launch(launch)
    assert (row.state, row.device_id, row.lease_id, row.finished_at) == ("done", device, None, leasing.now)
    assert row.result is not None
    assert row.result["latency"]["samples_ms"] == [12.5] * 5
    known = leasing.row(Measurement, measurement)
    assert (known.state, known.launches, known.latency_ms, known.memory_bytes) == ("measured", 1, 12.5, 1 << 20)
    candidate = candidate_of(leasing, measurement)
    assert (candidate.state, candidate.latency_ms, candidate.launches) == ("measured", 12.5, 1)
    assert candidate.on_frontier
    reported = leasing.row(Target, target)
    assert (reported.settled, reported.launches_done, reported.measuring_s) == (1, 1, 0.5)
    assert [event.kind for event in leasing.rows(Event)] == ["launch", "candidate", "frontier"]
    assert sent_tasks == [(task, {"target_id": target}) for task in (tasks.PROCESS_RESULTS, tasks.ADVANCE)]


def test_the_next_generation_is_sent_for_only_when_the_last_candidate_is_settled(
    leasing: Leasing, sent_tasks: SentTasks
) -> None:
    device = leasing.device()
    leasing.launches(2)
    first, second = leasing.claim(device).items
    leasing.report(device, (first, done()))
    assert [task for task, _ in sent_tasks] == [tasks.PROCESS_RESULTS]
    leasing.report(device, (second, done()))
    assert [task for task, _ in sent_tasks] == [tasks.PROCESS_RESULTS, tasks.PROCESS_RESULTS, tasks.ADVANCE]


def test_infeasible_twice_ends_it_and_spares_the_sibling(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target(state="baselines")
    measurement, launches = leasing.candidate(target, role="baseline", launches=3)
    for _ in range(2):
        item = leasing.claim(device, 1).items[0]
        assert leasing.outcomes(device, (item, out_of_memory())) == ["accepted"]
    assert [leasing.launch(launch).state for launch in launches] == ["infeasible", "infeasible", "cancelled"]
    candidate = candidate_of(leasing, measurement)
    assert (candidate.state, candidate.reason) == ("infeasible", "out_of_memory: killed")


def test_an_infeasible_refinement_leaves_the_measurement_measured(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, _ = leasing.candidate(target, launches=2)
    first, second = leasing.claim(device).items
    leasing.report(device, (first, done(10.0)))
    leasing.report(device, (second, out_of_memory()))
    assert leasing.row(Measurement, measurement).state == "measured"
    assert candidate_of(leasing, measurement).state == "measured"


def test_a_failed_launch_waits_for_its_sibling(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, (first, _) = leasing.candidate(target, launches=2)
    for _ in range(3):
        item = leasing.claim(device, 1).items[0]
        assert item.id == first
        leasing.report(device, (item, crashed()))
    assert leasing.row(Measurement, measurement).state == "wanted"
    assert candidate_of(leasing, measurement).state == "waiting"
    item = leasing.claim(device, 1).items[0]
    leasing.report(device, (item, done(10.0)))
    assert candidate_of(leasing, measurement).state == "measured"


def test_launches_are_aggregated(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    measurement, _ = leasing.candidate(target, launches=5)
    items = leasing.claim(device).items
    latencies = [10.0, 14.0, 11.0, 30.0, 12.0]
    sizes = [100, 110, 101, 102, 103]
    told = [(item, done(ms, size)) for item, ms, size in zip(items, latencies, sizes, strict=True)]
    leasing.report(device, *told[:3])  # three of one measurement in one batch
    known = leasing.row(Measurement, measurement)
    assert (known.launches, known.latency_ms, known.latency_p90_ms) == (3, 11.0, None)
    leasing.report(device, *told[3:])
    known = leasing.row(Measurement, measurement)
    assert (known.launches, known.latency_ms, known.memory_bytes) == (5, 12.0, 102)
    assert known.latency_p90_ms == 30.0  # 25 samples by now
    candidate = candidate_of(leasing, measurement)
    assert candidate.launches == 5
    assert Estimate.plus_minus(12.0, candidate.latency_half_width_ms).high > 25.0, "far wider than that of the next"
    other, _ = leasing.candidate(target, launches=2)
    leasing.report(
        device, *((item, done(ms)) for item, ms in zip(leasing.claim(device).items, (10.0, 10.5), strict=True))
    )
    assert 0 < (candidate_of(leasing, other).latency_half_width_ms or 0) < 2


def test_where_there_is_no_room_to_note_it_an_unsupported_protocol_costs_attempts(leasing: Leasing) -> None:
    device = leasing.device(extra={f"note {number}": "" for number in range(60)})
    target = leasing.target()
    measurement, (launch,) = leasing.candidate(target)
    told = []
    for _ in range(3):
        (item,) = leasing.claim(device).items  # the same device is asked again
        (receipt,) = leasing.report(device, (item, unsupported()))
        told.append((receipt.outcome, receipt.detail))
    again = ("accepted", "an attempt is used up; the launch will be repeated")
    assert told == [again, again, ("accepted", "")]
    assert (leasing.launch(launch).state, leasing.launch(launch).attempts) == ("failed", 3)
    assert leasing.row(Measurement, measurement).reason == "3 attempts; the last: unsupported: no such provider"
    assert len(leasing.row(Device, device).facts["extra"]) == 60
    assert not leasing.claim(device).items


def test_an_unsupported_protocol_goes_to_another_device_and_one_note_serves_all_its_launches(leasing: Leasing) -> None:
    device, other = leasing.device(extra={f"note {number}": "" for number in range(59)}), leasing.device("other")
    leasing.launches(3)
    items = leasing.claim(device).items
    receipts = leasing.report(device, *((item, unsupported()) for item in items))
    assert {receipt.detail for receipt in receipts} == {
        "the launch goes to another device; this device skips it until its agent restarts"
    }
    assert [(row.state, row.attempts) for row in leasing.rows(Launch)] == [("wanted", 0)] * 3
    assert len(leasing.row(Device, device).facts["extra"]) == 60
    assert not leasing.claim(device).items
    assert len(leasing.claim(other).items) == 3


def test_a_deleted_jobs_launch_and_a_strangers_are_unknown(leasing: Leasing) -> None:
    device, stranger = leasing.device(), leasing.device("stranger", device_class="elsewhere")
    leasing.launches(1)
    item = leasing.claim(device).items[0]
    gone = item._replace(id="lau_gone")
    assert leasing.outcomes(device, (gone, done())) == ["unknown"]
    assert leasing.outcomes(stranger, (item, done())) == ["unknown"]
    (receipt,) = leasing.report(device, (item._replace(fence=9), done()))
    assert (receipt.outcome, "with this fencing token" in receipt.detail) == ("conflict", True)
    assert leasing.launch(item.id).state == "leased"


def test_time_is_split_among_the_targets_that_asked(leasing: Leasing) -> None:
    device, first, second = leasing.device(), leasing.target(), leasing.target()
    leasing.launches(1, first)
    leasing.launches(2, second)
    items = leasing.claim(device).items
    leasing.report(device, *((item, done()) for item in items), busy_s=6.0)
    assert [(row.busy_s, row.measuring_s) for row in sorted(leasing.rows(Target), key=lambda row: row.id)] == [
        (2.0, 0.5),
        (4.0, 1.0),
    ]
    assert {row.state for row in leasing.rows(Launch)} == {"done"}


def test_another_memory_method_is_refused(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target)
    (item,) = leasing.claim(device).items
    result = done()
    assert result.memory is not None
    other = result.model_copy(update={"memory": result.memory.model_copy(update={"method": "resident"})})
    with pytest.raises(InvalidInput, match="'anonymous', not 'resident'") as caught:
        leasing.report(device, (item, other))
    assert caught.value.field == "reports.0.result.memory.method"
    assert leasing.launch(item.id).state == "leased"
    assert leasing.outcomes(device, (item, result)) == ["accepted"]
