"""A device that measures nothing: it leases and reports through the services, and its numbers follow from the model.

For tests of the service; the real agent has tests of its own.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable

from edgefront.core.cost.costs import costs
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.services.access.keys import Principal, create_key
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import handover, leases, reports
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.wire.agent import (
    DeviceFacts,
    EnrolRequest,
    LaunchReport,
    LeaseItem,
    LeaseResponse,
    ReportRequest,
    ReportResponse,
    RuntimeFacts,
)
from edgefront.core.wire.service import EnrolmentTokenRequest

Measure = Callable[[Architecture, MeasurementProtocol, int], LaunchResult]
"""Architecture, protocol and how many launches of it came before → result."""

CLASS = "simulated board"


def principal(database: Database, owner: str = "ann", role: str = "user") -> Principal:
    """A user (or admin) with a real key."""
    with database.write() as session:
        key, _ = create_key(session, name=owner, owner=owner, role=role, now=database.now(session))  # type: ignore[arg-type]
        return Principal(key.id, key.name, key.owner, role)  # type: ignore[arg-type]


def facts(memory_bytes: int = 8 << 30, cores: int = 4) -> DeviceFacts:
    runtimes = tuple(
        RuntimeFacts(runtime=runtime, version="1", providers=("cpu",), memory_methods=("anonymous",))
        for runtime in ("onnxruntime", "pytorch")
    )
    return DeviceFacts(
        hostname="board", system="Linux 6", architecture="aarch64", cpu="simulated", cores=cores,
        memory_bytes=memory_bytes, runtimes=runtimes,
    )  # fmt: skip


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
        found = costs(architecture)
        own = _unit(architecture.digest, "latency")
        latency = 1.0 + found.flops / 1e9 * (0.8 + 0.4 * own)
        latency *= 1.0 + noise * (_unit(architecture.digest, f"launch {before}") - 0.5)
        memory = int(found.weight_bytes * (1.05 + 0.3 * _unit(architecture.digest, "memory")))
        return done(latency, memory)

    return measure


def by_work(architecture: Architecture, protocol: MeasurementProtocol, _before: int) -> LaunchResult:
    """Latency and memory that follow what a pass of the protocol does."""
    found = protocol_costs(architecture, protocol)
    return done(0.5 + found.flops / 1e9 + 0.05 * len(architecture.blocks), int(found.weight_bytes * 1.1) + (5 << 20))


def failing(reason: str = "build_error") -> Measure:
    outcome = "infeasible" if reason in ("out_of_memory", "over_time") else "failed"
    return lambda *_: LaunchResult(outcome=outcome, reason=reason, message="simulated", wall_s=1.0)  # type: ignore[arg-type]


def _unit(*words: str) -> float:
    """A number from 0 to 1 that depends on the words alone."""
    return int.from_bytes(hashlib.sha256("/".join(words).encode()).digest()[:6], "big") / (1 << 48)


class SimulatedAgent:
    """Enrols on making; `step` leases a batch and reports it."""

    def __init__(
        self,
        database: Database,
        measure: Measure | None = None,
        *,
        device_class: str = CLASS,
        device_facts: DeviceFacts | None = None,
    ) -> None:
        self.database = database
        self.measure = measure or by_size()
        self.launches: Counter[str] = Counter()
        self.name = f"board-{uuid.uuid4().hex[:8]}"
        admin = principal(database, owner=f"admin-{self.name}", role="admin")
        with database.write() as session:
            now = database.now(session)
            _, secret = devices.create_enrolment_token(session, admin, EnrolmentTokenRequest(), now)
            request = EnrolRequest(name=self.name, device_class=device_class, facts=device_facts or facts())
            self.device_id = handover.enrol(session, secret, request, now).device_id

    def lease(self, max_items: int = 8) -> LeaseResponse:
        with self.database.write() as session:
            return leases.claim(session, self.device_id, max_items, self.database.now(session), 60.0)

    def result(self, item: LeaseItem) -> LaunchResult:
        before = self.launches[item.digest]
        self.launches[item.digest] += 1
        return self.measure(Architecture.parse(item.architecture), item.protocol, before)

    def report(self, lease: LeaseResponse) -> ReportResponse:
        made = tuple(
            LaunchReport(launch_id=item.launch_id, fence=item.fence, result=self.result(item)) for item in lease.items
        )
        with self.database.write() as session:
            request = ReportRequest(reports=made, busy_s=float(len(made)))
            return reports.accept(session, self.device_id, request, self.database.now(session))

    def step(self, max_items: int = 8) -> int:
        """Leases, measures and reports once; returns how many launches."""
        lease = self.lease(max_items)
        if lease.items:
            self.report(lease)
        return len(lease.items)
