"""Devices, a job, its candidates and their launches as plain rows, for tests of leases and reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.schemas.agent import LaunchReport, ReportReceipt, ReportRequest
from edgefront.core.schemas.jobs import AlgorithmRequest, JobRequest, TargetRequest
from edgefront.core.services.measuring import launches, leases
from edgefront.core.services.measuring.launches import GrantedLease
from edgefront.core.services.measuring.queries import launches as launch_queries
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.measuring.result_processing import process
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Base, Candidate, Device, Job, Launch, Measurement, Target
from edgefront.workers.sweep import PARTS

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
ARCHITECTURE = {
    "version": 1,
    "d_model": 64,
    "embedding": {"vocab_size": 100},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 128}],
}
CLASS_KEY = "class:lab"


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "hostname": "bench",
        "system": "Linux 6",
        "architecture": "x86_64",
        "cpu": "Test CPU",
        "cpu_features": [],
        "cores": 4,
        "memory_bytes": 8 << 30,
        "gpus": [],
        "runtimes": [
            {"runtime": "onnxruntime", "version": "1", "providers": ["cpu"], "memory_methods": ["anonymous"]},
        ],
        "modes": ["forward", "prefill", "decode"],
        "extra": {},
        **changes,
    }


def done(latency_ms: float = 10.0, memory: int = 1 << 20) -> LaunchResult:
    return LaunchResult(
        outcome="done",
        latency=LatencySamples(samples_ms=(latency_ms,) * 5),
        memory=PeakMemory(method="anonymous", peak_bytes=memory, forward_peak_bytes=memory, build_peak_bytes=1 << 19),
        measuring_s=0.5,
        wall_s=1.0,
    )


def crashed() -> LaunchResult:
    return LaunchResult(outcome="failed", reason="crashed", message="signal 11", wall_s=1.0)


def unsupported() -> LaunchResult:
    return LaunchResult(outcome="failed", reason="unsupported", message="no such provider")


def out_of_memory() -> LaunchResult:
    return LaunchResult(outcome="infeasible", reason="out_of_memory", message="killed")


SentTasks = list[tuple[str, dict[str, object]]]
"""Names and arguments of the tasks that were sent, in their order."""


@dataclass
class Leasing:
    """Rows made directly, and the services called with a clock that tests move."""

    database: Database
    now: datetime = START
    ttl_s: float = 60.0
    names: int = field(default=0)

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self.database.write() as session:
            yield session

    def device(self, name: str = "bench", *, device_class: str = "lab", **changes: Any) -> str:
        with self.write() as session:
            device = Device(
                name=name,
                device_class=device_class,
                owner="ada",
                state="active",
                facts=facts(**changes),
                enrolled_at=self.now,
            )
            session.add(device)
            session.flush()
            return device.id

    def target(
        self,
        *,
        device_key: str = CLASS_KEY,
        protocol: MeasurementProtocol | None = None,
        state: str = "searching",
        refinement: float = 0.5,
        planned: int = 8,
    ) -> str:
        """A running job with one target that has no candidates yet; returns the target's id."""
        protocol = protocol or MeasurementProtocol()
        request = JobRequest(
            name="job",
            algorithm=AlgorithmRequest(name="lts"),
            proxy="decoder_parameters",
            targets=(TargetRequest(device_class="lab", protocol=protocol),),
            budget={"candidates": planned, "refinement": refinement},
            baseline_layers=(1,),
        )
        with self.write() as session:
            job = Job(
                name="job",
                owner="ada",
                request=request.model_dump(mode="json"),
                request_digest="0" * 64,
                state="running",
                created_at=self.now,
                updated_at=self.now,
            )
            session.add(job)
            session.flush()
            target = Target(
                job_id=job.id,
                position=0,
                name="lab",
                device_key=device_key,
                protocol=protocol.model_dump(mode="json"),
                protocol_digest=protocol.digest,
                limits={},
                seed=1,
                proxy="decoder_parameters",
                state=state,
                reference={"proxy": 0.0, "proxy_scale": 1000.0, "latency_ms": 100.0, "memory_bytes": float(1 << 30)},
            )
            session.add(target)
            session.flush()
            return target.id

    def candidate(
        self, target_id: str, *, role: str = "search", proxy: float = 10.0, launches: int = 1, measurement: str = ""
    ) -> tuple[str, list[str]]:
        """A waiting candidate with its measurement (a new one, or the one given) and so many wanted launches."""
        self.names += 1
        with self.write() as session:
            target = session.get_one(Target, target_id)
            if not measurement:
                row = Measurement(
                    digest=f"{self.names:064x}",
                    device_key=target.device_key,
                    protocol_digest=target.protocol_digest,
                    protocol=target.protocol,
                    architecture=ARCHITECTURE,
                    seed=7,
                    state="wanted",
                )
                session.add(row)
                session.flush()
                measurement = row.id
            session.add(
                Candidate(
                    job_id=target.job_id,
                    target_id=target.id,
                    measurement_id=measurement,
                    number=target.candidates,
                    role=role,
                    generation=0,
                    operator="sample",
                    parents=[],
                    genome={},
                    digest=f"{self.names:064x}",
                    architecture=ARCHITECTURE,
                    decoder_parameters=int(proxy),
                    total_parameters=int(proxy),
                    weight_bytes=100,
                    flops=100,
                    proxy=proxy,
                    seed=7,
                    state="waiting",
                    created_at=self.now,
                )
            )
            target.candidates += 1
            made = []
            for _ in range(launches):
                launch = Launch(
                    measurement_id=measurement,
                    target_id=target.id,
                    device_key=target.device_key,
                    state="wanted",
                    purpose="first",
                    created_at=self.now,
                )
                session.add(launch)
                session.flush()
                made.append(launch.id)
            return measurement, made

    def launches(self, count: int, target_id: str | None = None) -> list[str]:
        """So many candidates of one target with one wanted launch each."""
        target_id = target_id or self.target(planned=count)
        return [self.candidate(target_id, proxy=10.0 + index)[1][0] for index in range(count)]

    def claim(self, device_id: str, max_items: int = 8) -> GrantedLease:
        with self.write() as session:
            return launches.claim(session, device_id, max_items, self.now, self.ttl_s)

    def start(self, device_id: str, item: LaunchRow) -> None:
        with self.write() as session:
            leases.start(session, device_id, item.id, item.fence, self.now)

    def heartbeat(self, device_id: str, lease: GrantedLease) -> tuple[str, ...]:
        with self.write() as session:
            return leases.heartbeat(session, device_id, lease.lease_id or "", self.now, self.ttl_s).cancelled

    def release(self, device_id: str, lease: GrantedLease, *launch_ids: str) -> None:
        with self.write() as session:
            leases.release(session, device_id, lease.lease_id or "", launch_ids, self.now)

    def append(self, device_id: str, *told: tuple[LaunchRow, LaunchResult], busy_s: float = 0.0) -> list[str]:
        """Reports that are not settled yet; returns the outcomes."""
        return [receipt.outcome for receipt in self._append(device_id, told, busy_s)]

    def report(
        self, device_id: str, *told: tuple[LaunchRow, LaunchResult], busy_s: float = 0.0
    ) -> tuple[ReportReceipt, ...]:
        receipts = self._append(device_id, told, busy_s)
        self.process()
        return receipts

    def _append(
        self, device_id: str, told: tuple[tuple[LaunchRow, LaunchResult], ...], busy_s: float
    ) -> tuple[ReportReceipt, ...]:
        sent = tuple(LaunchReport(launch_id=item.id, fence=item.fence, result=result) for item, result in told)
        with self.write() as session:
            return launches.report(session, device_id, ReportRequest(reports=sent, busy_s=busy_s), self.now).receipts

    def process(self) -> None:
        """What the worker does after reports."""
        with self.write() as session:
            targets = launch_queries.unprocessed_targets(session, self.now + timedelta(seconds=1))
        for target_id in targets:
            with self.write() as session:
                process(session, target_id, self.now)

    def outcomes(self, device_id: str, *told: tuple[LaunchRow, LaunchResult]) -> list[str]:
        return [receipt.outcome for receipt in self.report(device_id, *told)]

    def sweep(self) -> None:
        with self.write() as session:
            for part in PARTS:
                part(session, self.now)

    def row(self, table: type[Base], id_: str) -> Any:
        with self.database.read() as session:
            return session.get_one(table, id_)

    def launch(self, launch_id: str) -> Launch:
        found: Launch = self.row(Launch, launch_id)
        return found

    def rows(self, table: type[Base]) -> list[Any]:
        with self.database.read() as session:
            return list(session.scalars(select(table).order_by(*table.__table__.primary_key)))

    def set_job(self, target_id: str, state: str) -> None:
        with self.write() as session:
            target = session.get_one(Target, target_id)
            session.get_one(Job, target.job_id).state = state
            if state == "cancelled":
                target.state = "cancelled"
