"""What a device's page shows beside its state: what it does, and how another is added."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_BOTH
from running_api import Service, problem
from simulated_agent import SimulatedAgent

from edgefront.api.routers.devices import reachable
from edgefront.core.services.settings import HttpSettings


def test_what_a_device_does_names_only_ones_own_jobs(service: Service) -> None:
    device = SimulatedAgent(service.database)
    ada, bob = service.client("user", "ada"), service.client("user", "bob")
    job = service.submit(ada, name="a search of ada")
    path = f"/v1/devices/{device.name}/work"
    before = ada.get(path).json()
    waiting = before["waiting_class"]
    assert (before["held"], before["waiting"]) == ([], 0)
    assert waiting > 1
    assert before["queue"] == [
        {"job_id": job["id"], "job_name": "a search of ada", "of_class": True, "launches": waiting}
    ]
    (leased,) = device.lease(1).items
    work = ada.get(path).json()
    (held,) = work["held"]
    assert (held["launch_id"], held["digest"], held["started_at"]) == (leased.id, leased.digest, None)
    assert (held["job_name"], held["purpose"], held["runtime"]) == ("a search of ada", "first", "onnxruntime")
    candidate = ada.get(f"/v1/candidates/{held['candidate_id']}").json()
    assert candidate["digest"] == leased.digest
    assert work["waiting_class"] == waiting - 1
    seen = bob.get(path).json()
    assert (seen["held"][0]["job_id"], seen["held"][0]["candidate_id"]) == (None, None)
    assert seen["queue"] == [{"job_id": None, "job_name": None, "of_class": True, "launches": waiting - 1}]
    problem(service.agent().get(path), 403)


@ON_BOTH
def test_a_token_says_who_enrolled_with_it(service: Service) -> None:
    admin = service.client()
    token = admin.post("/v1/enrolment-tokens", json={"uses": 2}).json()
    path = f"/v1/enrolment-tokens/{token['id']}"
    assert admin.get(path).json()["enrolled"] == []
    enrolment = service.client_with({"Authorization": f"Bearer {token['token']}"})
    facts = admin.get(f"/v1/devices/{service.enrol()[0]}").json()["facts"]
    body = {"name": "new one", "device_class": "laptop", "facts": facts}
    device = enrolment.post("/v1/agents/enrol", json=body).raise_for_status().json()["device_id"]
    view = admin.get(path).json()
    assert (view["enrolled"], view["uses_left"], view["token"]) == ([device], 1, None)
    problem(service.client("user", "bob").get(path), 403)
    problem(admin.get("/v1/enrolment-tokens/enr_none"), 404)


def test_a_page_of_this_machine_names_no_address_that_others_cannot_reach(service: Service) -> None:
    address = service.client("user", "bob").get("/v1/address").raise_for_status().json()
    assert address["url"] == service.url
    assert address["local_only"]
    assert "--host" in address["note"]
    through = service.client().get("/v1/address", headers={"host": "edgefront.example:8443"}).json()
    assert (through["url"], through["local_only"]) == ("http://edgefront.example:8443", False)


@pytest.mark.parametrize(
    ("http", "asked", "url", "local_only"),
    [
        ({"url": "https://front.example/"}, "http://127.0.0.1:8090", "https://front.example", False),
        ({"host": "10.1.2.3"}, "http://localhost:8090", "http://10.1.2.3:8090", False),
        ({"host": "fd00::5"}, "https://[::1]:8443", "https://[fd00::5]:8443", False),
        ({}, "http://127.0.0.1:8090", "http://127.0.0.1:8090", True),
        ({"host": "0.0.0.0"}, "https://far.example", "https://far.example", False),
    ],
)
def test_the_address_is_the_set_one_or_one_that_is_reached(
    http: dict[str, Any], asked: str, url: str, local_only: bool
) -> None:
    address = reachable(HttpSettings(**http), asked)
    assert (address.url, address.local_only) == (url, local_only)
