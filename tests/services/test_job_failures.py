"""Baselines, candidates, targets and devices of a job that fail."""

from __future__ import annotations

from databases import ON_BOTH
from job_rows import candidates
from simulated_agent import CLASS, SimulatedAgent, by_size, failing, principal
from simulated_service import Service, advance_target, request
from sqlalchemy import update

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.states import DeviceState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.services.measuring import leases
from edgefront.core.store.tables import Device


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
def test_the_targets_of_a_revoked_device_wait_until_it_is_enrolled_again(service: Service) -> None:
    revoked, kept = SimulatedAgent(service.database), SimulatedAgent(service.database)
    job = service.submit(request(targets=[{"device": revoked.name}, {"device": kept.name}]))
    revoked.step(2)
    revoke(service, revoked)
    for target in job.targets:
        advance_target(service.database, target.id)
    waiting, going_on = service.get(job.id).targets
    assert (waiting.state, going_on.state) == ("baselines", "baselines")
    assert waiting.note == (
        f"The device {revoked.name!r} is revoked, and no other is online for device {revoked.name!r}. The device's "
        "owner or an admin may enrol it again (`edgefront device reenrol`); or add a target on another device to the "
        "job."
    )
    service.run(kept)
    assert [target.state for target in service.get(job.id).targets] == ["baselines", "finished"]
    with service.database.write() as session:
        session.execute(update(Device).where(Device.id == revoked.device_id).values(state=DeviceState.ACTIVE))
    service.run(revoked)
    assert [target.state for target in service.get(job.id).targets] == ["finished", "finished"]
    assert service.get(job.id).state == "finished"


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
