"""Health, readiness and metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta

from databases import ON_BOTH
from prometheus_client.parser import text_string_to_metric_families
from running_api import Service, job
from simulated_agent import CLASS
from sqlalchemy import text, update

from edgefront.api.context import VERSION
from edgefront.core.common.states import WorkKind
from edgefront.core.services import work
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job


def metrics(service: Service) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    response = service.client("user", "watch").get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def served(service: Service, *, seconds_ago: float) -> None:
    """Stores that a worker took a message of each queue, and that all jobs were created an hour ago."""
    with service.database.write() as session:
        now = service.database.now(session)
        for queue in work.QUEUES:
            work.served(session, queue.name, now - timedelta(seconds=seconds_ago))
        session.execute(update(Job).values(created_at=now - timedelta(hours=1)))


def test_ready_names_each_check(service: Service) -> None:
    served(service, seconds_ago=0)
    answer = service.client(None).get("/v1/ready")
    assert answer.json() == {
        "status": "ok",
        "version": VERSION,
        "checks": {"database": "ok", "migrations": "ok", "broker": "ok", "workers": "ok"},
    }


@ON_BOTH
def test_a_service_without_workers_says_so_everywhere(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    made = client.post("/v1/jobs", json=job()).json()
    ready = service.client(None).get("/v1/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert ready.json()["checks"]["workers"] == "no worker takes work from edgefront"
    assert metrics(service)["edgefront_queue_unserved_seconds", (("queue", "edgefront-search"),)] == math.inf

    def note() -> str:
        text: str = client.get(f"/v1/jobs/{made['id']}").json()["targets"][0]["note"]
        return text

    assert "worker" not in note()  # for a minute a worker may just be starting
    served(service, seconds_ago=121)
    assert "Waits for a worker since 2 min: none takes work from the queue 'edgefront'." in note()
    assert metrics(service)["edgefront_queue_unserved_seconds", (("queue", "edgefront"),)] >= 121
    served(service, seconds_ago=0)
    assert "worker" not in note()
    assert service.client(None).get("/v1/ready").json()["status"] == "ok"

    with service.database.write() as session:  # all workers of long steps are busy, or there is none
        now = service.database.now(session)
        work.request(session, WorkKind.SEARCH, {made["targets"][0]["id"]: "bob"}, now - timedelta(minutes=3))
        work.served(session, work.SEARCH.name, now - timedelta(minutes=3))
    assert "Waits for a worker since 3 min: none takes work from the queue 'edgefront-search'." in note()
    assert metrics(service)["edgefront_queue_oldest_seconds", (("queue", "edgefront-search"),)] >= 180


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
    served(service, seconds_ago=0)
    service.settings.broker.url = redis_url
    assert service.client(None).get("/v1/ready").status_code == 200
    service.settings.broker.url = "redis://127.0.0.1:1/0"
    answer = service.client(None).get("/v1/ready")
    assert answer.status_code == 503
    assert answer.json()["checks"]["broker"] == "the broker does not answer"
    assert metrics(service)["edgefront_broker_up", ()] == 0


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
