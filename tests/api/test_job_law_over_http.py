"""The scaling law of a job and of an owner over HTTP."""

from __future__ import annotations

from pathlib import Path

from running_api import Service, problem
from simulated_agent import SimulatedAgent, by_work
from simulated_pool import Pool, settings_for
from simulated_trainings import BASE, Trainings

from edgefront.core.services.access.keys import Principal


def test_the_law_of_a_job_and_those_of_its_owner(service: Service, tmp_path: Path) -> None:
    client, eve = service.client("user", "bob"), service.client("user", "eve")
    agent = SimulatedAgent(service.database, by_work)
    job = service.submit(client)
    service.measure(agent)
    path = f"/v1/jobs/{job['id']}/law"
    own = client.get(path).json()
    assert (own["law"]["law"], own["answers"]["law"], own["agreement"]) == (BASE, BASE, None)

    pool = Pool(service.database, settings_for(service.settings.database_url, tmp_path))
    pool.user = Principal("key_test", "test", "bob", "user")
    trainings = Trainings(pool)
    trainings.end_all(trainings.candidates(job["id"], 5))
    trainings.learn()
    (row,) = trainings.laws()
    listed = {law["name"]: law for law in client.get("/v1/quality/laws").json()}
    assert (listed[row.name]["table_models"], listed[BASE]["updated_at"]) == (5, None)
    assert client.get(f"/v1/quality/laws/{row.name}").json() == listed[row.name]
    shown = client.get(path).json()
    assert (shown["law"]["law"], shown["answers"]["law"]) == (BASE, row.name)
    assert shown["agreement"]["alike"]
    assert shown["agreement"]["models"] == len(shown["agreement"]["rows"]) == 5

    assert row.name not in eve.get("/v1/quality/laws").text
    assert row.name not in eve.get(f"/v1/quality/laws/{BASE}-nothing").text
    problem(eve.get(f"/v1/quality/laws/{row.name}"), 404)
    problem(client.post(path, json={"law": BASE}), 405)
