"""Jobs over HTTP: submitted once, steered, seen by their owner only."""

from __future__ import annotations

import pytest
from databases import ON_SQLITE
from running_api import Service, job, problem
from simulated_agent import CLASS

from edgefront.core.wire.jobs import JobPage, JobView


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


@ON_SQLITE
def test_pages_of_jobs(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    ids = [service.submit(client)["id"] for _ in range(5)]
    first = client.get("/v1/jobs", params={"limit": 3}).json()
    second = client.get("/v1/jobs", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next_cursor"] is None
    assert problem(client.get("/v1/jobs", params={"cursor": "garbage"}), 422)["field"] == "cursor"


@ON_SQLITE
def test_the_same_idempotency_key_makes_one_job(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    headers = {"Idempotency-Key": "a-key"}
    first, again = (client.post("/v1/jobs", json=job(), headers=headers) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    problem(client.post("/v1/jobs", json=job(seed=8), headers=headers), 409)
    other = service.client("user", "eve").post("/v1/jobs", json=job(), headers=headers)
    assert other.json()["id"] != first.json()["id"]
    assert problem(client.post("/v1/jobs", json=job(), headers={"Idempotency-Key": "x" * 201}), 422)["in"] == "header"


@ON_SQLITE
def test_steering(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    path = f"/v1/jobs/{service.submit(client)['id']}"
    assert client.post(f"{path}/pause").json()["state"] == "paused"
    assert client.post(f"{path}/resume").json()["state"] == "running"
    assert client.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert problem(client.post(f"{path}/resume"), 409)["kind"] == "conflict"
    assert client.delete(path).status_code == 204
    problem(client.get(path), 404)
    problem(client.delete(path), 404)


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


@ON_SQLITE
def test_no_agent_online_waits_and_says_so(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    view = service.submit(client)
    assert "wait" in client.get(f"/v1/jobs/{view['id']}").json()["targets"][0]["note"]


@ON_SQLITE
def test_jobs_that_make_no_sense_name_the_field(service: Service) -> None:
    client = service.client("user", "bob")
    service.enrol("board", CLASS)
    document = problem(client.post("/v1/jobs", json=job(space={"name": "lts-gpt2", "narrow": {"n_layer": [99]}})), 422)
    assert document["kind"] == "invalid-space"
    assert "n_layer" in document["field"]
    infinite = job(space={"name": "lts-gpt2", "narrow": {"n_layer": [1]}})
    body = client.build_request("POST", "/v1/jobs", json=infinite).content.replace(b"[1]", b"[1e999]")
    refused = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert "n_layer" in problem(refused, 422)["field"]
    settings = {"name": "lts", "settings": {"population": -1}}
    assert "population" in problem(client.post("/v1/jobs", json=job(algorithm=settings)), 422)["field"]
    assert client.post("/v1/jobs", json=job(targets=[{"device": "nobody"}])).status_code in (404, 422)
    assert client.get("/v1/jobs").json()["items"] == []
