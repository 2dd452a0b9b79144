"""Creating and listing jobs."""

from __future__ import annotations

from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from job_rows import count
from simulated_agent import CLASS, SimulatedAgent, facts, principal
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.architectures.catalogue import expressible, expressible_spaces, spaces
from edgefront.core.architectures.gguf import gguf_fault
from edgefront.core.common.errors import Conflict, Forbidden, InvalidInput, NotFound
from edgefront.core.schemas.agent import RuntimeFacts
from edgefront.core.search.interface import Proposal
from edgefront.core.search.registry import RandomSearch
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.capability import mark_unsupported
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.measuring import leases
from edgefront.core.store.tables import Candidate, Device, Job, Target


def test_the_same_key_makes_one_job(service: Service, agent: SimulatedAgent) -> None:
    first = service.create(key="k-1")
    assert service.create(key="k-1").id == first.id
    assert service.create(key="k-2").id != first.id
    assert service.create(key="k-1").id == first.id, "its own, not the newest"
    open_ = request(algorithm={}, proxy="auto")  # settled when it is submitted
    assert service.create(open_, key="k-3").id == service.create(open_, key="k-3").id
    assert service.create().id != service.create().id
    with pytest.raises(Conflict, match=first.id):
        service.create(request(seed=99), key="k-1")
    service.user = principal(service.database, "bob")
    assert service.create(key="k-1").id != first.id
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        service.create(key="k" * 201)


