"""Targets beside each other over HTTP: ratios, shared measurements, and whose jobs they are."""

from __future__ import annotations

from statistics import median
from typing import Any

import httpx
import pytest
from databases import ON_BOTH
from running_api import Service, problem
from simulated_agent import CLASS, SimulatedAgent, by_size, done

OTHER = "other board"


def slower(architecture: Any, protocol: Any, before: int) -> Any:
    """Twice the time and the same memory."""
    result = by_size()(architecture, protocol, before)
    assert result.latency is not None
    assert result.memory is not None
    return done(2 * result.latency.samples_ms[0], result.memory.peak_bytes)


def finished(service: Service, client: httpx.Client, **changes: Any) -> dict[str, Any]:
    """A job that two boards have measured, one of them half as fast."""
    agents = [SimulatedAgent(service.database), SimulatedAgent(service.database, slower, device_class=OTHER)]
    job = service.submit(client, **changes)
    for _ in range(60):
        service.work()
        if not sum(agent.step() for agent in agents):
            break
    view: dict[str, Any] = client.get(f"/v1/jobs/{job['id']}").json()
    assert view["state"] == "finished", view
    return view


def test_two_boards_of_one_job(service: Service) -> None:
    ada = service.client("user", "ada")
    job = finished(service, ada, targets=[{"device_class": CLASS}, {"device_class": OTHER}])
    ids = [target["id"] for target in job["targets"]]
    comparison = ada.get("/v1/comparison", params={"target": ids}).raise_for_status().json()
    first, second = comparison["targets"]
    assert [first["target_id"], second["target_id"]] == ids
    assert (first["latency_ratio"], first["memory_ratio"]) == (1, 1)
    assert (second["device"], second["job_name"]) == (OTHER, job["name"])
    both = [
        model
        for model in comparison["architectures"]
        if all(here and not here["predicted"] for here in model["entries"])
    ]
    assert second["shared"] == len(both) > 0
    ratios = [model["entries"][1]["latency_ms"] / model["entries"][0]["latency_ms"] for model in both]
    assert second["latency_ratio"] == median(ratios)
    assert second["latency_ratio_low"] < second["latency_ratio"] < second["latency_ratio_high"]
    assert {round(ratio, 6) for ratio in ratios} == {2.0}
    assert second["memory_ratio"] == 1
    assert comparison["note"] == ""
    views = [ada.get(f"/v1/jobs/{job['id']}/frontier", params={"target": id_}).json() for id_ in ids]
    frontiers = [view["points"] for view in views]
    digests = {point["digest"] for view in views for point in (*view["points"], *view["baseline"])}
    assert {model["digest"] for model in comparison["architectures"]} == digests
    for index, points in enumerate(frontiers):
        members = {
            model["digest"]
            for model in comparison["architectures"]
            if (model["entries"][index] or {}).get("on_frontier")
        }
        assert members == {point["digest"] for point in points}
    parameters = [model["decoder_parameters"] for model in comparison["architectures"]]
    assert parameters == sorted(parameters)
    turned = ada.get("/v1/comparison", params={"target": ids[::-1]}).json()
    assert turned["targets"][1]["latency_ratio"] == pytest.approx(1 / second["latency_ratio"])
    assert turned["targets"][1]["latency_ratio_low"] == pytest.approx(1 / second["latency_ratio_high"])
    whole = ada.get("/v1/comparison", params={"job": job["id"], "target": ids[1]}).json()
    assert [target["target_id"] for target in whole["targets"]] == ids[::-1]


@ON_BOTH
def test_what_another_job_has_measured_counts(service: Service) -> None:
    ada = service.client("user", "ada")
    whole = finished(service, ada)
    small = finished(service, ada, budget={"candidates": 2, "refinement": 0}, name="short", seed=8)
    ids = [small["targets"][0]["id"], whole["targets"][0]["id"]]
    comparison = ada.get("/v1/comparison", params={"target": ids}).json()
    of_others = [
        model["entries"][0] for model in comparison["architectures"] if model["entries"][0]["candidate_id"] is None
    ]
    assert of_others
    assert all(not of_other["on_frontier"] for of_other in of_others)
    assert all(
        model["entries"][0]["latency_ms"] == model["entries"][1]["latency_ms"] for model in comparison["architectures"]
    )


def test_targets_that_were_measured_differently_are_noted(service: Service) -> None:
    ada = service.client("user", "ada")
    targets = [{"device_class": CLASS}, {"device_class": CLASS, "protocol": {"sequence_length": 64}}]
    job = finished(service, ada, targets=targets)
    note = ada.get("/v1/comparison", params={"job": job["id"]}).json()["note"]
    assert "differ in sequence length" in note


