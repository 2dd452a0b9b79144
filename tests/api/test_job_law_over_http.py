"""The quality law of a job over HTTP: shown, moved, refused."""

from __future__ import annotations

from pathlib import Path

from running_api import Service, problem
from simulated_agent import SimulatedAgent, by_work
from simulated_pool import Pool, settings_for
from simulated_trainings import BASE, Trainings

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.quality import refits
from edgefront.core.services.tasks import MOVE_LAW, REFIT
from edgefront.workers.laws import move


def learnt(service: Service, tmp_path: Path, job_id: str, owner: str) -> str:
    """The name of a law that five trainings of the job's candidates have refined."""
    pool = Pool(service.database, settings_for(service.settings.database_url, tmp_path))
    pool.user = Principal("key_test", "test", owner, "user")
    trainings = Trainings(pool)
    trainings.end_all(trainings.candidates(job_id, 5))
    for key in {arguments["comparability_key"] for task, arguments in service.tasks.others if task == REFIT}:
        refits.refit(service.database, key)
    return trainings.versions()[0].name


def test_a_job_is_moved_to_a_refined_law(service: Service, tmp_path: Path) -> None:
    client = service.client("user", "bob")
    agent = SimulatedAgent(service.database, by_work)
    job = service.submit(client)
    service.measure(agent)
    path = f"/v1/jobs/{job['id']}/law"
    own = client.get(path).json()
    assert (own["law"]["law"], own["newer"], own["agreement"]) == (BASE, [], None)

    name = learnt(service, tmp_path, job["id"], "bob")
    listed = {law["name"]: law for law in client.get("/v1/quality/laws").json()}
    assert (listed[name]["version"], listed[name]["table_models"], listed[BASE]["version"]) == (1, 5, 0)
    assert client.get(f"/v1/quality/laws/{name}@1").json() == client.get(f"/v1/quality/laws/{name}").json()
    assert f"{name}@1" in problem(client.get(f"/v1/quality/laws/{name}@2"), 404)["detail"]

    assert [law["law"] for law in client.get(path).json()["newer"]] == [f"{name}@1"]
    assert client.post(path, json={"law": name, "version": 1}).json()["moving_to"] == f"{name}@1"
    assert (MOVE_LAW, {"job_id": job["id"]}) in service.tasks.others
    move(service.database, job["id"])
    moved = client.get(path).json()
    assert (moved["law"]["law"], moved["moving_to"], moved["newer"]) == (f"{name}@1", None, [])
    assert moved["agreement"]["alike"]
    assert moved["agreement"]["models"] == len(moved["agreement"]["rows"]) == 5
    assert client.get(f"/v1/jobs/{job['id']}").json()["request"]["proxy_settings"] == {"law": f"{name}@1"}


def test_what_is_wrong_with_a_move_is_named(sqlite_service: Service) -> None:
    client = sqlite_service.client("user", "bob")
    SimulatedAgent(sqlite_service.database, by_work)
    job = sqlite_service.submit(client)
    path = f"/v1/jobs/{job['id']}/law"
    unknown = problem(client.post(path, json={"law": "nothing"}), 422)
    assert unknown["field"] == "law"
    assert BASE in unknown["allowed"]
    assert problem(client.post(path, json={"law": BASE, "version": 0}), 422)["field"] == "version"
    assert problem(client.post(path, json={}), 422)["field"] == "law"
    other = problem(client.post(path, json={"law": "lts-transformer-xl-wikitext103"}), 422)
    assert other["allowed"] == "a law of the family gpt2"
    eve = sqlite_service.client("user", "eve")
    problem(eve.get(path), 404)
    problem(eve.post(path, json={"law": BASE}), 404)
    problem(client.post("/v1/jobs/job_nowhere/law", json={"law": BASE}), 404)
