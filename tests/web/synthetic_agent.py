"""An agent that speaks the real protocol and makes its figures up: as many launches as a test asks for, no more."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import httpx

from edgefront.core.cost.costs import costs
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.wire.agent import (
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

FACTS = DeviceFacts(
    hostname="bench",
    system="Linux 6.1",
    architecture="aarch64",
    cpu="Cortex-A76",
    cores=4,
    memory_bytes=8 << 30,
    runtimes=(
        RuntimeFacts(
            runtime="onnxruntime",
            version="1.22.0",
            providers=("cpu",),
            memory_methods=("anonymous",),
            numbers={"cpu": ("float32", "int8")},
        ),
    ),
)


class SyntheticAgent:
    """Enrols a device with an admin's key, then measures when told to."""

    def __init__(self, url: str, key: str, *, name: str, device_class: str = "bench-board") -> None:
        self.name = name
        with httpx.Client(base_url=url, timeout=60) as admin:
            answer = admin.post("/v1/enrolment-tokens", json={"name": name}, headers=_bearer(key))
            token = answer.raise_for_status().json()["token"]
            request = EnrolRequest(name=name, device_class=device_class, facts=FACTS)
            answer = admin.post("/v1/agents/enrol", json=request.model_dump(mode="json"), headers=_bearer(token))
            enrolled = EnrolResponse.model_validate_json(answer.raise_for_status().content)
        self.device_id = enrolled.device_id
        self._http = httpx.Client(base_url=url, headers=_bearer(enrolled.credential), timeout=60)

    def close(self) -> None:
        self._http.close()

    def measure(self, launches: int, *, wait_s: float = 30.0) -> int:
        """Measures so many launches and reports each by itself; fewer if there is no work within `wait_s`."""
        done = 0
        while done < launches:
            request = LeaseRequest(max_items=min(8, launches - done), wait_s=wait_s)
            lease = LeaseResponse.model_validate_json(self._post("/v1/leases", request).content)
            if not lease.items:
                break
            for item in lease.items:
                self._post(f"/v1/launches/{item.launch_id}/start", StartRequest(fence=item.fence))
                report = LaunchReport(launch_id=item.launch_id, fence=item.fence, result=made_up(item))
                answer = self._post("/v1/reports", ReportRequest(reports=(report,), busy_s=0.5))
                receipts = ReportResponse.model_validate_json(answer.content).receipts
                assert [receipt.outcome for receipt in receipts] == ["accepted"]
                done += 1
        return done

    def finish(self, api: httpx.Client, job_id: str) -> dict[str, Any]:
        """Measures whatever is wanted until the job has finished; returns the job."""
        end = time.monotonic() + 120
        while (job := api.get(f"/v1/jobs/{job_id}").raise_for_status().json())["state"] == "running":
            assert time.monotonic() < end, f"the job does not finish: {job}"
            self.measure(8, wait_s=0.2)
        assert job["state"] == "finished", job
        return dict(job)

    def _post(self, path: str, message: Any) -> httpx.Response:
        return self._http.post(path, json=message.model_dump(mode="json")).raise_for_status()


def made_up(item: LeaseItem) -> LaunchResult:
    """Figures that rise with the parameters and scatter by the digest, so that frontiers have something to choose."""
    architecture = Architecture.parse(item.architecture)
    exact = costs(architecture)
    scatter = int(hashlib.sha256(item.digest.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
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


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
