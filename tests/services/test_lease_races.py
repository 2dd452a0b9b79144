"""Many at once on a real Postgres (and on SQLite): nothing handed out twice, nothing lost, no deadlock."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from concurrency import at_once
from databases import ON_BOTH
from leasing import Leasing, crashed, done, unsupported
from sqlalchemy import text

from edgefront.core.common.errors import Conflict, Gone
from edgefront.core.common.states import LIVE_LAUNCHES
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import LaunchReport, ReportRequest
from edgefront.core.services.access import keys
from edgefront.core.services.fleet import devices
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import launches, leases
from edgefront.core.store.tables import Candidate, Device, Event, Launch, Lease, Target


@ON_BOTH
def test_claimers_never_share_a_launch(leasing: Leasing) -> None:
    leasing.launches(60)
    claimed: list[str] = []

    def agent(device: str) -> Callable[[], None]:
        def work() -> None:
            while True:
                with leasing.database.write() as session:
                    items = launches.claim(session, device, 3, leasing.now, 60.0).items
                if not items:
                    return
                claimed.extend(item.id for item in items)

        return work

    machines = [leasing.device(f"device {index}") for index in range(4)]
    at_once(*(agent(device) for device in machines))
    # A claim passes over what another is claiming, so an agent may stop early, but never all of them.
    while items := leasing.claim(machines[0]).items:
        claimed.extend(item.id for item in items)
    assert Counter(claimed) == Counter({row.id: 1 for row in leasing.rows(Launch)})
    assert {row.fence for row in leasing.rows(Launch)} == {1}


@ON_BOTH
@pytest.mark.slow
def test_agents_sweepers_and_users_at_once_lose_nothing(leasing: Leasing) -> None:
    first, second = leasing.target(planned=40), leasing.target(planned=40)
    shared = [leasing.candidate(first, proxy=10.0 + index)[0] for index in range(30)]
    for measurement in shared:
        leasing.candidate(second, measurement=measurement, launches=0)
    leasing.launches(10, second)
    finished = threading.Event()
    root = keys.Principal("k", "root", "root", "admin")

    def agent(device: str, seed: int) -> Callable[[], None]:
        draw = random.Random(seed)

        def work() -> None:
            # A claim passes over what others have locked: that it finds nothing does not say that nothing is left.
            while any(row.state in LIVE_LAUNCHES for row in leasing.rows(Launch)) and not finished.is_set():
                with leasing.database.write() as session:
                    lease = launches.claim(session, device, 4, leasing.now, 60.0)
                for item in lease.items:
                    _start(leasing, device, item.id, item.fence)
                told = [
                    LaunchReport(
                        launch_id=item.id,
                        fence=item.fence,
                        result=crashed()
                        if draw.random() < 0.2
                        else done(draw.uniform(5, 6), (64 << 20) + draw.randrange(1000)),
                    )
                    for item in lease.items
                ]
                if told:
                    draw.shuffle(told)
                    with leasing.database.write() as session:
                        launches.report(session, device, ReportRequest(reports=tuple(told)), leasing.now)

        return work

    def sweeper() -> None:
        while not finished.is_set():
            leasing.sweep()
            leasing.process()

    def user() -> None:
        while not finished.is_set():
            with leasing.database.write() as session:
                devices.drain_device(session, root, "device 0", leasing.now)
                devices.activate_device(session, root, "device 0", leasing.now)
            with leasing.database.write() as session:
                session.get_one(Target, first)
                demand.withdraw(session, [], leasing.now)

    machines = [leasing.device(f"device {index}") for index in range(4)]

    def or_end(work: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                work()
            except BaseException:
                finished.set()  # what this agent holds would stay leased, and the others wait for it
                raise

        return guarded

    def agents() -> None:
        try:
            at_once(*(or_end(agent(device, index)) for index, device in enumerate(machines)))
        finally:
            finished.set()

    at_once(agents, sweeper, user)
    assert {row.state for row in leasing.rows(Launch)} <= {"done", "failed"}
    assert all(row.state in ("measured", "failed") for row in leasing.rows(Candidate))
    assert all(row.settled == row.candidates for row in leasing.rows(Target))
    by_job: dict[str, list[int]] = {}
    for event in leasing.rows(Event):
        by_job.setdefault(event.job_id, []).append(event.number)
    for numbers in by_job.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def _start(leasing: Leasing, device: str, launch_id: str, fence: int) -> None:
    with leasing.database.write() as session:
        leases.start(session, device, launch_id, fence, leasing.now)


@ON_BOTH
def test_one_launch_reported_by_two_at_once_counts_once(leasing: Leasing) -> None:
    first, second = leasing.device("first"), leasing.device("second")
    leasing.launches(1)
    old = leasing.claim(first).items[0]
    leasing.tick(61)
    leasing.sweep()
    new = leasing.claim(second).items[0]
    outcomes: list[str] = []

    def tell(device: str, item: object, latency: float) -> Callable[[], None]:
        return lambda: outcomes.extend(leasing.outcomes(device, (item, done(latency))))  # type: ignore[arg-type]

    at_once(tell(first, old, 10.0), tell(second, new, 20.0), tell(first, old, 10.0))
    accepted = Counter(outcomes)
    assert accepted["accepted"] == 1
    assert len(outcomes) == 3
    (candidate,) = leasing.rows(Candidate)
    assert (candidate.state, candidate.launches) == ("measured", 1)


@ON_BOTH
def test_a_heartbeat_and_the_sweeper_agree(leasing: Leasing) -> None:
    """Either the heartbeat came in time and the lease lives, or it ended and the launch is free: never both."""
    device = leasing.device()
    for _ in range(10):
        (launch,) = leasing.launches(1)
        lease = leasing.claim(device)
        leasing.tick(59.99)
        late = Leasing(leasing.database, now=leasing.now)
        late.tick(0.02)
        said: list[str] = []

        def beat(lease: object = lease, said: list[str] = said) -> None:
            try:
                leasing.heartbeat(device, lease)  # type: ignore[arg-type]
                said.append("alive")
            except (Gone, Conflict):
                said.append("gone")

        at_once(beat, late.sweep)
        ended = leasing.row(Lease, lease.lease_id or "").ended_at is not None
        assert (said == ["gone"]) == ended == (leasing.launch(launch).state == "wanted")
        leasing.tick(200)
        leasing.sweep()
        leasing.report(device, *((item, done()) for item in leasing.claim(device).items))


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_two_reports_at_once_note_both_protocols_that_a_device_cannot_run(leasing: Leasing) -> None:
    device = leasing.device()
    protocols = [MeasurementProtocol(sequence_length=length) for length in (32, 64)]
    for protocol in protocols:
        leasing.launches(1, leasing.target(protocol=protocol))
    first, second = leasing.claim(device).items
    late = threading.Thread(target=leasing.append, args=(device, (second, unsupported())))
    with leasing.write() as session:
        told = LaunchReport(launch_id=first.id, fence=first.fence, result=unsupported())
        launches.report(session, device, ReportRequest(reports=(told,), busy_s=0.0), leasing.now)
        late.start()
        while not waiting_for_locks(leasing):
            time.sleep(0.01)
    late.join()
    notes = [name for name in leasing.row(Device, device).facts["extra"] if name.startswith("unsupported:")]
    assert sorted(notes) == sorted(f"unsupported:{protocol.digest[:16]}" for protocol in protocols)


def waiting_for_locks(leasing: Leasing) -> int:
    """Transactions of this database that wait for another."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with leasing.database.read() as session:
        return int(session.scalar(text(query)) or 0)
