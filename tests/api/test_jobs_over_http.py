"""Jobs over HTTP: submitted, found and listed."""

from __future__ import annotations

from databases import ON_BOTH
from running_api import Service, job, problem
from simulated_agent import CLASS

from edgefront.core.schemas.jobs import JobPage, JobView


@ON_BOTH
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
