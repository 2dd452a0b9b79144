"""Jobs over HTTP: submitted once, steered, seen by their owner only."""

from __future__ import annotations

import pytest
from running_api import Service, job, problem
from simulated_agent import CLASS

from edgefront.core.schemas.jobs import JobPage, JobView


def test_submit_get_list(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    made = client.post("/v1/jobs", json=job(name="small"))
    assert made.status_code == 201
    view = JobView.model_validate_json(made.content)
    assert (view.owner, view.state, view.name) == ("bob", "running", "small")
    assert made.headers["location"] == f"/v1/jobs/{view.id}"
    assert client.get(made.headers["location"]).json()["id"] == view.id
    page = JobPage.model_validate_json(client.get("/v1/jobs").content)
    assert [item.id for item in page.items] == [view.id]
    assert client.get("/v1/jobs", params={"state": "paused"}).json()["items"] == []
    assert len(client.get("/v1/jobs", params={"state": "running"}).json()["items"]) == 1
    assert problem(client.get("/v1/jobs", params={"cursor": "garbage"}), 422)["field"] == "cursor"
    assert problem(client.post("/v1/jobs", json=job(), headers={"Idempotency-Key": "x" * 201}), 422)["in"] == "header"


@pytest.mark.parametrize(
    ("method", "suffix"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("GET", "/events"),
        ("GET", "/candidates"),
        ("GET", "/candidates?format=csv"),
        ("GET", "/frontier"),
        ("GET", "/recommendation"),
    ],
)
def test_anothers_job_does_not_exist(sqlite_service: Service, method: str, suffix: str) -> None:
    sqlite_service.enrol("board", CLASS)
    made = sqlite_service.submit(sqlite_service.client("user", "bob"))
    eve = sqlite_service.client("user", "eve")
    path = f"/v1/jobs/{made['id']}{suffix}"
    document = problem(eve.request(method, path), 404)
    unknown = problem(eve.request(method, path.replace(made["id"], "job_unknown")), 404)
    assert document["detail"].replace(made["id"], "") == unknown["detail"].replace("job_unknown", "")
    assert eve.get("/v1/jobs").json()["items"] == []
    admin = sqlite_service.client("admin", "root")
    assert admin.get(f"/v1/jobs/{made['id']}").status_code == 200
