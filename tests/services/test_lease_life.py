"""The life of launches under any order of events, against a model that is simple enough to be seen to be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from leasing import Leasing, crashed, done, out_of_memory
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, EdgefrontError, Gone
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.measuring.launches import GrantedLease
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Base, Candidate, Event, Job, Launch, Lease, Measurement

LAUNCHES = 4
_LAUNCHES = select(
    *(Launch.id, Launch.state, Launch.attempts, Launch.lease_id, Launch.measurement_id),
    Launch.purpose,
)
_MEASUREMENTS = select(Measurement.id, Measurement.state, Measurement.launches)
RESULTS = {"done": done(10.0), "crashed": crashed(), "infeasible": out_of_memory()}


@dataclass
class ModelLease:
    device: str
    response: GrantedLease
    expires: float
    ended: bool = False
    started: list[str] = field(default_factory=list)


@dataclass
class ModelLaunch:
    """What the documents say of a launch, in so many words."""

    state: str = "wanted"
    attempts: int = 0
    lease: ModelLease | None = None
    charged: set[int] = field(default_factory=set)  # fences that have cost an attempt
    fence: int = 0  # of the last claim
    counted: dict[tuple[int, str], str] = field(default_factory=dict)  # reports that counted
    holders: tuple[str | None, str | None] = (None, None)  # the last one and the one before, until it is given back

    def hold(self, device: str) -> None:
        self.holders = (device, self.holders[0])

    def back(self) -> None:
        self.lease = None
        self.state = "failed" if self.attempts >= 3 else "wanted"


class LeaseLife(RuleBasedStateMachine):
    """Two agents claim, start, beat, give back, die, and report late, twice, and what others hold."""

    database: Database

    @initialize()
    def begin(self) -> None:
        _empty(self.database)
        self.leasing = Leasing(self.database)
        self.devices = [self.leasing.device("a"), self.leasing.device("b")]
        self.time = 0.0
        target = self.leasing.target(refinement=0.0, planned=LAUNCHES)
        self.launches = {id_: ModelLaunch() for id_ in self.leasing.launches(LAUNCHES, target)}
        self.leases: list[ModelLease] = []
        self.held: list[tuple[str, LaunchRow]] = []  # every item that was ever handed out

    def alive(self, lease: ModelLease) -> bool:
        return not lease.ended and lease.expires > self.time

    @rule(device=st.sampled_from([0, 1]), count=st.integers(1, 3))
    def claim(self, device: int, count: int) -> None:
        wanted = sorted(id_ for id_, launch in self.launches.items() if launch.state == "wanted")
        response = self.leasing.claim(self.devices[device], count)
        claimed = [item.id for item in response.items]
        assert claimed == wanted[:count]
        if response.items:
            lease = ModelLease(self.devices[device], response, self.time + self.leasing.ttl_s)
            self.leases.append(lease)
            for item in response.items:
                launch = self.launches[item.id]
                assert item.fence > launch.fence
                launch.state, launch.lease, launch.fence = "leased", lease, item.fence
                launch.hold(self.devices[device])
                self.held.append((self.devices[device], item))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        device, item = data.draw(st.sampled_from(self.held))
        launch = self.launches[item.id]
        mine = launch.state == "leased" and launch.fence == item.fence and launch.lease is not None
        if mine and launch.lease is not None and self.alive(launch.lease):
            self.tick(0.001)  # no two starts at one instant
            self.leasing.start(device, item)
            if item.id not in launch.lease.started:
                launch.lease.started.append(item.id)
        else:
            with pytest.raises(Conflict):
                self.leasing.start(device, item)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if self.alive(lease):
            assert self.leasing.heartbeat(lease.device, lease.response) == ()
            lease.expires = self.time + self.leasing.ttl_s
        else:
            with pytest.raises(Gone):
                self.leasing.heartbeat(lease.device, lease.response)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.leasing.release(lease.device, lease.response)
        lease.ended = True
        for launch in self.launches.values():
            if launch.lease is lease:
                launch.back()
                launch.holders = (None, None)

    @rule(seconds=st.sampled_from([1.0, 20.0, 61.0]))
    def tick(self, seconds: float) -> None:
        self.time += seconds
        self.leasing.tick(seconds)

    @rule()
    def sweep(self) -> None:
        self.leasing.sweep()
        for lease in self.leases:
            if self.alive(lease) or lease.ended:
                continue
            lease.ended = True
            still = [id_ for id_ in lease.started if self.launches[id_].lease is lease]
            for launch in self.launches.values():
                if launch.lease is lease:
                    if still and launch is self.launches[still[-1]]:
                        launch.attempts += 1
                        launch.charged.add(launch.fence)
                    launch.back()

    @precondition(lambda self: any(self.measurable()))
    @rule(data=st.data())
    def lose_an_agent_while_it_measures(self, data: st.DataObject) -> None:
        lease, item = data.draw(st.sampled_from(list(self.measurable())))
        self.tick(0.001)
        self.leasing.start(lease.device, item)
        if item.id not in lease.started:
            lease.started.append(item.id)
        self.tick(2 * self.leasing.ttl_s)
        self.sweep()

    def measurable(self) -> Iterator[tuple[ModelLease, LaunchRow]]:
        for lease in self.leases:
            for item in lease.response.items if self.alive(lease) else ():
                if self.launches[item.id].lease is lease:
                    yield lease, item

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kind=st.sampled_from(sorted(RESULTS)))
    def report(self, data: st.DataObject, kind: str) -> None:
        device, item = data.draw(st.sampled_from(self.held))
        expected = self._expected(self.launches[item.id], device, item.fence, kind)
        assert self.leasing.outcomes(device, (item, RESULTS[kind])) == [expected]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(sorted(RESULTS)), min_size=2, max_size=4))
    def report_a_batch_but_crash(self, data: st.DataObject, kinds: list[str]) -> None:
        """The server dies before the commit: as if nothing had been sent."""
        device, item = data.draw(st.sampled_from(self.held))
        told = [(item, RESULTS[kind]) for kind in kinds]
        with pytest.raises(EdgefrontError, match="power cut"):
            self._report_and_die(device, told)

    def _report_and_die(self, device: str, told: list[tuple[LaunchRow, LaunchResult]]) -> None:
        class Dying:
            def __init__(self, database: Database) -> None:
                self.database = database

            def write(self) -> Any:
                return _dying(self.database)

        Leasing(Dying(self.database), now=self.leasing.now).report(device, *told)  # type: ignore[arg-type]

    def _expected(self, launch: ModelLaunch, device: str, fence: int, kind: str) -> str:
        if device not in launch.holders:
            return "conflict"
        if (fence, kind) in launch.counted:
            return "duplicate"
        if launch.state in ("done", "failed", "infeasible"):
            return "conflict"
        if kind == "crashed":
            if fence != launch.fence or fence in launch.charged:
                return "conflict"
            launch.attempts += 1
            launch.counted[fence, kind] = "accepted"
            launch.holders = (device, *(holder for holder in launch.holders if holder != device))[:2]  # type: ignore[assignment]
            if launch.state == "leased" or launch.attempts >= 3:
                launch.back()
            return "accepted"
        launch.counted[fence, kind] = "accepted"
        launch.state, launch.lease = kind, None
        return "accepted"

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        with self.database.read() as session:
            self.check(session)

    def check(self, session: Session) -> None:
        rows = {row.id: row for row in session.execute(_LAUNCHES)}
        self.learn_of_further_launches(rows)
        for id_, launch in self.launches.items():
            row = rows[id_]
            assert (row.state, row.attempts) == (launch.state, launch.attempts)
            assert (row.lease_id is not None) == (launch.state == "leased")
            if launch.lease is not None:
                assert row.lease_id == launch.lease.response.lease_id
        settled = 0
        for measurement in session.execute(_MEASUREMENTS).all():
            states = [self.launches[id_].state for id_, row in rows.items() if row.measurement_id == measurement.id]
            assert measurement.launches == states.count("done")
            if "done" in states:
                assert measurement.state == "measured"
            elif {"wanted", "leased"} & set(states):
                assert measurement.state == "wanted"
            else:
                assert measurement.state in states
            settled += measurement.state != "wanted"
        assert sum(state != "waiting" for state in session.scalars(select(Candidate.state))) == settled
        last = session.scalars(select(Job.last_event)).one()
        assert sorted(session.scalars(select(Event.number))) == list(range(1, last + 1))
        assert set(session.scalars(select(Lease.id))) == {lease.response.lease_id for lease in self.leases}

    def learn_of_further_launches(self, rows: Mapping[str, Any]) -> None:
        """What was infeasible once is launched a second time."""
        for id_ in rows.keys() - self.launches.keys():
            others = [
                self.launches[launch].state
                for launch in self.launches
                if rows[launch].measurement_id == rows[id_].measurement_id
            ]
            assert (rows[id_].purpose, others) == ("first", ["infeasible"])
            self.launches[id_] = ModelLaunch()


class _dying:  # noqa: N801
    """A write session whose process dies just before the commit."""

    def __init__(self, database: Database) -> None:
        self.inner = database.write()

    def __enter__(self) -> Any:
        return self.inner.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        if error[0] is None:
            cut = EdgefrontError("power cut")
            with suppress(EdgefrontError):
                self.inner.__exit__(EdgefrontError, cut, None)
            raise cut
        return self.inner.__exit__(*error)


def _empty(database: Database) -> None:
    with database.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(text(f'DELETE FROM "{table.name}"'))


def _run(database: Database, fewer: int) -> None:
    machine = type("BoundLeaseLife", (LeaseLife,), {"database": database})
    bounds = {"max_examples": settings.default.max_examples // fewer, "stateful_step_count": 20}  # type: ignore[union-attr]
    run_state_machine_as_test(machine, settings=settings(settings.default, **bounds))  # type: ignore[arg-type]


@pytest.mark.hypothesis
@pytest.mark.slow
def test_lease_life_on_sqlite(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    try:
        _run(database, 2)
    finally:
        database.dispose()


@pytest.mark.hypothesis
def test_lease_life_on_postgres(postgres_url: str) -> None:
    database = Database(postgres_url)
    try:
        _run(database, 5)
    finally:
        database.dispose()
