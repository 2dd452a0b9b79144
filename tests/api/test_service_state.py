"""Health, readiness and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from databases import ON_BOTH
from prometheus_client.parser import text_string_to_metric_families
from running_api import Service
from simulated_agent import CLASS
from sqlalchemy import text

from edgefront.api.context import VERSION
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.store.database import Database


def metrics(service: Service) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    response = service.client("user", "watch").get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_ready_names_each_check(service: Service) -> None:
    answer = service.client(None).get("/v1/ready")
    assert answer.json() == {
        "status": "ok",
        "version": VERSION,
        "checks": {"database": "ok", "migrations": "ok", "broker": "ok"},
    }


@ON_BOTH
def test_a_schema_that_is_behind_is_not_ready(service: Service) -> None:
    with service.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    answer = service.client(None).get("/v1/ready")
    assert answer.status_code == 503
    assert "the database has the schema older" in answer.json()["checks"]["migrations"]
    assert answer.json()["checks"]["database"] == "ok"


def test_an_unavailable_broker_is_not_ready(
    start_service: Callable[..., Service], database: Database, redis_url: str
) -> None:
    service = start_service(database)
    service.settings.broker.url = redis_url
    assert service.client(None).get("/v1/ready").status_code == 200
    service.settings.broker.url = "redis://127.0.0.1:1/0"
    answer = service.client(None).get("/v1/ready")
    assert answer.status_code == 503
    assert answer.json()["checks"]["broker"] == "the broker does not answer"


def test_metrics_count_requests_by_template_and_show_the_service(service: Service) -> None:
    service.enrol("board", CLASS)
    user = service.client("user", "bob")
    made = service.submit(user)
    user.get(f"/v1/jobs/{made['id']}")
    user.get("/v1/jobs/job_unknown")
    user.get("/v1/no/such/address")
    user.request("BREW", "/v1/jobs")
    shown = metrics(service)

    def requests(method: str, route: str, status: int) -> float:
        return shown["edgefront_http_requests_total", (("method", method), ("route", route), ("status", str(status)))]

    assert requests("GET", "/v1/jobs/{job_id}", 200) == 1
    assert requests("GET", "/v1/jobs/{job_id}", 404) == 1
    assert requests("GET", "unmatched", 404) == 1
    assert requests("POST", "/v1/jobs", 201) == 1
    assert shown["edgefront_database_up", ()] == 1
    assert shown["edgefront_jobs", (("state", "running"),)] == 1
    assert shown["edgefront_targets", (("state", "baselines"),)] == 1
    assert shown["edgefront_launches_open", (("state", "wanted"),)] == 2 * BASELINE_LAUNCHES
    assert shown["edgefront_devices", (("state", "active"),)] == 1
    assert shown["edgefront_lease_requests_waiting", ()] == 0
    labels = {dict(key[1])["method"] for key in shown if key[0] == "edgefront_http_requests_total"}
    assert labels <= {"GET", "POST", "other"}


def test_waiting_for_work_is_not_counted_as_slowness(service: Service) -> None:
    agent = service.agent("board", CLASS)
    began = time.perf_counter()
    agent.post("/v1/leases", json={"wait_s": 0})  # the first takes longest, and does not wait
    agent.post("/v1/leases", json={"wait_s": 2})
    whole_s = time.perf_counter() - began
    shown = metrics(service)
    waited_s = shown["edgefront_lease_wait_seconds_sum", ()]
    assert waited_s >= 0.6
    assert shown["edgefront_http_request_seconds_sum", (("route", "/v1/leases"),)] <= whole_s - waited_s
