"""Predictions over HTTP."""

from __future__ import annotations

from running_api import Service, problem
from simulated_agent import CLASS, SimulatedAgent, by_work

STOCK = {
    "d_model": 128,
    "embedding": {"vocab_size": 50264, "cutoffs": [19997, 39997], "div": 4},
    "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 512}],
}


def test_predictions_of_models_by_name_and_by_description(service: Service) -> None:
    client = service.client("user", "bob")
    agent = SimulatedAgent(service.database, by_work)
    service.submit(client)
    asked = {"device_class": CLASS, "architectures": [STOCK, "gpt2-small"]}
    assert problem(client.post("/v1/predictions", json=asked), 409)["field"] == "device_class"
    assert problem(client.post("/v1/predictions", json={"architectures": []}), 422)["field"] == "architectures"
    service.measure(agent)
    response = client.post("/v1/predictions", json=asked)
    assert response.status_code == 200, response.text
    own, large = response.json()["predictions"]
    assert own["predicted"]["latency_low_ms"] < own["predicted"]["latency_ms"] < large["predicted"]["latency_ms"]
    assert [part["kind"] for part in own["parts"]] == ["attention", "feed_forward", "ends"]


def test_a_target_is_added_over_http(service: Service) -> None:
    client = service.client("user", "bob")
    agent = SimulatedAgent(service.database, by_work)
    made = service.submit(client)
    path = f"/v1/jobs/{made['id']}/targets"
    assert problem(client.post(path, json={"device_class": CLASS}), 422)["field"] == "device_class"
    added = client.post(path, json={"device": agent.name})
    assert added.status_code == 201, added.text
    assert [target["device"] for target in added.json()["targets"]] == [CLASS, agent.name]
    assert added.json()["request"]["targets"][1]["added"]
    client.post(f"/v1/jobs/{made['id']}/cancel")
    assert "cannot be extended" in problem(client.post(path, json={"device": agent.name}), 409)["detail"]
    problem(service.client("user", "eve").post(path, json={"device": agent.name}), 404)