def test_a_comparison_is_of_ones_own_targets(service: Service) -> None:
    ada, bob = service.client("user", "ada"), service.client("user", "bob")
    SimulatedAgent(service.database)
    job = service.submit(ada)
    target = job["targets"][0]["id"]
    problem(bob.get("/v1/comparison", params={"target": target}), 404)
    problem(bob.get("/v1/comparison", params={"job": job["id"]}), 404)
    assert service.client("viewer", "mia").get("/v1/comparison", params={"target": target}).status_code == 200
    assert problem(ada.get("/v1/comparison"), 422)["field"] == "target"
    problem(ada.get("/v1/comparison", params={"target": [f"tgt_{number}" for number in range(17)]}), 422)
    problem(ada.get("/v1/comparison", params={"target": "tgt_none"}), 404)


@ON_BOTH
def test_one_candidate_in_full(service: Service) -> None:
    ada = service.client("user", "ada")
    job = finished(service, ada)
    items = ada.get(f"/v1/jobs/{job['id']}/candidates", params={"limit": 500}).json()["items"]
    child = next(item for item in items if item["parents"])
    details = ada.get(f"/v1/candidates/{child['id']}/details").raise_for_status().json()
    assert details["candidate"] == child
    assert (details["job_name"], details["target"], details["device"]) == (
        job["name"],
        job["targets"][0]["name"],
        CLASS,
    )
    assert [ancestor["id"] for ancestor in details["ancestors"]][: len(child["parents"])] == sorted(child["parents"])
    kinds = [block["kind"] for block in child["architecture"]["blocks"]]
    assert [block["kind"] for block in details["blocks"]] == kinds
    attention, feed_forward = details["blocks"][:2]
    assert (attention["heads"], attention["kv_heads"]) == (child["architecture"]["blocks"][0]["n_head"], None)
    assert attention["width"] == details["d_model"]
    assert feed_forward["width"] == child["architecture"]["blocks"][1]["d_inner"]
    norm = 2 * details["d_model"]
    assert sum(block["parameters"] for block in details["blocks"]) + norm == child["decoder_parameters"]
    counted = child["decoder_parameters"] + details["embedding_parameters"] + details["position_parameters"]
    assert counted == child["total_parameters"]
    for download in details["downloads"]:
        if download["format"] in ("architecture", "safetensors"):
            params = {"format": download["format"]}
            assert ada.get(f"/v1/candidates/{child['id']}/model", params=params).status_code == 200
    assert {download["format"] for download in details["downloads"]} >= {
        "onnx",
        "onnx-decode",
        "safetensors",
        "architecture",
    }


@ON_BOTH
def test_where_milliseconds_and_bytes_go(service: Service) -> None:
    ada = service.client("user", "ada")
    job = finished(service, ada)
    candidate = ada.get(f"/v1/jobs/{job['id']}/frontier").json()["points"][0]
    answer = ada.get(f"/v1/candidates/{candidate['id']}/parts").raise_for_status().json()
    assert abs(sum(part["ms"] for part in answer["parts"]) / answer["latency_ms"] - 1) < 1e-6
    assert [part["block"] for part in answer["parts"]] == [*range(len(candidate["architecture"]["blocks"])), None]
    assert abs(answer["latency_ms"] / candidate["latency_ms"] - 1) < 0.5
    held = {part["name"]: part["bytes"] for part in answer["memory_parts"]}
    assert held["weights"] == candidate["weight_bytes"]
    assert abs(sum(held.values()) / candidate["memory_bytes"] - 1) < 0.5
    assert list(held.values()) == sorted(held.values(), reverse=True)
    fresh = service.submit(ada, targets=[{"device_class": CLASS, "protocol": {"sequence_length": 32}}])
    waiting = ada.get(f"/v1/jobs/{fresh['id']}/candidates").json()["items"][0]
    nothing = ada.get(f"/v1/candidates/{waiting['id']}/parts").json()
    assert (nothing["latency_ms"], nothing["parts"]) == (None, [])
    assert "3 different architectures" in nothing["note"]


def test_what_was_not_measured_on_a_target_is_predicted(service: Service) -> None:
    ada = service.client("user", "ada")
    here = finished(service, ada)
    there = finished(service, ada, targets=[{"device_class": OTHER}], seed=99)
    ids = [here["targets"][0]["id"], there["targets"][0]["id"]]
    comparison = ada.get("/v1/comparison", params={"target": ids}).json()
    predicted = [
        model["entries"]
        for model in comparison["architectures"]
        if model["entries"][1] and model["entries"][1]["predicted"]
    ]
    assert predicted
    for first, second in predicted:
        assert second["candidate_id"] is None
        assert not second["on_frontier"]
        if not first["predicted"]:
            assert 1 < second["latency_ms"] / first["latency_ms"] < 4  # the other board takes twice as long
