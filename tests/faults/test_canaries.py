"""No response to one owner contains what another has named: every string that ann can name holds a canary, and bob asks
every endpoint of the OpenAPI document and every page, with ann's ids and with his own.

Shared by design (docs/security.md, docs/devices.md): devices, with their names, classes and logs. A viewer and an admin
read everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from packages import DESCRIPTIONS, IMPORT_PATH, lively, packed_model
from running_api import Service
from simulated_agent import CLASS, SimulatedAgent, by_size
from sqlalchemy import select

from edgefront.api.app import create_app
from edgefront.api.http.auth import PUBLIC
from edgefront.core.common.states import TrainingCommand, TrainingKind, TrainingState
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.services.settings import Settings
from edgefront.core.store.tables import Candidate, Evaluation, Launch, Training
from edgefront.core.training.evaluation.package import write_package
from edgefront.core.training.recipes.catalogue import recipe

CANARY = "zq7canary"
SHARED = {"device_id"}
"""Path parameters that name what owners share."""
QUIET_S = 3
"""An event stream in which nothing has come for so long has sent what there is."""
OWN = {
    *("get_job", "list_candidates", "get_frontier", "get_candidate", "list_launches", "get_recommendation"),
    *("follow_job", "get_training", "list_devices", "get_metrics"),
}
"""Operations that bob is answered about what is his: the test asks for something."""


def searched(service: Service, owner: str, agent: SimulatedAgent, canary: str) -> dict[str, str]:
    """A finished job of the owner, its ids by the names of path parameters."""
    client = service.client_with({"Authorization": f"Bearer {service.key('user', owner, name=f'{canary} key')}"})
    target = {"device_class": CLASS, "name": f"{canary} target"}
    job = service.submit(client, name=f"{canary} job", targets=[target])
    service.measure(agent)
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "finished"
    first = client.get(f"/v1/jobs/{job['id']}/frontier").json()["points"][0]
    return {"job_id": job["id"], "candidate_id": first["id"]}


def trained(service: Service, owner: str, job_id: str, canary: str) -> str:
    """Trainings of all candidates of the job, with scores; the id of one."""
    how = recipe("modern")
    with service.database.write() as session:
        now = service.database.now(session)
        for row in session.scalars(select(Candidate).where(Candidate.job_id == job_id)).all():
            training = Training(
                owner=owner, name=f"{canary} training", kind=TrainingKind.TRAINING, request={"licence": canary},
                request_digest="", architecture=row.architecture, trained=row.architecture, digest=row.digest,
                decoder_parameters=row.decoder_parameters, job_id=job_id, target_id=row.target_id,
                candidate_id=row.id, dataset=f"{canary}-data", dataset_digest="0" * 64, recipe_name=how.name,
                recipe=how.model_dump(mode="json"), budget={}, seed=0, device="cpu", gpus=0,
                queue="cpu", state=TrainingState.DONE, wanted=TrainingCommand.RUN, note=f"{canary} note",
                worker="trainer", tokens=10**6, seconds=100.0, created_at=now, updated_at=now, finished_at=now,
            )  # fmt: skip
            session.add(training)
            session.flush()
            session.add(
                Evaluation(
                    owner=owner,
                    recipe_key="0" * 16,
                    digest=row.digest,
                    training_id=training.id,
                    dataset=f"{canary}-data",
                    split="validation",
                    metric="perplexity",
                    value=20.0 + row.number,
                    created_at=now,
                    details={"recipe": how.name, "comparability_key": "0" * 16, "seed": 0, "tokenizer": canary},
                )
            )
        return training.id


def imported(client: httpx.Client, folder: Path, canary: str) -> str:
    facts = {"name": f"{canary} model", "licence": canary, "dataset": f"{canary}-data"}
    write_package(folder, lively(DESCRIPTIONS["gpt2"]), ByteTokenizer(), facts)
    made = client.post(IMPORT_PATH, content=packed_model(folder), params={"name": f"{canary} import"})
    assert made.status_code == 201, made.text
    identifier: str = made.json()["id"]
    return identifier


def requests(ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Every GET of the OpenAPI document (its name, and its address with these ids), and every page."""
    for path, item in create_app(Settings()).openapi()["paths"].items():
        if (operation := item.get("get")) is None:
            continue
        query = {}
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            value = ids.get(name, (parameter["schema"].get("examples") or [""])[0])
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", str(value))
            elif parameter.get("required"):
                query[name] = {"kind": "job", "text": ids["job_id"][:8]}.get(name, value)
        yield operation["operationId"], str(httpx.URL(path, params=query)) if query else path
    yield "comparison", f"/v1/comparison?job={ids['job_id']}"
    for kind in ("job", "training", "candidate", "device"):
        yield f"identifiers of {kind}", f"/v1/identifiers?kind={kind}&text="
    for page in PUBLIC:
        yield f"page {page}", page
    for page in (f"/jobs/{ids['job_id']}", f"/trainings/{ids['training_id']}"):
        yield f"page {page}", page


