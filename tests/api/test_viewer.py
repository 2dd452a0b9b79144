"""What others have does not exist, and a viewer reads all of it and changes nothing: by every operation of the OpenAPI
document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from databases import ON_BOTH
from ended_trainings import end_trainings
from running_api import Service, problem
from simulated_agent import SimulatedAgent
from sqlalchemy import select

from edgefront.api.app import create_app
from edgefront.core.common.errors import Forbidden
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.jobs import lifecycle
from edgefront.core.services.settings import Settings
from edgefront.core.store.tables import Base

COMPUTES = {"predict", "import_model", "describe"}
"""What a viewer may send: nothing of it is stored."""
OWNED = ("job_id", "candidate_id", "training_id")
"""Path parameters that name what is its owner's alone."""
SIGNING = {"open_session", "close_session"}
FOR_ADMINS = {"list_enrolment_tokens", "get_enrolment_token"}
FOR_USERS = {"list_keys"}
CACHES = {"artifact", "access_version", "web_session"}
"""Tables that reading writes to: files that were built for a download, and sign-ins."""


def operations(*methods: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = create_app(Settings()).openapi()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in methods:
                yield method.upper(), path, operation


@pytest.fixture
def things(service: Service) -> dict[str, str]:
    """What ada has, by the names of path parameters."""
    ada = service.client("user", "ada")
    agent = SimulatedAgent(service.database)
    job = service.submit(ada)
    service.measure(agent)
    candidate = ada.get(f"/v1/jobs/{job['id']}/candidates").json()["items"][0]
    end_trainings(service.database, "gpu-box", owner="ada")
    training = ada.get("/v1/trainings").json()["items"][0]
    token = service.client().post("/v1/enrolment-tokens", json={}).json()
    return {
        "job_id": job["id"], "candidate_id": candidate["id"], "training_id": training["id"],
        "device_id": agent.device_id, "token_id": token["id"],
    }  # fmt: skip


def address(path: str, operation: dict[str, Any], things: dict[str, str]) -> str:
    """The path with real ids where there are some, else with the document's examples."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            value = things.get(parameter["name"], parameter["schema"]["examples"][0])
            path = path.replace(f"{{{parameter['name']}}}", str(value))
    return path


def body(operation: dict[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return next((example["value"] for example in content.get("examples", {}).values()), None)


def rows(service: Service) -> dict[str, list[Any]]:
    with service.database.read() as session:
        return {
            table.name: [tuple(row) for row in session.execute(select(table).order_by(*table.primary_key))]
            for table in Base.metadata.sorted_tables
            if table.name not in CACHES
        }


def status(client: httpx.Client, path: str) -> int:
    """Of a GET; an endless answer is not waited for."""
    with client.stream("GET", path) as answer:
        return answer.status_code


def test_what_another_owner_has_does_not_exist(service: Service, things: dict[str, str]) -> None:
    """Whoever asks for it is told what they would be told of nothing."""
    eve, before, tried = service.client("user", "eve"), rows(service), set()
    for method, path, operation in operations("get", "post", "put", "patch", "delete"):
        for name in OWNED:
            if f"{{{name}}}" in path:
                details = {
                    problem(
                        eve.request(method, address(path, operation, {**things, name: id_}), json=body(operation)), 404
                    )["detail"].replace(id_, "ID")
                    for id_ in (things[name], f"{things[name][:4]}unknown")
                }
                assert len(details) == 1, f"{method} {path}: {details}"
                tried.add(operation["operationId"])
    assert {"get_job", "delete_job", "follow_job", "get_frontier", "list_launches", "cancel_training"} <= tried
    assert rows(service) == before
    assert [eve.get(path).json()["items"] for path in ("/v1/jobs", "/v1/trainings")] == [[], []]


def test_a_viewer_changes_nothing(service: Service, things: dict[str, str]) -> None:
    viewer = service.client("viewer", "mia")
    before = rows(service)
    tried = set()
    for method, path, operation in operations("post", "put", "patch", "delete"):
        name = operation["operationId"]
        if name not in COMPUTES | SIGNING:
            answer = viewer.request(method, address(path, operation, things), json=body(operation))
            assert answer.status_code == 403, f"{name}: {answer.status_code} {answer.text}"
            tried.add(name)
    assert {"create_job", "cancel_job", "delete_training", "revoke_device", "create_key", "lease"} <= tried
    assert rows(service) == before


@ON_BOTH
def test_a_viewer_reads_what_an_admin_reads(service: Service, things: dict[str, str]) -> None:
    viewer, admin, bob = service.client("viewer", "mia"), service.client(), service.client("user", "bob")
    before = rows(service)
    read = set()
    for _, path, operation in operations("get"):
        name, where = operation["operationId"], address(path, operation, things)
        expected = 403 if name in FOR_ADMINS | FOR_USERS else status(admin, where)
        assert status(viewer, where) == expected, name
        if expected == 200 and status(bob, where) == 404:
            read.add(name)
    assert {"get_job", "get_frontier", "get_candidate", "list_launches", "download_model", "follow_job"} <= read
    assert [job["id"] for job in viewer.get("/v1/jobs").json()["items"]] == [things["job_id"]]
    assert rows(service) == before


def test_what_a_viewer_sends_is_only_computed(service: Service, things: dict[str, str]) -> None:
    viewer = service.client("viewer", "mia")
    before = rows(service)
    for method, path, operation in operations("post"):
        if operation["operationId"] in COMPUTES:
            answer = viewer.request(method, path, json=body(operation))
            assert answer.status_code in (200, 404, 409), f"{path}: {answer.text}"  # no such device, too few measured
    assert rows(service) == before
    with viewer.stream("GET", f"/v1/jobs/{things['job_id']}/events") as stream:
        assert next(line for line in stream.iter_lines() if line.startswith("id:")) == "id: 1"


def test_services_refuse_a_viewer_by_themselves(service: Service, things: dict[str, str]) -> None:
    mia = Principal("key_m", "mia", "mia", "viewer")
    with service.database.write() as session:
        now = service.database.now(session)
        with pytest.raises(Forbidden):
            lifecycle.cancel_job(session, mia, things["job_id"], now)
        with pytest.raises(Forbidden):
            devices.drain_device(session, mia, things["device_id"], now)
