"""The training budget over HTTP: predictions, jobs and recommendations for so many tokens."""

from __future__ import annotations

from typing import Any

import pytest
from ended_trainings import PACE, end_trainings
from running_api import Service, job, problem
from simulated_agent import CLASS, SimulatedAgent, by_work

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.predictor import Pace
from edgefront.core.schemas.points import decode

LLAMA = {"name": "llama", "narrow": {"n_layer": {"min": 2, "max": 2}, "d_model": [128, 192]}}
BY_TOKENS = {"space": LLAMA, "proxy": "quality_law", "proxy_settings": {"law": "llama-dolma-cooled"}}
SIX_HOURS = {"hours": 6.0, "trainer": "gpu-box"}
SEARCH = {"algorithm": {"name": "random"}, "budget": {"candidates": 6, "refinement": 0}}


@pytest.mark.parametrize("tokens", [0, "10B"])
def test_what_is_no_count_of_tokens_is_refused_and_nothing_is_stored(service: Service, tokens: object) -> None:
    client = service.client("user", "bob")
    SimulatedAgent(service.database, by_work)
    for path, body in (
        ("/v1/jobs", job(**BY_TOKENS, train_tokens=tokens)),
        ("/v1/predictions", {"device_class": CLASS, "architectures": ["smollm2-135m"], "train_tokens": tokens}),
    ):
        assert problem(client.post(path, json=body), 422)["field"] == "train_tokens"
    assert client.get("/v1/jobs").json()["items"] == []


def test_a_law_of_one_budget_refuses_another_and_nothing_is_stored(service: Service) -> None:
    client = service.client("user", "bob")
    SimulatedAgent(service.database, by_work)
    refused = problem(client.post("/v1/jobs", json=job(proxy="quality_law", train_tokens=10**10)), 422)
    assert refused["field"] == "train_tokens"
    assert "predicts for one training budget" in refused["detail"]
    encoder = job(space={"name": "bert"}, train_tokens=10**10)
    assert problem(client.post("/v1/jobs", json=encoder), 422)["field"] == "train_tokens"
    assert client.get("/v1/jobs").json()["items"] == []


def test_the_answer_of_a_job_is_recomputed_for_other_tokens(service: Service) -> None:
    client = service.client("user", "bob")
    agent = SimulatedAgent(service.database, by_work)
    made = service.submit(client, **BY_TOKENS, **SEARCH, train_tokens=10**10)
    service.measure(agent)
    path = f"/v1/jobs/{made['id']}/recommendation"

    def answer(**query: int) -> dict[str, Any]:
        return dict(client.get(path, params=query).raise_for_status().json())

    own, few, many = answer(), answer(train_tokens=10**9), answer(train_tokens=10**11)
    assert [view["training"]["train_tokens"] for view in (own, few, many)] == [1e10, 1e9, 1e11]
    assert {view["training"]["own"] for view in (own, few, many)} == {1e10}
    perplexities = [view["baseline"]["predicted"]["perplexity"] for view in (few, own, many)]
    assert perplexities == sorted(perplexities, reverse=True)
    assert "on 100 billion tokens" in many["perplexity_of"]
    assert "not on 1 billion" in few["note"]  # of fewer than the law was learnt from
    stored = client.get(f"/v1/candidates/{many['baseline']['id']}").json()
    assert stored["predicted"]["train_tokens"] == 1e10  # what the search predicted stays
    assert problem(client.get(path, params={"train_tokens": 0}), 422)["field"] == "train_tokens"

    asked = {"device_class": CLASS, "architectures": [own["recommended"]["architecture"]], "train_tokens": 10**10}
    by_law = client.post("/v1/predictions", json={**asked, "law": "llama-dolma-cooled"}).json()
    (prediction,) = by_law["predictions"]
    assert prediction["predicted"]["perplexity"] == pytest.approx(own["recommended"]["predicted"]["perplexity"])
    (ratio,) = client.post("/v1/predictions", json=asked).json()["predictions"]
    assert ratio["predicted"]["relative_to"] == "smollm2-135m"
    unknown = client.post("/v1/predictions", json={**asked, "law": "no-such-law"})
    assert problem(unknown, 422)["field"] == "law"
    lines = client.get(f"/v1/jobs/{made['id']}/candidates", params={"format": "csv"}).text.splitlines()
    assert "predicted_relative_to,predicted_train_tokens,predicted_law,predicted_label" in lines[0]
    assert '10000000000.0,llama-dolma-cooled,"Dolma, 10B tokens, finished schedule"' in lines[1]
    labels = [view["recommended"]["predicted"]["label"] for view in (own, few, many)]
    assert labels == [f"Dolma, {tokens} tokens, finished schedule" for tokens in ("10B", "1B", "100B")]
    assert ratio["predicted"]["label"] == "ratio, own data, 10B tokens"
    header, _ = decode(client.get(f"/v1/jobs/{made['id']}/points").content)
    assert header.label == labels[0]
    compared = client.get("/v1/comparison", params={"job": made["id"]}).json()["architectures"]
    assert {model["label"] for model in compared} == {labels[0]}
    assert client.get(f"/v1/jobs/{made['id']}/law").json()["law"]["label"] == labels[0]


def test_a_training_is_estimated_and_nothing_is_stored(service: Service) -> None:
    client, path = service.client("user", "bob"), "/v1/trainings/estimate"
    asked = {"model": "smollm2-135m", "dataset": "python", "recipe": "quick"}
    estimated = client.post(path, json=asked).json()
    assert (estimated["recipe"], estimated["dataset"], estimated["trainings"]) == ("quick", "python", 1)
    recipe = next(view for view in client.get("/v1/catalogue/recipes").json() if view["name"] == "quick")
    assert estimated["tokens"] == recipe["tokens"]
    assert problem(client.post(path, json={**asked, "recipe": "no such"}), 422)["field"] == "recipe"
    assert problem(client.post(path, json={"candidate": "cnd_nowhere"}), 404)["kind"] == "not-found"
    viewer = service.client("viewer", "bob")
    assert viewer.post(path, json=asked).status_code == 403
    assert client.get("/v1/trainings").json()["items"] == []


