"""A job from its request to its end, with a device that answers at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from databases import ON_BOTH
from job_rows import candidates, launches
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, advance_target, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.states import WAITS
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.jobs import Limits
from edgefront.core.services import event_log
from edgefront.core.services.jobs.resolved import ResolvedJob
from edgefront.core.services.measuring import leases
from edgefront.core.services.quality import laws
from edgefront.core.services.search import snapshots
from edgefront.core.services.search.advance import advance, store
from edgefront.core.services.search.computing import MORE, ComputeStep, Step
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.tables import Candidate, Device, Generation, Job, Measurement, Target


def digests(service: Service, job_id: str) -> list[tuple[int, str, str]]:
    return [(row.generation, row.operator, row.digest) for row in candidates(service, job_id)]


@pytest.mark.parametrize(("disturbed", "said"), [(0, False), (4, False), (7, True)])
def test_a_search_beside_other_load_says_so(service: Service, disturbed: int, said: bool) -> None:
    """Of eight launches so many were."""

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        result = by_size()(architecture, protocol, before)
        made.append(result)
        conditions = "other load (3 threads run)" if len(made) % 8 < disturbed else None
        return result.model_copy(update={"environment": {**result.environment, "conditions": conditions}})

    made: list[LaunchResult] = []
    job = service.finish(SimulatedAgent(service.database, measure=measure), request())
    (target,) = job.targets
    assert ("were made in disturbed conditions" in target.note) == said, target.note


def test_a_job_runs_to_its_end(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.02))
    job = service.submit()
    assert job.targets[0].state == "baselines"
    assert job.targets[0].candidates == 3
    assert job.targets[0].planned == 3 + 10 + 8
    assert job.targets[0].reference is None
    service.run(agent)

    job = service.get(job.id)
    (target,) = job.targets
    assert (job.state, target.state, job.reason) == ("finished", "finished", None)
    assert target.note.startswith("The search ended: all 2 generations of the algorithm were made.")
    assert job.finished_at is not None
    assert target.candidates == target.settled == target.planned == 21
    assert target.generation == 1
    assert target.seconds_left == 0.0
    assert target.reference is not None
    assert target.hypervolume > 0
    assert target.frontier_size == sum(row.on_frontier for row in candidates(service, job.id)) > 0
    assert "faster" in target.summary or "slower" in target.summary
    assert all(row.launches >= 2 for row in candidates(service, job.id, "baseline"))
    assert all(row.latency_half_width_ms for row in candidates(service, job.id))
    assert target.launches_done == launches(service, "done")
    assert {row.seed for row in candidates(service, job.id)} == {7}
    check_events(service, job.id)
    check_rows(service, job.id)


def check_events(service: Service, job_id: str) -> None:
    """They are complete, without gaps."""
    with service.database.read() as session:
        log = event_log.read(session, job_id, 0, 1000)
        assert [event.number for event in log] == list(range(1, len(log) + 1))
        assert log[-1].number == service.get(job_id).last_event
        assert event_log.read(session, job_id, log[4].number, 3) == log[5:8]
    target_states = [event.data["state"] for event in log if event.kind == "target_state"]
    assert target_states == ["searching", "refining", "finished"]
    assert [event.data["state"] for event in log if event.kind == "job_state"] == ["running", "finished"]
    assert [event.data for event in log if event.kind == "generation"] == [
        {"number": 0, "candidates": 10},
        {"number": 1, "candidates": 8},
    ]
    # What joined and left, replayed, is the frontier.
    frontier: set[str] = set()
    for event in log:
        if event.kind == "frontier":
            frontier = (frontier | set(event.data["joined"])) - set(event.data["left"])
            assert len(frontier) == event.data["size"]
    assert frontier == {row.id for row in candidates(service, job_id) if row.on_frontier}
    last = {event.data["id"]: event.data for event in log if event.kind == "candidate"}
    assert {row["state"] for row in last.values()} == {"measured"}
    # It says what changed; figures are read where they are.
    assert all(row.keys() == {"id", "number", "role", "state", "reason"} for row in last.values())
    assert len(last) == 21


def check_rows(service: Service, job_id: str) -> None:
    """They hold together."""
    with service.database.read() as session:
        stored = session.get_one(Job, job_id)
        assert JOB_REQUEST.read(stored.request) == request().model_copy(update={"name": stored.name})
        for row in session.scalars(select(Candidate)):
            measurement = session.get_one(Measurement, row.measurement_id)
            assert (measurement.digest, measurement.seed) == (row.digest, row.seed)
            assert measurement.latency_ms == row.latency_ms
            assert measurement.memory_bytes == row.memory_bytes
            assert measurement.launches == row.launches
            assert Architecture.parse(row.architecture).digest == row.digest


@ON_BOTH
def test_every_generation_follows_from_its_snapshot(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.05))
    asked = request(algorithm={"name": "lts", "settings": {"iterations": 4, "population": 10}})
    job = service.finish(agent, asked)
    with service.database.read() as session:
        plan = ResolvedJob.of(asked, laws.scaling_law_of_request(session, "ann", asked)).plan(
            MeasurementProtocol(), Limits()
        )
        target = session.scalars(select(Target)).one()
        stored = session.scalars(select(Generation).order_by(Generation.number)).all()
        assert [row.number for row in stored] == [0, 1, 2, 3]
        assert stored[0].snapshot == []
        assert len(stored[3].snapshot) < 10 + 8 + 8 + 8  # changes alone are stored
        for row in stored:
            snapshot = snapshots.restore(session, target.id, row.number)
            proposed = plan.algorithm.ask(target.seed, row.number, snapshot)
            kept = [candidate for candidate in candidates(service, job.id) if candidate.generation == row.number]
            assert [proposal.architecture.digest for proposal in proposed] == [candidate.digest for candidate in kept]
            assert [proposal.parents for proposal in proposed] == [tuple(candidate.parents) for candidate in kept]
        assert len(snapshot.results) == 10 + 8 + 8


def test_proposals_depend_only_on_seed_and_results(service: Service) -> None:
    """Without noise two services, and batches of any size, come to the same candidates; another seed to others."""
    agent = SimulatedAgent(service.database)
    one = service.submit()
    service.run(agent, max_items=8)
    two = service.submit(request(seed=7, name="again"))
    service.run(agent, max_items=1)
    other = service.finish(agent, request(seed=8))
    assert digests(service, one.id) == digests(service, two.id)
    assert digests(service, one.id) != digests(service, other.id)


class Killed(Exception):
    pass


def test_a_worker_killed_at_any_step_changes_nothing(service: Service) -> None:
    """Each step is undone once before it is done, or its result lost: nothing is lost, nothing doubled."""
    agent = SimulatedAgent(service.database)
    undisturbed = service.finish(agent, request())

    job = service.create(request(name="disturbed", seed=9))
    steps = computed = 0
    for _ in range(200):
        while service.inbox:
            target_id = service.inbox.pop(0)
            step = MORE
            while step.more:
                with suppress(Killed), service.database.write() as session:
                    advance(session, target_id, service.database.now(session))
                    raise Killed
                with service.database.write() as session:
                    step = advance(session, target_id, service.database.now(session))
                steps += 1
                if step.compute is not None:
                    step = computed_by_another(service, step.compute)
                    computed += 1
        if not agent.step():
            break
    assert (steps >= 6, computed) == (True, 3)
    assert service.get(job.id).state == "finished"
    reference = service.finish(agent, request(name="reference", seed=9))
    assert digests(service, job.id) == digests(service, reference.id)
    assert len(candidates(service, undisturbed.id)) == len(candidates(service, job.id)) == 18


def computed_by_another(service: Service, step: ComputeStep) -> Step:
    """The worker that computed the step dies while it stores; another is given the same."""
    computed = step.compute()
    with suppress(Killed), service.database.write() as session:
        store(session, step, computed, service.database.now(session))
        raise Killed
    with service.database.write() as session:
        again = advance(session, step.target_id, service.database.now(session)).compute
    assert again is not None
    assert again.snapshot == step.snapshot
    assert again.compute() == computed
    with service.database.write() as session:
        return store(session, again, computed, service.database.now(session))


def test_tasks_may_come_twice_or_late_or_for_deleted_rows(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    job = service.create()
    (target,) = job.targets
    for _ in range(100):
        for _ in range(3):
            advance_target(service.database, target.id)
        service.inbox.clear()
        if not agent.step(3):
            break
    job = service.get(job.id)
    assert job.state == "finished"
    assert len(candidates(service, job.id)) == 18
    assert len({row.digest for row in candidates(service, job.id)}) == 18
    advance_target(service.database, target.id)
    advance_target(service.database, "tgt_unknown")
    assert service.get(job.id) == job


def test_targets_search_by_themselves(service: Service) -> None:
    slow = SimulatedAgent(service.database, device_class="slow board")
    fast = SimulatedAgent(service.database, device_class="fast board")
    targets = [
        {"device": slow.name},
        {"device_class": "fast board"},
        {"device_class": "fast board", "protocol": {"runtime": "pytorch"}},
    ]
    job = service.submit(request(targets=targets))
    service.run(fast)
    job = service.get(job.id)
    assert [target.state for target in job.targets] == ["baselines", "finished", "finished"]
    assert job.state == "running"
    service.run(slow)
    assert service.get(job.id).state == "finished"
    of_target: dict[str, list[str]] = {}
    for row in candidates(service, job.id):
        of_target.setdefault(row.target_id, []).append(row.digest)
    assert len({tuple(places) for places in of_target.values()}) == 3


def test_time_left_follows_the_pace(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(0.02))
    job = service.submit()
    assert job.targets[0].seconds_left is None
    assert job.targets[0].devices_online == 0
    assert "no agent is online for class 'simulated board'" in job.targets[0].note
    agent.step(4)
    job = service.get(job.id)
    assert job.targets[0].devices_online == 1
    assert job.targets[0].note == ""
    assert job.targets[0].seconds_left is not None
    assert job.targets[0].measuring_share == pytest.approx(0.7)


def test_a_device_that_waits_for_another_measurement_says_so(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(0.02))
    job = service.submit()
    lease = agent.lease(1)
    launch = lease.items[0]
    with service.database.write() as session:
        leases.start(session, agent.device_id, launch.id, launch.fence, service.database.now(session), WAITS)
        assert session.get_one(Device, agent.device_id).conditions == WAITS
    assert service.get(job.id).targets[0].note == f"The device {WAITS}."
    agent.report(lease)
    assert service.get(job.id).targets[0].note == ""
