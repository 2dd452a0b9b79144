"""The service below a path of a proxy: every address that it gives stays below it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from path_proxy import path_proxy
from pydantic import ValidationError
from running_api import Service, job, problem, started
from simulated_agent import SimulatedAgent
from typer.testing import CliRunner

from edgefront.agents.server.client import AgentClient
from edgefront.api.app import create_app
from edgefront.api.docs.examples import example
from edgefront.cli.main import app as cli
from edgefront.client.client import Client
from edgefront.core.common.errors import InvalidInput
from edgefront.core.schemas.agent import EnrolRequest
from edgefront.core.services.settings import HttpSettings, Settings
from edgefront.core.store.database import Database

ROOT = "/edgefront"


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Its address has a path."""
    home = tmp_path_factory.mktemp("below")
    database = Database(f"sqlite:///{home / 'edgefront.db'}")
    database.migrate()
    with ExitStack() as stack:
        stack.callback(database.dispose)
        yield started(stack, database, home, url=f"https://host.example{ROOT}/")


@pytest.fixture(scope="module", params=["stripped", "passed on"])
def stranger(request: pytest.FixtureRequest, below: Service) -> httpx.Client:
    """Somebody without a key, who asks as a proxy does."""
    return below.client_with({}, base_url=below.url + (ROOT if request.param == "passed on" else ""))


def test_a_page_leads_to_the_login_below_the_path_and_back(stranger: httpx.Client) -> None:
    answer = stranger.get("/jobs/job_1?x=1&y=2")
    location = httpx.URL(answer.headers["location"])
    assert (answer.status_code, location.path) == (303, f"{ROOT}/login")
    assert location.params["next"] == f"{ROOT}/jobs/job_1?x=1&y=2"
    assert stranger.get("/favicon.ico").headers["location"].startswith(f"{ROOT}/static/own/")


def test_what_the_api_names_is_below_the_path(below: Service) -> None:
    admin = below.client()
    SimulatedAgent(below.database)
    made = admin.post("/v1/jobs", json=job())
    assert made.headers["location"] == f"{ROOT}/v1/jobs/{made.json()['id']}"
    assert admin.get("/v1/openapi.json").json()["servers"][0]["url"] == ROOT
    assert admin.get("/v1/address").json()["url"] == f"https://host.example{ROOT}"


def test_the_session_is_that_of_the_path(below: Service) -> None:
    """Another service above the path on the same host has a session of its own, which a browser sends too."""
    client = below.client(None)
    answer = client.post("/v1/session", json={"key": below.key()})
    cookie = str(answer.headers["set-cookie"])
    client.cookies.clear()
    assert f"Path={ROOT};" in cookie
    mine = cookie.partition("=")[2].partition(";")[0]
    both = {"Cookie": f"edgefront_session={mine}; edgefront_session=of-the-outer-one"}
    assert client.get("/v1/me", headers=both).status_code == 200
    left = client.delete("/v1/session", headers={**both, "Sec-Fetch-Site": "same-origin"})
    assert left.status_code == 204
    assert f"Path={ROOT};" in left.headers["set-cookie"]
    problem(client.get("/v1/me", headers=both), 401)


def test_nobody_says_where_the_service_is(below: Service) -> None:
    said = {"X-Forwarded-Prefix": "/other", "X-Forwarded-Host": "evil.example"}
    answer = below.client(None).get("/jobs/x", headers=said)
    assert answer.headers["location"] == f"{ROOT}/login?next=%2Fedgefront%2Fjobs%2Fx"


def test_what_needs_a_key_needs_it_below_the_path_too(stranger: httpx.Client) -> None:
    for path in ("/v1/jobs", "/v1/openapi.json", "/metrics", f"{ROOT}/v1/jobs", f"{ROOT}/login/../v1/jobs"):
        problem(stranger.get(path), 401)
    assert stranger.get("/v1/health").status_code == 200
    problem(stranger.post("/v1/session", content=b"x" * 20_000, headers={"Content-Type": "application/json"}), 413)


@pytest.mark.anyio
async def test_client_and_agent_reach_a_service_below_a_path(below: Service) -> None:
    with path_proxy(below.url, ROOT) as proxy:
        with Client(f"{proxy.url}/", below.key()) as client:
            token = client.tokens.create(name="board").token
            async with AgentClient(f"{proxy.url}/") as agent:
                made = await agent.enrol(
                    str(token),
                    EnrolRequest.model_validate({**example("enrol_request"), "name": "far", "device_class": "far"}),
                )
            assert client.devices.get(made.device_id).name == "far"
        shown = CliRunner().invoke(cli, ["--url", f"{proxy.url}/", "--key", below.key(), "device", "list", "--json"])
        assert "far" in [device["name"] for device in json.loads(shown.stdout)]
    assert proxy.outside == []


@pytest.mark.parametrize("path", ["/jobs", "/v1/x"])
def test_a_path_of_the_services_own_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"begins like one of the service's own paths"):
        create_app(Settings(http=HttpSettings(url=f"https://host.example{path}")))


def test_the_path_is_that_of_the_url() -> None:
    assert HttpSettings(url="https://host.example/a/b/").root_path == "/a/b"
    assert HttpSettings(url="https://host.example/").root_path == ""
    for wrong in ("edgefront", "//evil.example", "/a/../b", "/a?b", "/a b"):
        with pytest.raises(ValidationError):
            HttpSettings(url=f"https://host.example/{wrong}" if wrong[0] == "/" else wrong)