def answered(client: httpx.Client, path: str) -> tuple[int, str]:
    """Status, headers and body of a GET; of an endless one its first lines."""
    timeout = httpx.Timeout(60, read=QUIET_S if path.endswith("/events") else 60)
    with client.stream("GET", path, timeout=timeout) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            lines: list[str] = []
            with suppress(httpx.ReadTimeout):
                lines.extend(answer.iter_lines())
            text = "\n".join(lines)
        else:
            text = answer.read().decode("latin-1")
        return answer.status_code, f"{answer.headers}\n{text}"


def posted(ids: dict[str, str], job: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Requests of bob that compute an answer."""
    yield "estimate_job", "/v1/jobs/estimate", job
    model = {"candidate": ids["candidate_id"], "recipe": "modern"}
    yield "estimate_trainings", "/v1/trainings/estimate", model
    yield "predict", "/v1/predictions", {"device_class": CLASS, "architectures": [{"name": "gpt2-small"}]}
    for verb in ("pause", "resume", "cancel"):
        yield f"{verb}_job", f"/v1/jobs/{ids['job_id']}/{verb}", None
        yield f"{verb}_training", f"/v1/trainings/{ids['training_id']}/{verb}", None


def test_no_response_to_one_owner_holds_what_another_has_named(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent = SimulatedAgent(service.database, by_size())
    hers = searched(service, "ann", agent, CANARY)
    hers["training_id"] = trained(service, "ann", hers["job_id"], CANARY)
    ann = service.client("user", "ann")
    model = imported(ann, tmp_path / "hers", CANARY)
    his = searched(service, "bob", agent, "his")
    his["training_id"] = trained(service, "bob", his["job_id"], "his")
    device, credential = service.enrol("shared device", owner="bob")
    with service.database.read() as session:
        launches = session.scalars(select(Launch.id).where(Launch.target_id.is_not(None))).all()
    assert launches
    secret = {CANARY, model, *(value for name, value in hers.items() if name not in SHARED)}
    bob = service.client("user", "bob")
    agent_of_bob = service.client_with({"Authorization": f"Bearer {credential}"})
    leaks, seen = [], set()
    for ids in (hers | {"device_id": device}, his | {"device_id": agent.device_id}):
        asked = set(ids.values())
        for name, path in requests(ids):
            for who, client in (("bob", bob), ("his device", agent_of_bob)):
                status, text = answered(client, path)
                found = {word for word in secret - asked if word in text}
                leaks += [f"{name} to {who}: {word} in {path} ({status})" for word in sorted(found)]
                if ids["job_id"] == his["job_id"] and status == 200:
                    seen.add(name)
                is_hers = ids["job_id"] == hers["job_id"] and any(value in path for value in hers.values())
                if is_hers and status == 200 and not name.startswith(("page", "identifiers")):
                    leaks.append(f"{name} answers {who} about what is ann's")
    for ids in (hers, his):
        for name, path, content in posted(ids, {"targets": [{"device_class": CLASS}], "name": "his"}):
            text = bob.post(path, json=content).text
            leaks += [f"{name}: {word}" for word in secret - set(ids.values()) if word in text]
    assert leaks == [], "\n".join(leaks)
    assert seen >= OWN
    assert CANARY in ann.get("/v1/jobs").text, "to her it is shown"
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("edgefront")]
    assert not [line for line in logged if CANARY in line]
