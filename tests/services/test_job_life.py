"""A job from its request to its end, with a device that answers at once."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from databases import ON_SQLITE
from simulated_agent import CLASS, SimulatedAgent, by_size, done, facts, failing, principal
from simulated_service import Service, request
from sqlalchemy import func, select

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.events import read_events
from edgefront.core.services.jobs.plan import plan_for
from edgefront.core.services.jobs.progress import BASELINE_LAUNCHES
from edgefront.core.services.measuring import handover
from edgefront.core.services.search import snapshots
from edgefront.core.services.search.advance import CLAIM, advance, stalled, store
from edgefront.core.services.search.computing import ComputeStep
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.tables import Candidate, Generation, Job, Launch, Measurement, Target
from edgefront.core.wire.jobs import Limits
from edgefront.workers.searching import advance_target


def candidates(service: Service, job_id: str, role: str = "search") -> list[Candidate]:
    with service.database.read() as session:
        query = select(Candidate).where(Candidate.job_id == job_id, Candidate.role == role)
        return list(session.scalars(query.order_by(Candidate.target_id, Candidate.number)))


def launches(service: Service, state: str | None = None) -> int:
    with service.database.read() as session:
        query = select(func.count()).select_from(Launch)
        return int(session.scalar(query if state is None else query.where(Launch.state == state)) or 0)


def digests(service: Service, job_id: str) -> list[tuple[int, str, str]]:
    return [(row.generation, row.operator, row.digest) for row in candidates(service, job_id)]


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
    assert (job.state, target.state, job.reason, target.note) == ("finished", "finished", None, "")
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


def test_events_are_complete_without_gaps(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.02))
    job = service.submit()
    service.run(agent)
    with service.database.read() as session:
        log = read_events(session, job.id, 0, 1000)
        assert [event.number for event in log] == list(range(1, len(log) + 1))
        assert log[-1].number == service.get(job.id).last_event
        assert read_events(session, job.id, log[4].number, 3) == log[5:8]
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
    assert frontier == {row.id for row in candidates(service, job.id) if row.on_frontier}
    last = {event.data["id"]: event.data for event in log if event.kind == "candidate"}
    assert {row["state"] for row in last.values()} == {"measured"}
    assert len(last) == 21


def test_every_generation_follows_from_its_snapshot(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.05))
    asked = request(algorithm={"name": "lts", "settings": {"iterations": 4, "population": 10}})
    job = service.submit(asked)
    service.run(agent)
    plan = plan_for(asked, MeasurementProtocol(), Limits())
    with service.database.read() as session:
        target = session.scalars(select(Target)).one()
        stored = session.scalars(select(Generation).order_by(Generation.number)).all()
        assert [row.number for row in stored] == [0, 1, 2, 3]
        assert stored[0].snapshot == []
        assert len(stored[3].snapshot) < 10 + 8 + 8 + 8  # changes alone are stored
        for row in stored:
            snapshot = snapshots.restore(session, target.id, row.number)
            proposed = plan.algorithm.ask(target.seed, row.number, snapshot)
            kept = [one for one in candidates(service, job.id) if one.generation == row.number]
            assert [one.architecture.digest for one in proposed] == [one.digest for one in kept]
            assert [one.parents for one in proposed] == [tuple(one.parents) for one in kept]
        assert len(snapshot.results) == 10 + 8 + 8


@ON_SQLITE
def test_proposals_depend_only_on_seed_and_results(service: Service) -> None:
    """Without noise two services, and batches of any size, come to the same candidates; another seed to others."""
    agent = SimulatedAgent(service.database)
    one = service.submit()
    service.run(agent, max_items=8)
    two = service.submit(request(seed=7, name="again"))
    service.run(agent, max_items=1)
    other = service.submit(request(seed=8))
    service.run(agent)
    assert digests(service, one.id) == digests(service, two.id)
    assert digests(service, one.id) != digests(service, other.id)


class Killed(Exception):
    pass


def test_a_worker_killed_at_any_step_changes_nothing(service: Service) -> None:
    """Each step is undone once before it is done, or its result lost: nothing is lost, nothing doubled."""
    agent = SimulatedAgent(service.database)
    undisturbed = service.submit()
    service.run(agent)

    job = service.create(request(name="disturbed", seed=9))
    steps = computed = 0
    for _ in range(200):
        while service.inbox:
            target_id = service.inbox.pop(0)
            more: object = True
            while more:
                with suppress(Killed), service.database.write() as session:
                    advance(session, target_id, service.database.now(session))
                    raise Killed
                with service.database.write() as session:
                    more = advance(session, target_id, service.database.now(session))
                steps += 1
                if isinstance(more, ComputeStep):
                    more = computed_by_another(service, more)
                    computed += 1
        if not agent.step():
            break
    assert (steps >= 6, computed) == (True, 3)
    assert service.get(job.id).state == "finished"
    reference = service.submit(request(name="reference", seed=9))
    service.run(agent)
    assert digests(service, job.id) == digests(service, reference.id)
    assert len(candidates(service, undisturbed.id)) == len(candidates(service, job.id)) == 18


def computed_by_another(service: Service, step: ComputeStep) -> bool:
    """The worker that computed the step dies while it stores; another is given the same, once the claim has run out."""
    computed = step.compute()
    with suppress(Killed), service.database.write() as session:
        store(session, step, computed, service.database.now(session))
        raise Killed
    with service.database.write() as session:
        again = advance(session, step.target_id, service.database.now(session) + CLAIM)
    assert isinstance(again, ComputeStep)
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


def test_lost_tasks_are_found_by_the_sweep(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    job = service.create()
    for _ in range(200):
        service.inbox.clear()  # a broker that loses everything
        with service.database.write() as session:
            waiting = stalled(session, service.database.now(session))
        for target_id in waiting:
            advance_target(service.database, target_id)
        if not agent.step() and service.get(job.id).state == "finished":
            break
    assert len(candidates(service, job.id)) == 18
    with service.database.write() as session:
        assert stalled(session, service.database.now(session)) == []


def test_existing_measurements_are_reused(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    first = service.submit()
    service.run(agent)
    before = launches(service)
    second = service.submit(request(name="the same once more"))
    assert second.state == "finished"
    assert launches(service) == before
    assert digests(service, first.id) == digests(service, second.id)
    one, two = service.get(first.id).targets[0], second.targets[0]
    assert (one.hypervolume, one.frontier_size, one.summary) == (two.hypervolume, two.frontier_size, two.summary)
    assert two.launches_done == 0
    # Another seed has other weights: its measurements are its own.
    service.submit(request(seed=8))
    assert launches(service) > before


def test_jobs_that_want_the_same_share_the_launch(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    first, second = service.submit(), service.submit(request(name="twin"))
    assert launches(service) == BASELINE_LAUNCHES * 3  # not twice as many
    service.run(agent)
    assert service.get(first.id).state == service.get(second.id).state == "finished"
    assert launches(service, "done") == BASELINE_LAUNCHES * 3 + 10 + 8
    assert digests(service, first.id) == digests(service, second.id)


def test_weights_beyond_the_memory_are_infeasible_without_a_launch(service: Service) -> None:
    agent = SimulatedAgent(service.database, device_facts=facts(memory_bytes=23 << 20))
    job = service.submit()
    service.run(agent)
    settled = candidates(service, job.id) + candidates(service, job.id, "baseline")
    heavy = [row for row in settled if row.weight_bytes > 23 << 20]
    assert heavy
    assert len(heavy) < len(settled)
    assert all(row.state == "infeasible" and "24 MB" in str(row.reason) for row in heavy)
    assert not any(row.measurement_id for row in heavy)
    assert service.get(job.id).targets[0].settled == len(settled)


def test_limits_put_candidates_out_of_bounds(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    free = service.submit()
    service.run(agent)
    latencies = sorted(row.latency_ms or 0.0 for row in candidates(service, free.id))
    middle = latencies[len(latencies) // 2]
    job = service.submit(request(targets=[{"device_class": CLASS, "limits": {"latency_ms": middle}}]))
    service.run(agent)
    rows = candidates(service, job.id)
    for row in rows:
        assert row.latency_ms is not None
        assert row.state == ("measured" if row.latency_ms <= middle else "out_of_bounds")
        assert (row.reason is None) == (row.state == "measured")
        assert not (row.on_frontier and row.state == "out_of_bounds")
    beyond = {row.id for row in rows if row.state == "out_of_bounds"}
    assert beyond
    assert not beyond & {parent for row in rows for parent in row.parents}
    assert "above the limit" in next(str(row.reason) for row in rows if row.id in beyond)


def test_a_later_launch_moves_a_candidate_in_or_out(service: Service) -> None:
    """The second launch of a baseline is slower than the limit allows the median to be."""

    def slower(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        return done(10.0 if before == 0 else 19.0, 30 << 20)

    agent = SimulatedAgent(service.database, slower)
    asked = request(
        targets=[{"device_class": CLASS, "limits": {"latency_ms": 14.0}}], baseline_layers=[1], budget={"candidates": 1}
    )
    job = service.submit(asked)
    service.work()
    agent.step(1)
    (baseline,) = candidates(service, job.id, "baseline")
    assert (baseline.state, baseline.latency_ms, baseline.launches) == ("measured", 10.0, 1)
    agent.step(1)
    (baseline,) = candidates(service, job.id, "baseline")
    assert (baseline.state, baseline.latency_ms, baseline.launches) == ("out_of_bounds", 14.5, 2)


def test_weights_alone_beyond_the_memory_limit_are_never_proposed(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    asked = request(targets=[{"device_class": CLASS, "limits": {"memory_mb": 18}}])
    job = service.submit(asked)
    service.run(agent)
    rows = candidates(service, job.id)
    assert rows
    assert all(row.weight_bytes <= 18 * 10**6 for row in rows)


def test_parameter_limits_are_settled_before(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    asked = request(parameters={"min_decoder": 400_000, "max_decoder": 900_000, "max_total": 6_000_000})
    job = service.submit(asked)
    service.run(agent)
    rows = candidates(service, job.id)
    assert rows
    assert all(400_000 <= row.decoder_parameters <= 900_000 for row in rows)
    assert all(row.total_parameters <= 6_000_000 for row in rows)


def test_without_any_baseline_the_job_fails_and_says_why(service: Service) -> None:
    agent = SimulatedAgent(service.database, failing("over_time"))
    job = service.submit()
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "failed"
    assert "None of the 3 baselines could be measured" in job.targets[0].note
    assert "over_time" in job.targets[0].note
    assert job.reason == job.targets[0].note


def test_some_baselines_may_fail(service: Service) -> None:
    plain = by_size()

    def deep_ones_fail(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        if len(architecture.blocks) == 6 and architecture.d_model == 192:
            return failing("out_of_memory")(architecture, protocol, before)
        return plain(architecture, protocol, before)

    agent = SimulatedAgent(service.database, deep_ones_fail)
    job = service.submit()
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished"
    assert job.targets[0].note.startswith("1 of 3 baselines could not be measured")
    assert job.targets[0].reference is not None


def test_failures_are_no_parents_and_do_not_stop_a_search(service: Service) -> None:
    plain = by_size()

    def some_crash(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        if architecture.d_model == 128 and int(architecture.digest[:8], 16) % 2:  # never five one after another
            return failing("crashed")(architecture, protocol, before)
        return plain(architecture, protocol, before)

    agent = SimulatedAgent(service.database, some_crash)
    job = service.submit()
    service.run(agent)
    rows = candidates(service, job.id)
    failed = {row.id for row in rows if row.state == "failed"}
    assert failed
    assert service.get(job.id).state == "finished"
    assert not failed & {parent for row in rows for parent in row.parents}
    assert all("crashed" in str(row.reason) for row in rows if row.id in failed)


def test_a_search_in_which_nothing_can_be_measured_ends(service: Service) -> None:
    plain = by_size()

    def only_baselines(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        stock = architecture.d_model == 192 and {getattr(b, "d_inner", 640) for b in architecture.blocks} == {640}
        return plain(architecture, protocol, before) if stock else failing("over_time")(architecture, protocol, before)

    agent = SimulatedAgent(service.database, only_baselines)
    asked = request(algorithm={"name": "random", "settings": {"iterations": 50, "population": 4}})
    job = service.submit(asked)
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished"
    assert "could be measured" in job.targets[0].note
    assert len(candidates(service, job.id)) < 50


def test_the_budget_of_candidates_is_exact(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit(request(budget={"candidates": 13}))
    assert job.targets[0].planned == 16
    service.run(agent)
    rows = candidates(service, job.id)
    assert [row.generation for row in rows] == [0] * 10 + [1] * 3
    assert service.get(job.id).targets[0].candidates == 16


def test_refinement_stays_within_its_budget(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.3))
    job = service.submit(request(budget={"refinement": 0.5}))
    service.run(agent)
    none = service.submit(request(budget={"refinement": 0}, seed=11))
    service.run(agent)
    with service.database.read() as session:
        targets = {row.job_id: row for row in session.scalars(select(Target))}
        purposes = session.execute(select(Launch.target_id, Launch.purpose)).all()
    refined = [row for row in purposes if row.purpose == "refinement"]
    assert 0 < targets[job.id].refinements <= 9
    assert len(refined) == targets[job.id].refinements
    assert targets[none.id].refinements == 0
    assert service.get(none.id).state == "finished"


def test_the_minutes_of_targets_on_one_device_begin_with_the_first_launch_there(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    targets = [{"device_class": CLASS, "protocol": {"threads": threads}} for threads in (1, 2)]
    service.submit(request(budget={"minutes": 5.0}, targets=targets))
    with service.database.read() as session:
        begin = service.database.now(session)
    agent.step(1)
    service.work()
    with service.database.write() as session:
        first, second = session.scalars(select(Target).order_by(Target.position)).all()
        assert second.started_at is None
        assert first.started_at is not None
        assert begin - first.started_at > timedelta(seconds=0.5), "the launch itself took a second, by its report"
        first.started_at -= timedelta(minutes=5)
    with service.database.write() as session:
        assert set(stalled(session, service.database.now(session))) == {first.id, second.id}


@pytest.mark.parametrize(("minutes", "words"), [(5.0, "of 5 minutes was"), (1.0, "of 1 minute was")])
def test_the_budget_of_minutes_ends_a_target(service: Service, minutes: float, words: str) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit(request(budget={"minutes": minutes}))
    agent.step(BASELINE_LAUNCHES * 3)
    service.work()
    with service.database.write() as session:
        target = session.scalars(select(Target)).one()
        assert target.started_at is not None
        now = service.database.now(session)
        assert stalled(session, now) == []
        target.started_at = target.started_at.replace(year=target.started_at.year - 1)
    with service.database.write() as session:
        assert stalled(session, service.database.now(session)) == [target.id]
    agent.step()  # a report finds it out as well
    service.work()
    job = service.get(job.id)
    assert job.state == "finished"
    assert words in job.targets[0].note
    assert not any(row.state == "waiting" for row in candidates(service, job.id))
    assert launches(service, "wanted") == 0


def test_a_small_space_is_searched_to_its_last_architecture(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    narrow = {"n_layer": [2], "d_model": [128], "n_head": [2], "d_inner": [256, 320]}
    asked = request(space={"name": "lts-gpt2", "narrow": narrow}, algorithm={"name": "lts"})
    job = service.submit(asked)
    assert job.targets[0].planned == 2 + 4
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished"
    assert len(candidates(service, job.id)) == 4


def test_targets_search_by_themselves(service: Service) -> None:
    slow = SimulatedAgent(service.database, device_class="slow board")
    fast = SimulatedAgent(service.database, device_class="fast board")
    targets = [
        {"device": slow.name},
        {"device_class": "fast board"},
        {"device_class": "fast board", "protocol": {"runtime": "pytorch"}},
    ]
    job = service.submit(request(targets=targets))
    assert [target.name for target in job.targets] == [
        f"{slow.name} onnxruntime",
        "fast board onnxruntime",
        "fast board pytorch",
    ]
    service.run(fast)
    job = service.get(job.id)
    assert [target.state for target in job.targets] == ["baselines", "finished", "finished"]
    assert job.state == "running"
    service.run(slow)
    assert service.get(job.id).state == "finished"
    of_target: dict[str, list[str]] = {}
    for row in candidates(service, job.id):
        of_target.setdefault(row.target_id, []).append(row.digest)
    assert len({tuple(found) for found in of_target.values()}) == 3


def test_one_target_may_fail_alone(service: Service) -> None:
    good = SimulatedAgent(service.database, device_class="good board")
    bad = SimulatedAgent(service.database, failing("out_of_memory"), device_class="bad board")
    job = service.submit(request(targets=[{"device_class": "good board"}, {"device_class": "bad board"}]))
    service.run(bad)
    service.run(good)
    job = service.get(job.id)
    assert job.state == "finished"
    assert [target.state for target in job.targets] == ["finished", "failed"]
    assert job.reason == "Failed on: bad board onnxruntime."


def test_a_revoked_device_fails_its_target_and_says_why(service: Service) -> None:
    revoked, kept = SimulatedAgent(service.database), SimulatedAgent(service.database)
    job = service.submit(request(targets=[{"device": revoked.name}, {"device": kept.name}]))
    paused = service.submit(request(targets=[{"device": revoked.name}]))
    service.act("pause", paused.id)
    revoked.step(2)
    revoke(service, revoked)
    with service.database.write() as session:
        due = stalled(session, service.database.now(session))
    assert due == [job.targets[0].id]
    advance_target(service.database, due[0])
    lost, going_on = service.get(job.id).targets
    assert (lost.state, going_on.state) == ("failed", "baselines")
    assert lost.note == (
        f"The device {revoked.name!r} was revoked. Enrol it again, or choose another, and submit the job again."
    )
    with service.database.read() as session:
        of_device = select(Launch.state).where(Launch.device_key == f"device:{revoked.device_id}")
        assert set(session.scalars(of_device)) <= {"done", "cancelled"}
    service.run(kept)
    assert service.get(job.id).state == "finished"
    assert service.get(job.id).reason == f"Failed on: {lost.name}."

    assert service.get(paused.id).state == "paused"
    service.act("resume", paused.id)
    service.work()
    assert service.get(paused.id).state == "failed"
    assert "was revoked" in (service.get(paused.id).reason or "")


def test_a_class_whose_last_device_is_revoked_waits_for_a_new_one(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit()
    revoke(service, agent)
    service.work()
    (target,) = service.get(job.id).targets
    assert (target.state, target.devices_online) == ("baselines", 0)
    assert target.note == f"No agent online for class {CLASS!r}: waiting for one."
    service.run(SimulatedAgent(service.database))
    assert service.get(job.id).state == "finished"


def test_a_protocol_that_turns_out_unsupported_is_reported(service: Service) -> None:
    agent = SimulatedAgent(service.database, failing("unsupported"))
    job = service.submit()
    assert 0 < service.run(agent) <= BASELINE_LAUNCHES * 3  # no more than it had leased by then
    (target,) = service.get(job.id).targets
    assert (target.state, target.devices_online) == ("baselines", 1)
    assert target.note == (
        f"No agent online for class {CLASS!r} can measure onnxruntime on cpu in float32 (simulated): waiting for one "
        "that can, or for a restart of its agent."
    )
    able = SimulatedAgent(service.database)
    able.step()
    assert service.get(job.id).targets[0].note == ""


def revoke(service: Service, agent: SimulatedAgent) -> None:
    admin = principal(service.database, owner="admin", role="admin")
    with service.database.write() as session:
        handover.revoke_device(session, admin, agent.name, service.database.now(session))


def test_time_left_follows_the_pace(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(0.02))
    job = service.submit()
    assert job.targets[0].seconds_left is None
    assert job.targets[0].devices_online == 0
    assert "No agent online for class 'simulated board'" in job.targets[0].note
    agent.step(4)
    job = service.get(job.id)
    assert job.targets[0].devices_online == 1
    assert job.targets[0].note == ""
    assert job.targets[0].seconds_left is not None
    assert job.targets[0].measuring_share == pytest.approx(0.7)


def test_every_algorithm_runs(sqlite_service: Service) -> None:
    agent = SimulatedAgent(sqlite_service.database)
    for name in ("random", "nsga2"):
        asked = request(algorithm={"name": name, "settings": {"iterations": 3, "population": 6}})
        job = sqlite_service.submit(asked)
        sqlite_service.run(agent)
        assert sqlite_service.get(job.id).state == "finished"
        assert len(candidates(sqlite_service, job.id)) == 18


def test_the_rows_hold_together(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(0.1))
    job = service.submit()
    service.run(agent)
    with service.database.read() as session:
        stored = session.get_one(Job, job.id)
        assert JOB_REQUEST.read(stored.request) == request()
        for row in session.scalars(select(Candidate)):
            measurement = session.get_one(Measurement, row.measurement_id)
            assert (measurement.digest, measurement.seed) == (row.digest, row.seed)
            assert measurement.latency_ms == row.latency_ms
            assert measurement.memory_bytes == row.memory_bytes
            assert measurement.launches == row.launches
            assert Architecture.parse(row.architecture).digest == row.digest


def test_other_users_cannot_see_it(service: Service) -> None:
    SimulatedAgent(service.database)
    job = service.submit()
    mine, service.user = service.user, principal(service.database, "bob")
    with pytest.raises(Exception, match="no job"):
        service.get(job.id)
    service.user = principal(service.database, "root", "admin")
    assert service.get(job.id).id == job.id
    service.user = mine
