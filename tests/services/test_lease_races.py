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
from lease_world import World, crashed, done, unsupported
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
def test_claimers_never_share_a_launch(world: World) -> None:
    world.launches(60)
    claimed: list[str] = []

    def agent(device: str) -> Callable[[], None]:
        def work() -> None:
            while True:
                with world.database.write() as session:
                    items = launches.claim(session, device, 3, world.now, 60.0).items
                if not items:
                    return
                claimed.extend(item.id for item in items)

        return work

    machines = [world.device(f"device {index}") for index in range(4)]
    at_once(*(agent(device) for device in machines))
    # A claim passes over what another is claiming, so an agent may stop early, but never all of them.
    while items := world.claim(machines[0]).items:
        claimed.extend(item.id for item in items)
    assert Counter(claimed) == Counter({row.id: 1 for row in world.rows(Launch)})
    assert {row.fence for row in world.rows(Launch)} == {1}


@ON_BOTH
@pytest.mark.slow
def test_agents_sweepers_and_users_at_once_lose_nothing(world: World) -> None:
    first, second = world.target(planned=40), world.target(planned=40)
    shared = [world.candidate(first, proxy=10.0 + index)[0] for index in range(30)]
    for measurement in shared:
        world.candidate(second, measurement=measurement, launches=0)
    world.launches(10, second)
    finished = threading.Event()
    root = keys.Principal("k", "root", "root", "admin")

    def agent(device: str, seed: int) -> Callable[[], None]:
        draw = random.Random(seed)

        def work() -> None:
            # A claim passes over what others have locked: that it finds nothing does not say that nothing is left.
            while any(row.state in LIVE_LAUNCHES for row in world.rows(Launch)) and not finished.is_set():
                with world.database.write() as session:
                    lease = launches.claim(session, device, 4, world.now, 60.0)
                for item in lease.items:
                    _start(world, device, item.id, item.fence)
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
                    with world.database.write() as session:
                        launches.report(session, device, ReportRequest(reports=tuple(told)), world.now)

        return work

    def sweeper() -> None:
        while not finished.is_set():
            world.sweep()
            world.process()

    def user() -> None:
        while not finished.is_set():
            with world.database.write() as session:
                devices.drain_device(session, root, "device 0", world.now)
                devices.activate_device(session, root, "device 0", world.now)
            with world.database.write() as session:
                session.get_one(Target, first)
                demand.withdraw(session, [], world.now)

    machines = [world.device(f"device {index}") for index in range(4)]

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
    assert {row.state for row in world.rows(Launch)} <= {"done", "failed"}
    assert all(row.state in ("measured", "failed") for row in world.rows(Candidate))
    assert all(row.settled == row.candidates for row in world.rows(Target))
    by_job: dict[str, list[int]] = {}
    for event in world.rows(Event):
        by_job.setdefault(event.job_id, []).append(event.number)
    for numbers in by_job.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def _start(world: World, device: str, launch_id: str, fence: int) -> None:
    with world.database.write() as session:
        leases.start(session, device, launch_id, fence, world.now)


@ON_BOTH
def test_one_launch_reported_by_two_at_once_counts_once(world: World) -> None:
    first, second = world.device("first"), world.device("second")
    world.launches(1)
    old = world.claim(first).items[0]
    world.tick(61)
    world.sweep()
    new = world.claim(second).items[0]
    outcomes: list[str] = []

    def tell(device: str, item: object, latency: float) -> Callable[[], None]:
        return lambda: outcomes.extend(world.outcomes(device, (item, done(latency))))  # type: ignore[arg-type]

    at_once(tell(first, old, 10.0), tell(second, new, 20.0), tell(first, old, 10.0))
    accepted = Counter(outcomes)
    assert accepted["accepted"] == 1
    assert len(outcomes) == 3
    (candidate,) = world.rows(Candidate)
    assert (candidate.state, candidate.launches) == ("measured", 1)


@ON_BOTH
def test_a_heartbeat_and_the_sweeper_agree(world: World) -> None:
    """Either the heartbeat came in time and the lease lives, or it ended and the launch is free: never both."""
    device = world.device()
    for _ in range(10):
        (launch,) = world.launches(1)
        lease = world.claim(device)
        world.tick(59.99)
        late = World(world.database, now=world.now)
        late.tick(0.02)
        said: list[str] = []

        def beat(lease: object = lease, said: list[str] = said) -> None:
            try:
                world.heartbeat(device, lease)  # type: ignore[arg-type]
                said.append("alive")
            except (Gone, Conflict):
                said.append("gone")

        at_once(beat, late.sweep)
        ended = world.row(Lease, lease.lease_id or "").ended_at is not None
        assert (said == ["gone"]) == ended == (world.launch(launch).state == "wanted")
        world.tick(200)
        world.sweep()
        world.report(device, *((item, done()) for item in world.claim(device).items))


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_two_reports_at_once_note_both_protocols_that_a_device_cannot_run(world: World) -> None:
    device = world.device()
    protocols = [MeasurementProtocol(sequence_length=length) for length in (32, 64)]
    for protocol in protocols:
        world.launches(1, world.target(protocol=protocol))
    first, second = world.claim(device).items
    late = threading.Thread(target=world.append, args=(device, (second, unsupported())))
    with world.write() as session:
        told = LaunchReport(launch_id=first.id, fence=first.fence, result=unsupported())
        launches.report(session, device, ReportRequest(reports=(told,), busy_s=0.0), world.now)
        late.start()
        while not waiting_for_locks(world):
            time.sleep(0.01)
    late.join()
    notes = [name for name in world.row(Device, device).facts["extra"] if name.startswith("unsupported:")]
    assert sorted(notes) == sorted(f"unsupported:{protocol.digest[:16]}" for protocol in protocols)


def waiting_for_locks(world: World) -> int:
    """Transactions of this database that wait for another."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with world.database.read() as session:
        return int(session.scalar(text(query)) or 0)
