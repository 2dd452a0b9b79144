"""Devices over HTTP whose reports a test decides on, beside those of honest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from running_api import Service
from simulated_agent import CLASS

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.schemas.agent import LeaseItem, LeaseResponse
from edgefront.workers.sweep import sweep_once

Report = Callable[[LeaseItem], dict[str, Any]]


def result(latency_ms: float, peak_bytes: int, **changes: Any) -> dict[str, Any]:
    """A done `LaunchResult` as JSON."""
    return {
        "outcome": "done",
        "latency": {"warmup_ms": [latency_ms], "samples_ms": [latency_ms] * 5},
        "memory": {
            "method": "anonymous",
            "peak_bytes": peak_bytes,
            "forward_peak_bytes": peak_bytes // 2,
            "build_peak_bytes": peak_bytes,
        },
        "measuring_s": 0.4,
        "wall_s": 0.5,
        **changes,
    }


def honest(item: LeaseItem, factor: float = 1.0) -> dict[str, Any]:
    """Latency in proportion to the work, times `factor`; memory a little more than the weights."""
    costs = protocol_costs(Architecture.parse(item.architecture), item.protocol)
    return result(costs.flops / 5e6 * factor, int(costs.weight_bytes * 1.2))


def times(factor: float) -> Report:
    """Reports latencies of so many times the truth."""
    return lambda item: honest(item, factor)


def crashes(_: LeaseItem) -> dict[str, Any]:
    return {"outcome": "failed", "reason": "crashed", "message": "signal 11", "wall_s": 1.0}


class Device:
    """A device that leases and reports over HTTP."""

    def __init__(self, service: Service, name: str, device_class: str = CLASS, owner: str = "ada") -> None:
        self.service = service
        self.name = name
        self.id, credential = service.enrol(name, device_class, owner)
        self.http = service.client_with({"Authorization": f"Bearer {credential}"})

    def lease(self, most: int = 8) -> LeaseResponse:
        answer = self.http.post("/v1/leases", json={"wait_s": 0, "max_items": most})
        assert answer.status_code == 200, answer.text
        return LeaseResponse.model_validate_json(answer.content)

    def report(self, item: LeaseItem, result: dict[str, Any], fence: int | None = None) -> dict[str, Any]:
        """The receipt."""
        answer = self.send(item, result, fence)
        assert answer.status_code == 200, answer.text
        receipt: dict[str, Any] = answer.json()["receipts"][0]
        return receipt

    def send(self, item: LeaseItem, result: dict[str, Any], fence: int | None = None) -> httpx.Response:
        fence = item.fence if fence is None else fence
        report = {"launch_id": item.launch_id, "fence": fence, "result": result}
        return self.http.post("/v1/reports", json={"reports": [report], "busy_s": 1.0})

    def start(self, item: LeaseItem) -> None:
        answer = self.http.post(f"/v1/launches/{item.launch_id}/start", json={"fence": item.fence})
        assert answer.status_code == 204, answer.text

    def measure(self, report: Report = honest, most: int = 8) -> int:
        """Leases once and reports everything; returns how many launches."""
        items = self.lease(most).items
        for item in items:
            self.report(item, report(item))
        return len(items)


class Fleet:
    """Devices of one class, a user, and what the user sees."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.user = service.client("user", "bob")
        self.admin = service.client("admin")

    def device(self, name: str, **options: Any) -> Device:
        return Device(self.service, name, **options)

    def submit(self, **changes: Any) -> str:
        """A small job whose baselines are wanted."""
        view = self.service.submit(self.user, **changes)
        return str(view["id"])

    def run(self, device: Device, report: Report = honest, steps: int = 60) -> int:
        """Measures until there is no work left; returns the number of launches."""
        total = 0
        for _ in range(steps):
            self.service.work()
            made = device.measure(report)
            total += made
            if not made:
                break
        self.service.work()
        return total

    def sweep(self) -> None:
        sweep_once(self.service.database)

    def candidates(self, job_id: str, client: httpx.Client | None = None, **filters: Any) -> list[dict[str, Any]]:
        answer = (client or self.user).get(f"/v1/jobs/{job_id}/candidates", params={"limit": 500, **filters})
        assert answer.status_code == 200, answer.text
        candidates: list[dict[str, Any]] = answer.json()["items"]
        return candidates

    def launches(self, candidate_id: str) -> list[dict[str, Any]]:
        launches: list[dict[str, Any]] = self.user.get(f"/v1/candidates/{candidate_id}/launches").json()
        return launches

    def view(self, device: Device) -> dict[str, Any]:
        view: dict[str, Any] = self.admin.get(f"/v1/devices/{device.id}").json()
        return view
