"""Single sign-on: a trusted proxy names the person, and nobody else can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running_api import Service, job, problem
from simulated_agent import CLASS

from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

ADA = {"X-Forwarded-Email": "ada@example.org"}
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def service(database: Database, start_service: Callable[..., Service]) -> Service:
    return start_service(database, user_header="X-Forwarded-Email", trusted_proxies="127.0.0.0/8, ::1")


def test_a_trusted_proxy_signs_people_in(service: Service) -> None:
    service.enrol("board", CLASS)
    ada, bob = service.client_with(ADA), service.client_with({"X-Forwarded-Email": "bob@example.org"})
    me = ada.get("/v1/me").json()
    assert (me["name"], me["owner"], me["role"]) == ("ada@example.org", "ada@example.org", "user")
    made = ada.post("/v1/jobs", json=job(), headers=OWN_PAGE)
    assert made.status_code == 201, made.text
    path = f"/v1/jobs/{made.json()['id']}"
    assert ada.get(path).status_code == 200
    problem(bob.get(path), 404)
    with ada.stream("GET", f"{path}/events") as events:
        assert next(events.iter_lines()) is not None
    problem(ada.post("/v1/keys", json={"name": "x"}, headers=OWN_PAGE), 403)  # an admin has a key
    assert service.client("admin", "root").get(path, headers=ADA).json()["owner"] == "ada@example.org"


def test_pages_ask_nobody_for_a_key_whom_a_proxy_has_signed_in(service: Service) -> None:
    page = {"Accept": "text/html"}
    assert service.client_with(ADA).get("/jobs", headers=page).status_code == 200
    assert service.client(None).get("/jobs", headers=page).status_code == 303


def test_another_site_cannot_use_the_sign_on(service: Service) -> None:
    ada = service.client_with(ADA)
    assert "own pages" in problem(ada.post("/v1/jobs", json=job()), 403)["detail"]
    problem(ada.post("/v1/jobs", json=job(), headers={"Sec-Fetch-Site": "cross-site"}), 403)


@pytest.mark.parametrize("headers", [[*ADA.items(), *ADA.items()], [("X-Forwarded-Email", "")], []])
def test_a_header_that_names_nobody_signs_nobody_in(service: Service, headers: list[tuple[str, str]]) -> None:
    problem(service.client(None).get("/v1/me", headers=headers), 401)


def test_the_header_of_another_peer_means_nothing(database: Database, start_service: Callable[..., Service]) -> None:
    service = start_service(database, user_header="X-Forwarded-Email", trusted_proxies="10.0.0.1")
    problem(service.client_with(ADA | {"X-Forwarded-For": "10.0.0.1"}).get("/v1/me"), 401)


def test_it_needs_a_list_of_trusted_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_HTTP__USER_HEADER", "X-Forwarded-Email")
    with pytest.raises(InvalidInput, match="EDGEFRONT_HTTP__USER_HEADER needs EDGEFRONT_HTTP__TRUSTED_PROXIES"):
        Settings()