def test_a_time_on_a_worker_is_a_budget_by_its_pace(service: Service) -> None:
    client = service.client("user", "bob")
    agent = SimulatedAgent(service.database, by_work)
    assert client.get("/v1/trainers").json() == []
    unknown = problem(client.post("/v1/jobs", json=job(**BY_TOKENS, train_time=SIX_HOURS)), 422)
    assert (unknown["field"], unknown["allowed"][:8]) == ("train_time.trainer", "none yet")
    end_trainings(service.database, "gpu-box")
    (trainer,) = client.get("/v1/trainers").json()
    assert (trainer["name"], trainer["gpus"], trainer["pace"]["trainings"]) == ("gpu-box", 1, 2)
    assert trainer["pace"]["seconds_per_token"] == pytest.approx(PACE.seconds_per_token)
    assert trainer["pace"]["seconds_per_flop"] == pytest.approx(PACE.seconds_per_flop)

    made = service.submit(client, **BY_TOKENS, **SEARCH, train_time=SIX_HOURS)
    assert made["request"]["train_time"]["pace"] == pytest.approx(trainer["pace"])
    end_trainings(service.database, "gpu-box", Pace(1.0, 0.0, 512))  # another pace moves no job
    service.measure(agent)
    path = f"/v1/jobs/{made['id']}/recommendation"

    def answer(**query: object) -> dict[str, Any]:
        return dict(client.get(path, params=query).raise_for_status().json())

    own = answer()
    assert own["training"]["own_time"] == own["training"]["train_time"] == SIX_HOURS
    assert own["training"]["own"] is None
    assert own["training"]["trainers"] == ["gpu-box"]
    tokens = {each["id"]: each["predicted"]["train_tokens"] for each in (own["recommended"], own["baseline"])}
    for each in (own["recommended"], own["baseline"]):
        shapes = Shapes.of([Architecture.model_validate(each["architecture"])])
        assert tokens[each["id"]] == pytest.approx(6 * 3600 / PACE.seconds(shapes)[0])
    assert "as many tokens as 6 hours on gpu-box take" in own["perplexity_of"]
    assert answer(train_tokens=10**10)["training"]["train_tokens"] == 1e10
    longer = answer(train_hours=1.0, trainer="gpu-box")
    assert longer["training"]["train_time"] == {"hours": 1.0, "trainer": "gpu-box"}

    for query in (
        {"train_hours": 6},
        {"trainer": "gpu-box"},
        {"train_hours": 6, "trainer": "gpu-box", "train_tokens": 9},
    ):
        assert problem(client.get(path, params=query), 422)["field"] in ("trainer", "train_hours", "train_tokens")
    nobody = problem(client.get(path, params={"train_hours": 6, "trainer": "nobody"}), 422)
    assert (nobody["field"], nobody["allowed"]) == ("train_time.trainer", "gpu-box")
    asked = {"device_class": CLASS, "architectures": ["smollm2-135m"], "law": "llama-dolma-cooled"}
    (prediction,) = client.post("/v1/predictions", json={**asked, "train_time": SIX_HOURS}).json()["predictions"]
    assert prediction["predicted"]["train_tokens"] > 0


def test_a_pace_is_of_trainings_that_go_alike(service: Service) -> None:
    """Distilled trainings, which run a teacher too, teach none; another precision or compilation has its own."""
    client, database = service.client("user", "bob"), service.database
    slow, half = Pace(1.0, 0.0, 512), Pace(1e-6, 5e-14, 512)
    end_trainings(database, "gpu-box", slow, overrides={"distil": {}, "memory": 0})
    end_trainings(database, "eves-box", slow, owner="eve")
    assert client.get("/v1/trainers").json() == []
    end_trainings(database, "gpu-box", slow)
    end_trainings(database, "gpu-box", slow, overrides={"precision": "bfloat16"})
    end_trainings(database, "gpu-box", half, overrides={"precision": "bfloat16", "compile": True})
    end_trainings(database, "gpu-box", slow, overrides={"distil": {}, "memory": 0})
    (trainer,) = client.get("/v1/trainers").json()
    assert trainer["pace"]["trainings"] == 2
    assert trainer["pace"]["seconds_per_token"] == pytest.approx(half.seconds_per_token)
    assert trainer["pace"]["seconds_per_flop"] == pytest.approx(half.seconds_per_flop)


@pytest.mark.parametrize(
    "time",
    [
        {"hours": 0, "trainer": "gpu-box"},
        {"hours": 6.0},
        {"hours": 6.0, "trainer": "gpu-box", "pace": {"seconds_per_token": 0.0, "seconds_per_flop": 0.0, "segment": 1}},
    ],
)
def test_what_is_no_time_of_training_is_refused_and_nothing_is_stored(service: Service, time: object) -> None:
    client = service.client("user", "bob")
    SimulatedAgent(service.database, by_work)
    end_trainings(service.database, "gpu-box")
    refused = problem(client.post("/v1/jobs", json=job(**BY_TOKENS, train_time=time)), 422)
    assert refused["field"].startswith("train_time")
    assert client.get("/v1/jobs").json()["items"] == []
    both = job(**BY_TOKENS, train_tokens=10**9, train_time=SIX_HOURS)
    assert "not both" in problem(client.post("/v1/jobs", json=both), 422)["detail"]
