"""Baselines, candidates, targets and devices of a job that fail."""

from __future__ import annotations

from databases import ON_BOTH
from job_rows import candidates
from simulated_agent import CLASS, SimulatedAgent, by_size, failing, principal
from simulated_service import Service, advance_target, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.services.measuring import leases
from edgefront.core.services.search.stalled import stalled
from edgefront.core.store.tables import Launch


def test_some_baselines_may_fail(service: Service) -> None:
    plain = by_size()

    def deep_ones_fail(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        if len(architecture.blocks) == 6 and architecture.d_model == 192:
            return failing("out_of_memory")(architecture, protocol, before)
        return plain(architecture, protocol, before)

    agent = SimulatedAgent(service.database, deep_ones_fail)
    job = service.finish(agent, request())
    assert job.targets[0].note.startswith("1 of 3 baselines could not be measured")
    assert job.targets[0].reference is not None


def test_failures_are_no_parents_and_do_not_stop_a_search(service: Service) -> None:
    plain = by_size()

    def some_crash(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        if architecture.d_model == 128 and int(architecture.digest[:8], 16) % 2:  # never five one after another
            return failing("crashed")(architecture, protocol, before)
        return plain(architecture, protocol, before)

    agent = SimulatedAgent(service.database, some_crash)
    job = service.finish(agent, request())
    rows = candidates(service, job.id)
    failed = {row.id for row in rows if row.state == "failed"}
    assert failed
    assert not failed & {parent for row in rows for parent in row.parents}
    assert all("crashed" in str(row.reason) for row in rows if row.id in failed)


@ON_BOTH
def test_a_search_in_which_nothing_can_be_measured_ends(service: Service) -> None:
    plain = by_size()

    def only_baselines(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        stock = architecture.d_model == 192 and {getattr(b, "d_inner", 640) for b in architecture.blocks} == {640}
        measure = plain if stock else failing("out_of_memory")
        return measure(architecture, protocol, before)

    agent = SimulatedAgent(service.database, only_baselines)
    asked = request(algorithm={"name": "random", "settings": {"iterations": 50, "population": 4}})
    job = service.finish(agent, asked)
    assert "could be measured" in job.targets[0].note
    assert len(candidates(service, job.id)) < 50


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
    assert "None of the 3 baselines could be measured" in job.targets[1].note
    assert "out_of_memory" in job.targets[1].note


@ON_BOTH
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
    assert target.note == f"The target waits, because no agent is online for class {CLASS!r}."
    service.run(SimulatedAgent(service.database))
    assert service.get(job.id).state == "finished"


def test_a_protocol_that_turns_out_unsupported_is_reported(service: Service) -> None:
    agent = SimulatedAgent(service.database, failing("unsupported"))
    job = service.submit()
    assert 0 < service.run(agent) <= BASELINE_LAUNCHES * 3  # no more than it had leased by then
    (target,) = service.get(job.id).targets
    assert (target.state, target.devices_online) == ("baselines", 1)
    assert target.note == (
        f"The target waits, because no agent online for class {CLASS!r} can measure onnxruntime on cpu in float32 "
        "(simulated). Start an agent that can, or restart the agent."
    )
    able = SimulatedAgent(service.database)
    able.step()
    assert service.get(job.id).targets[0].note == ""


def revoke(service: Service, agent: SimulatedAgent) -> None:
    admin = principal(service.database, owner="admin", role="admin")
    with service.database.write() as session:
        leases.revoke_device(session, admin, agent.name, service.database.now(session))
