"""A device that measures nothing: it leases and reports through the services, and its numbers follow from the model.

For tests of the service; the real agent has tests of its own.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import httpx

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.measurement.generation import prompt_pass, token_pass
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.prediction.features import features
from edgefront.core.measurement.protocol import MeasurementProtocol, Mode
from edgefront.core.measurement.record import GenerationSamples, LatencySamples, LaunchResult, PeakMemory
from edgefront.core.schemas.agent import (
    DeviceFacts,
    EnrolRequest,
    EnrolResponse,
    LaunchReport,
    LeaseItem,
    LeaseRequest,
    LeaseResponse,
    ReportRequest,
    ReportResponse,
    RuntimeFacts,
    StartRequest,
)
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services.access.keys import Principal, create_key
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import launches, leases
from edgefront.core.services.measuring.launches import GrantedLease
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.store.database import Database

Measure = Callable[[Architecture, MeasurementProtocol, int], LaunchResult]
"""Architecture, protocol and how many launches of it came before → result."""

CLASS = "simulated board"


def principal(database: Database, owner: str = "ann", role: str = "user") -> Principal:
    """A user (or admin) with a real key."""
    with database.write() as session:
        key, _ = create_key(session, name=owner, owner=owner, role=role, now=database.now(session))  # type: ignore[arg-type]
        return Principal(key.id, key.name, key.owner, role)  # type: ignore[arg-type]


def facts(memory_bytes: int = 8 << 30, cores: int = 4, numbers: tuple[str, ...] = ("float32",)) -> DeviceFacts:
    runtimes = tuple(
        RuntimeFacts(
            runtime=runtime,
            version="1",
            providers=("cpu",),
            memory_methods=("anonymous",),
            numbers={"cpu": numbers},  # type: ignore[dict-item]
        )
        for runtime in ("onnxruntime", "pytorch")
    )
    return DeviceFacts(
        hostname="board", system="Linux 6", architecture="aarch64", cpu="simulated", cores=cores,
        memory_bytes=memory_bytes, runtimes=runtimes, modes=get_args(Mode),
    )  # fmt: skip


def llama_cpp_facts(*caches: str, memory_bytes: int = 8 << 30) -> DeviceFacts:
    """A device with llama.cpp, whose cache may hold these formats."""
    runtime = RuntimeFacts(
        runtime="llamacpp",
        version="1",
        providers=("cpu",),
        memory_methods=("anonymous",),
        numbers={"cpu": ("float32", "float16", "q8_0")},
        kv_caches=caches,  # type: ignore[arg-type]
    )
    return facts(memory_bytes).model_copy(update={"runtimes": (runtime,)})


def done(latency_ms: float, memory_bytes: int) -> LaunchResult:
    return LaunchResult(
        outcome="done",
        latency=LatencySamples(warmup_ms=(latency_ms,), samples_ms=(latency_ms,) * 5),
        memory=PeakMemory(
            method="anonymous", peak_bytes=memory_bytes, forward_peak_bytes=memory_bytes, build_peak_bytes=memory_bytes
        ),
        build_s=0.1,
        measuring_s=0.7,
        wall_s=1.0,
    )


def by_size(noise: float = 0.0) -> Measure:
    """Latency and memory that grow with the model, a little different for each one; launches scatter by `noise`."""

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        counted = costs(architecture)
        own = _unit(architecture.digest, "latency")
        latency = 1.0 + counted.flops / 1e9 * (0.8 + 0.4 * own)
        latency *= 1.0 + noise * (_unit(architecture.digest, f"launch {before}") - 0.5)
        memory = int(counted.weight_bytes * (1.05 + 0.3 * _unit(architecture.digest, "memory")))
        return done(latency, memory)

    return measure


def by_work(architecture: Architecture, protocol: MeasurementProtocol, _before: int) -> LaunchResult:
    """Latency and memory that follow what a pass of the protocol does."""
    counted = protocol_costs(architecture, protocol)
    return done(
        0.5 + counted.flops / 1e9 + 0.05 * len(architecture.blocks), int(counted.weight_bytes * 1.1) + (5 << 20)
    )


def by_generation(
    architecture: Architecture, protocol: MeasurementProtocol, _before: int, slower: float = 1.0
) -> LaunchResult:
    """A device that generates: a token of the prompt costs little, each further one the time to read the weights."""
    shapes = Shapes.of([architecture])
    prompt = slower * (0.5 + features(shapes, prompt_pass(protocol)).sum() / 4e8)
    token = slower * (0.05 + features(shapes, token_pass(protocol)).sum() / 4e7)
    times = {"first_token": prompt, "token": token, "total": prompt + (protocol.new_tokens - 1) * token}
    weights = protocol_costs(architecture, protocol).weight_bytes
    result = done(times[protocol.latency], int(weights * 1.1) + (5 << 20))
    made = {f"{name}_ms": (time,) * 5 for name, time in times.items()}
    return result.model_copy(update={"generation": GenerationSamples(**made, energy_token_mj=2.5 * token)})


def by_parameters(architecture: Architecture, *_: object) -> LaunchResult:
    """Latency and memory that rise with the parameters and scatter by the digest, so that frontiers have something to
    choose.
    """
    exact = costs(architecture)
    scatter = int(hashlib.sha256(architecture.digest.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    latency_ms = exact.decoder_parameters / 1e6 * (2.0 + 2.0 * scatter) + len(architecture.blocks) / 2
    forward = int(exact.weight_bytes * (0.2 + 0.3 * (1 - scatter))) + (4 << 20)
    return LaunchResult(
        outcome="done",
        latency=LatencySamples(
            warmup_ms=(latency_ms * 1.5,), samples_ms=tuple(latency_ms * (1 + 0.002 * step) for step in range(5))
        ),
        memory=PeakMemory(
            method="anonymous",
            peak_bytes=forward + exact.weight_bytes,
            forward_peak_bytes=forward,
            build_peak_bytes=forward // 2,
            mapped_weight_bytes=exact.weight_bytes,
        ),
        build_s=0.05,
        measuring_s=0.4,
        wall_s=0.5,
    )


def failing(reason: str = "build_error") -> Measure:
    outcome = "infeasible" if reason in ("out_of_memory", "over_time") else "failed"
    return lambda *_: LaunchResult(outcome=outcome, reason=reason, message="simulated", wall_s=1.0)  # type: ignore[arg-type]


def _unit(*words: str) -> float:
    """A number from 0 to 1 that depends on the words alone."""
    return int.from_bytes(hashlib.sha256("/".join(words).encode()).digest()[:6], "big") / (1 << 48)


class SimulatedAgent:
    """Enrols on making; `step` leases a batch and reports it. Without `measure` it answers by size, or generates."""

    def __init__(
        self,
        database: Database,
        measure: Measure | None = None,
        *,
        device_class: str = CLASS,
        device_facts: DeviceFacts | None = None,
    ) -> None:
        self.database = database
        self.measure = measure or (
            lambda *launch: (by_generation if launch[1].mode == "generate" else by_size())(*launch)
        )
        self.launches: Counter[str] = Counter()
        self.name = f"board-{uuid.uuid4().hex[:8]}"
        admin = principal(database, owner=f"admin-{self.name}", role="admin")
        with database.write() as session:
            now = database.now(session)
            _, secret = devices.create_enrolment_token(session, admin, EnrolmentTokenRequest(), now)
            request = EnrolRequest(name=self.name, device_class=device_class, facts=device_facts or facts())
            self.device_id = leases.enrol(session, secret, request, now).device_id

    def lease(self, max_items: int = 8) -> GrantedLease:
        with self.database.write() as session:
            return launches.claim(session, self.device_id, max_items, self.database.now(session), 60.0)

    def result(self, item: LaunchRow) -> LaunchResult:
        before = self.launches[item.digest]
        self.launches[item.digest] += 1
        return self.measure(Architecture.parse(item.architecture), item.protocol, before)

    def report(self, lease: GrantedLease) -> ReportResponse:
        made = tuple(
            LaunchReport(launch_id=item.id, fence=item.fence, result=self.result(item)) for item in lease.items
        )
        with self.database.write() as session:
            request = ReportRequest(reports=made, busy_s=float(len(made)))
            return launches.report(session, self.device_id, request, self.database.now(session))

    def step(self, max_items: int = 8) -> int:
        """Leases, measures and reports once; returns how many launches."""
        lease = self.lease(max_items)
        if lease.items:
            self.report(lease)
        return len(lease.items)


class RemoteAgent:
    """The same over HTTP, by the real protocol: enrols a device with an admin's key, then measures when told to."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        name: str,
        device_class: str = "bench-board",
        device_facts: DeviceFacts | None = None,
    ) -> None:
        self.name = name
        with httpx.Client(base_url=url, timeout=60, verify=False) as admin:
            answer = admin.post("/v1/enrolment-tokens", json={"name": name}, headers=_bearer(key))
            token = answer.raise_for_status().json()["token"]
            facts_sent = device_facts or facts(numbers=("float32", "int8"))
            request = EnrolRequest(name=name, device_class=device_class, facts=facts_sent)
            answer = admin.post("/v1/agents/enrol", json=request.model_dump(mode="json"), headers=_bearer(token))
            enrolled = EnrolResponse.model_validate_json(answer.raise_for_status().content)
        self._use(url, enrolled.device_id, enrolled.credential)

    def _use(self, url: str, device_id: str, credential: str) -> None:
        self.device_id, self._credential = device_id, credential
        self._http = httpx.Client(base_url=url, headers=_bearer(credential), timeout=60, verify=False)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.name, self.device_id, self._credential]), encoding="utf-8")

    @classmethod
    def saved(cls, url: str, path: Path) -> RemoteAgent:
        """The device of `save`, in a service with a copy of its data."""
        agent = cls.__new__(cls)
        agent.name, device_id, credential = json.loads(path.read_text(encoding="utf-8"))
        agent._use(url, device_id, credential)
        return agent

    def _result(self, item: LeaseItem) -> LaunchResult:
        measure = by_generation if item.protocol.mode == "generate" else by_parameters
        return measure(Architecture.parse(item.architecture), item.protocol, 0)

    def close(self) -> None:
        self._http.close()

    def measure(self, launches: int, *, wait_s: float = 30.0) -> int:
        """Measures so many launches and reports each by itself; fewer if there is no work within `wait_s`."""
        done = 0
        while done < launches:
            request = LeaseRequest(max_items=min(8, launches - done), wait_s=wait_s)
            lease = LeaseResponse.model_validate_json(self.post("/v1/leases", request).content)
            if not lease.items:
                break
            for item in lease.items:
                self.post(f"/v1/launches/{item.launch_id}/start", StartRequest(fence=item.fence))
                report = LaunchReport(launch_id=item.launch_id, fence=item.fence, result=self._result(item))
                answer = self.post("/v1/reports", ReportRequest(reports=(report,), busy_s=0.5))
                receipts = ReportResponse.model_validate_json(answer.content).receipts
                assert [receipt.outcome for receipt in receipts] == ["accepted"]
                done += 1
        return done

    def finish(self, api: httpx.Client, job_id: str) -> dict[str, Any]:
        """Measures whatever is wanted until the job has finished; returns the job."""
        end = time.monotonic() + 240  # below the suite's own limit, so that a failure shows the job
        while (job := api.get(f"/v1/jobs/{job_id}").raise_for_status().json())["state"] == "running":
            assert time.monotonic() < end, f"the job does not finish: {job}"
            self.measure(8, wait_s=0.2)
        assert job["state"] == "finished", job
        return dict(job)

    def post(self, path: str, message: Any) -> httpx.Response:
        return self._http.post(path, json=message.model_dump(mode="json")).raise_for_status()


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