def test_nothing_is_held_while_a_job_is_planned(
    service: Service, agent: SimulatedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = RandomSearch.ask
    seen: list[int] = []

    def drawn(search: RandomSearch, *arguments: Any) -> tuple[Proposal, ...]:
        seen.append(service.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        principal(service.database, f"ann {len(seen)}")  # another write commits
        return draw(search, *arguments)

    monkeypatch.setattr(RandomSearch, "ask", drawn)
    service.create(key="k-1")
    assert seen == [0]
    service.create(key="k-1")
    assert seen == [0], "the same request is not planned again"


@ON_BOTH
def test_the_same_key_at_once_makes_one_job(service: Service, agent: SimulatedAgent) -> None:
    assert len(set(at_once(*[lambda: service.create(key="race").id] * 4))) == 1
    assert count(service, Job) == count(service, Target) == 1


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"space": {"name": "nowhere"}}, "space.name", "lts-gpt2"),
        ({"space": {"name": "lts-gpt2", "narrow": {"n_layer": [99]}}}, "space.narrow.n_layer", "99"),
        ({"algorithm": {"name": "lts", "settings": {"iterations": 0}}}, "algorithm.settings.iterations", "1"),
        ({"baseline_layers": []}, "baseline_layers", "depths"),
        ({"parameters": {"min_decoder": 10, "max_decoder": 5}}, "parameters.min_decoder", "no model fits"),
        ({"parameters": {"max_decoder": 1000}}, "parameters.max_decoder", "decoder parameters"),
        ({"parameters": {"min_decoder": 1, "max_total": 1000}}, "parameters", "decoder parameters"),
        (
            {"targets": [{"device_class": CLASS, "protocol": {"sequence_length": 2000}}]},
            "targets.0.protocol.sequence_length",
            "1024",
        ),
        (
            {"goal": "best_within_limits", "targets": [{"device_class": CLASS}]},
            "targets.0.limits",
            "without a limit the best model is the largest",
        ),
        (
            {"targets": [{"device_class": CLASS, "protocol": {"mode": "decode", "memory_length": 1024}}]},
            "targets.0.protocol.memory_length",
            "1023",
        ),
        (
            {
                "space": {"name": "bert"},
                "targets": [{"device_class": CLASS, "protocol": {"mode": "decode", "memory_length": 8}}],
            },
            "targets.0.protocol.mode",
            "forward",
        ),
        ({"targets": [{"name": "a"}, {"name": "a"}]}, "targets.1.name", "a different name for each target"),
    ],
)
def test_invalid_input_is_named(
    service: Service, agent: SimulatedAgent, changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        service.create(request(**changes))
    assert caught.value.field == field
    assert words in f"{caught.value.detail} {caught.value.allowed}"
    assert count(service, Job) == 0
    assert service.inbox == []


@pytest.mark.parametrize(
    ("wish", "named", "allowed"),
    [
        ({"provider": "cuda"}, "provider", "cpu"),
        ({"provider": "cuda", "dtype": "bfloat16", "threads": 5}, "provider", "cpu"),
        ({"dtype": "bfloat16"}, "dtype", "float32"),
        ({"weights": "int8"}, "weights", "full"),
        ({"memory": "device"}, "memory", "anonymous"),
        ({"threads": 5}, "threads", "1 to 4"),
    ],
)
def test_a_missing_capability_of_a_device_is_named(
    service: Service, agent: SimulatedAgent, wish: dict[str, Any], named: str, allowed: str
) -> None:
    with pytest.raises(InvalidInput, match="onnxruntime on cpu \\(in float32; memory: anonymous\\)") as caught:
        service.create(request(targets=[{"device_class": CLASS, "protocol": wish}]))
    assert caught.value.field == f"targets.0.protocol.{named}"
    assert caught.value.value == wish[named]
    assert caught.value.allowed == allowed


def test_features_that_no_single_device_combines_are_named(service: Service, agent: SimulatedAgent) -> None:
    """The one that computes in bfloat16 has two cores."""
    runtime = RuntimeFacts(
        runtime="pytorch",
        version="1",
        providers=("cpu",),
        memory_methods=("anonymous",),
        numbers={"cpu": ("float32", "bfloat16")},
    )
    SimulatedAgent(service.database, device_facts=facts(cores=2).model_copy(update={"runtimes": (runtime,)}))
    wish = {"runtime": "pytorch", "dtype": "bfloat16"}
    service.create(request(targets=[{"device_class": CLASS, "protocol": {**wish, "threads": 2}}]))
    with pytest.raises(InvalidInput) as caught:
        service.create(request(targets=[{"device_class": CLASS, "protocol": {**wish, "threads": 3}}]))
    assert (caught.value.field, caught.value.allowed) == ("targets.0.protocol.threads", "1 to 2")
    with pytest.raises(InvalidInput, match="its agent's extra openvino") as caught:
        service.create(request(targets=[{"device_class": CLASS, "protocol": {"runtime": "openvino"}}]))
    assert caught.value.field == "targets.0.protocol.runtime"


def test_a_runtime_that_does_not_exist_is_told_from_a_device(service: Service, agent: SimulatedAgent) -> None:
    for name in (f"{agent.name}:tensorrt", f"{agent.name}:tensorrt:2"):
        with pytest.raises(NotFound, match=r"^'tensorrt' is not a runtime of .*, which has onnxruntime, ") as caught:
            service.create(request(targets=[{"device": name}]))
        assert caught.value.field == "targets.0.device"
    with pytest.raises(
        NotFound, match=r"is the device .*: give its runtime 'onnxruntime' as the runtime of the protocol"
    ):
        service.create(request(targets=[{"device": f"{agent.name}:onnxruntime"}]))
    with pytest.raises(NotFound, match=rf"no device 'else:tensorrt' is enrolled; there are {agent.name}$"):
        service.create(request(targets=[{"device": "else:tensorrt"}]))


def test_the_spaces_that_gguf_expresses_are_named() -> None:
    for name, space in spaces().items():
        expressed = gguf_fault(space.baselines([1])[0]) is None
        assert expressed == (name in expressible_spaces()) == (name in expressible().partition(";")[0])


@ON_BOTH
def test_only_what_a_runtime_can_run_is_proposed(service: Service) -> None:
    runtime = RuntimeFacts(runtime="openvino", version="1", providers=("cpu",), memory_methods=("anonymous",))
    agent = SimulatedAgent(service.database, device_facts=facts().model_copy(update={"runtimes": (runtime,)}))
    asked = request(
        space={"name": "hybrid", "narrow": {"n_block": [3], "d_model": [128]}},
        baseline_layers=[2],
        targets=[{"device_class": CLASS, "protocol": {"runtime": "openvino"}}],
    )
    job = service.finish(agent, asked)
    with service.database.read() as session:
        described = [
            candidate.architecture for candidate in session.scalars(select(Candidate).filter_by(job_id=job.id))
        ]
    kinds = {block["kind"] for architecture in described for block in architecture["blocks"]}
    assert "attention" in kinds
    assert not kinds & {"sru", "srupp"}


def test_a_protocol_that_a_device_failed_to_run_is_reported(service: Service, agent: SimulatedAgent) -> None:
    asked = request(targets=[{"device_class": CLASS, "protocol": {"repeats": 7}}])
    with service.database.write() as session:
        device = session.get_one(Device, agent.device_id)
        device.facts = mark_unsupported(device.facts, asked.targets[0].protocol, "no such kernel")
    with pytest.raises(InvalidInput, match="no such kernel") as caught:
        service.create(asked)
    assert caught.value.field == "targets.0.protocol"
    service.create(request())


def test_unknown_devices_are_named(service: Service, agent: SimulatedAgent) -> None:
    with pytest.raises(NotFound, match="no device 'toaster'"):
        service.create(request(targets=[{"device": "toaster"}]))
    with pytest.raises(NotFound, match=f"there are {CLASS}"):
        service.create(request(targets=[{"device_class": "toasters"}]))
    with service.database.write() as session:
        admin = Principal("k", "root", "root", "admin")
        leases.revoke_device(session, admin, agent.device_id, service.database.now(session))
    with pytest.raises(Conflict, match="revoked"):
        service.create(request(targets=[{"device": agent.name}]))
    with pytest.raises(InvalidInput, match="none is enrolled"):
        service.create(request(targets=[{}]))


def test_where_a_target_is_measured(service: Service, agent: SimulatedAgent) -> None:
    job = service.create(request(targets=[{}, {"device": agent.device_id}, {"device": agent.name, "name": "mine"}]))
    assert [target.device for target in job.targets] == [CLASS, agent.device_id, agent.name]
    assert [target.name for target in job.targets] == [f"{CLASS} onnxruntime", f"{agent.name} onnxruntime", "mine"]
    twice = service.create(request(targets=[{}, {"limits": {"latency_ms": 5}}]))
    assert [target.name for target in twice.targets] == [f"{CLASS} onnxruntime", f"{CLASS} onnxruntime 2"]
    SimulatedAgent(service.database, device_class="another", device_facts=facts())
    with pytest.raises(InvalidInput, match="give device or device_class"):
        service.create(request(targets=[{}]))


@ON_BOTH
def test_pages_of_jobs(service: Service, agent: SimulatedAgent) -> None:
    made = [service.create(request(name=f"job {number}")).id for number in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        with service.database.read() as session:
            page = jobs.list_jobs(session, service.user, service.database.now(session), cursor=cursor, limit=2)
        seen += [job.id for job in page.items]
        if len(seen) == 2:
            service.create(request(name="in between"))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(made)
    assert len(seen) == 5
    with service.database.read() as session:
        now = service.database.now(session)
        assert jobs.list_jobs(session, principal(service.database, "bob"), now).items == ()
        assert len(jobs.list_jobs(session, principal(service.database, "root", "admin"), now).items) == 6
        with pytest.raises(InvalidInput, match="cursor"):
            jobs.list_jobs(session, service.user, now, cursor="WyJhIl0")


def test_agents_submit_and_see_no_jobs(service: Service, agent: SimulatedAgent) -> None:
    job = service.create()
    service.user = Principal("k", agent.name, "ann", "agent", agent.device_id)
    with pytest.raises(Forbidden):
        service.create()
    with pytest.raises(NotFound):
        service.get(job.id)
