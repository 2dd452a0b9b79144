"""Which reports count, and what becomes of launches: pure functions of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from leasing import START, crashed, done, out_of_memory, unsupported

from edgefront.core.common.states import JobState, LaunchState, Purpose, TargetState
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import LaunchReport
from edgefront.core.services.measuring.decision import Evidence, decide, evaluate_report
from edgefront.core.services.measuring.queries.launches import LaunchRow

ROW = LaunchRow(
    id="l",
    measurement_id="m",
    target_id="t",
    device_key="class:lab",
    device_id="present",
    former_device_id="former",
    lease_id="lse",
    purpose=Purpose.FIRST,
    state=LaunchState.LEASED,
    turn=1.0,
    attempts=0,
    fence=5,
    reports=["sent before"],
    reason=None,
    busy_s=0.0,
    created_at=START,
    started_at=START,
    finished_at=None,
    digest="0" * 64,
    architecture="{}",
    protocol_json="{}",
    protocol_digest="p",
    seed=7,
    leased_at=START,
    target_state=TargetState.SEARCHING,
    job_state=JobState.RUNNING,
    stored_result=None,
)


@pytest.mark.parametrize(
    ("device", "fence", "result", "changes", "decision"),
    [
        ("present", 5, done(), {}, "done"),
        ("present", 5, out_of_memory(), {}, "infeasible"),
        ("present", 5, crashed(), {}, "retry"),
        ("present", 5, crashed(), {"attempts": 2}, "failed"),
        ("present", 5, unsupported(), {}, "reassign"),
        # a token of an earlier lease: results count, failures were charged when that lease ended
        ("present", 3, done(), {}, "done"),
        ("present", 3, crashed(), {}, "conflict"),
        ("former", 4, done(), {}, "done"),
        ("former", 4, out_of_memory(), {}, "infeasible"),
        ("former", 4, crashed(), {}, "conflict"),
        # tokens that the device never had
        ("former", 5, crashed(), {}, "not_lease_holder"),
        ("former", 5, done(), {}, "not_lease_holder"),
        ("present", 0, done(), {}, "not_lease_holder"),
        ("present", 6, done(), {}, "not_lease_holder"),
        ("stranger", 5, done(), {}, "not_lease_holder"),
        ("present", 5, done(), {"state": LaunchState.REPORTED}, "conflict"),
        ("present", 5, done(), {"state": LaunchState.CANCELLED}, "done"),
    ],
)
def test_whose_report_counts_as_what(
    device: str, fence: int, result: LaunchResult, changes: dict[str, Any], decision: str
) -> None:
    report = LaunchReport(launch_id="l", fence=fence, result=result)
    assert evaluate_report(ROW._replace(**changes), device, report, "digest") == decision
    holder = device != "stranger"
    assert evaluate_report(ROW._replace(**changes), device, report, "sent before") == (
        "duplicate" if holder else "not_lease_holder"
    )


def reported(*results: LaunchResult, **changes: Any) -> list[LaunchRow]:
    """Reported launches of one measurement."""
    row = ROW._replace(state=LaunchState.REPORTED, **changes)
    return [row._replace(id=f"l{number}", stored_result=result) for number, result in enumerate(results)]


IMPLAUSIBLE = "implausible: too fast"


@pytest.mark.parametrize(
    ("results", "others", "changes", "follow_ups"),
    [
        ([done()], {}, {}, ["aggregate"]),
        ([out_of_memory()], {}, {}, ["launch"]),
        ([out_of_memory(), out_of_memory()], {}, {}, ["end", "end"]),
        ([out_of_memory()], {"infeasible": 1, "leased": 1}, {}, ["end"]),
        ([out_of_memory()], {"leased": 1}, {}, [None]),
        ([crashed()], {}, {"attempts": 3}, ["end"]),
        ([crashed()], {"wanted": 1}, {"attempts": 3}, [None]),
        # a result of the same batch stands, whatever the others report
        ([done(), out_of_memory(), out_of_memory()], {}, {}, ["aggregate", None, None]),
        ([crashed(), done()], {}, {"attempts": 3}, [None, "aggregate"]),
    ],
)
def test_what_a_launch_does_to_its_measurement(
    results: list[LaunchResult], others: dict[str, int], changes: dict[str, Any], follow_ups: list[str | None]
) -> None:
    rows = reported(*results, **changes)
    states = {"m": Counter({LaunchState(state): count for state, count in others.items()} | {"reported": len(rows)})}
    decisions = decide(rows, Evidence(refusals={}, states=states, measured=(), needed=[row.id for row in rows]))
    assert [each.follow_up for each in decisions] == follow_ups
    measured = decide(rows, Evidence(refusals={}, states=states, measured=["m"], needed=[row.id for row in rows]))
    assert {each.follow_up for each in measured} <= {"aggregate", None}, "a result stays"


def test_two_implausible_launches_at_once_are_replaced_by_one() -> None:
    rows = reported(done(), done())
    evidence = Evidence(
        refusals={row.id: IMPLAUSIBLE for row in rows}, states={"m": Counter(reported=2)}, measured=(), needed=()
    )
    decisions = decide(rows, evidence)
    assert [(each.state, each.charge, each.follow_up) for each in decisions] == [
        (LaunchState.IMPLAUSIBLE, True, "launch"),
        (LaunchState.IMPLAUSIBLE, True, None),
    ]


@pytest.mark.parametrize(
    ("result", "changes", "needed", "state", "charge"),
    [
        (crashed(), {"attempts": 1}, True, LaunchState.WANTED, True),
        (crashed(), {"attempts": 1}, False, LaunchState.CANCELLED, True),
        (crashed(), {"attempts": 3}, True, LaunchState.FAILED, True),
        (crashed(), {"attempts": 1, "purpose": Purpose.ANCHOR}, True, LaunchState.FAILED, True),
        (unsupported(), {}, True, LaunchState.WANTED, None),
        (out_of_memory(), {}, True, LaunchState.INFEASIBLE, None),
        (done(), {}, True, LaunchState.DONE, False),
    ],
)
def test_the_state_of_a_launch_and_the_charge_of_its_device(
    result: LaunchResult, changes: dict[str, Any], needed: bool, state: LaunchState, charge: bool | None
) -> None:
    rows = reported(result, **changes)
    evidence = Evidence(refusals={}, states={"m": Counter(reported=1)}, measured=(), needed=["l0"] if needed else [])
    (decision,) = decide(rows, evidence)
    assert (decision.state, decision.charge) == (state, charge)
