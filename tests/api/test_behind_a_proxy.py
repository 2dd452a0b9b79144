"""The service below a path of a proxy: every address that it gives stays below it; only trusted proxies say where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from path_proxy import path_proxy
from pydantic import ValidationError
from running_api import Service, address, job, problem, running
from simulated_agent import SimulatedAgent
from typer.testing import CliRunner

from edgefront.agents.server.client import AgentClient
from edgefront.api.app import create_app
from edgefront.api.docs.examples import example
from edgefront.api.http.forwarded import OWN_ROOTS
from edgefront.cli import app as cli
from edgefront.client import Client
from edgefront.commands.devices import agent_command
from edgefront.core.errors import InvalidInput
from edgefront.core.services.settings import BrokerSettings, DatabaseSettings, HttpSettings, Settings
from edgefront.core.store.database import Database
from edgefront.core.wire.agent import EnrolRequest

ROOT = "/edgefront"
PREFIX = {"X-Forwarded-Prefix": ROOT}
PAGES = (
    "/",
    "/jobs",
    "/new",
    "/new?from=job_1",
    "/jobs/job_1",
    "/jobs/job_1/log",
    "/jobs/job_1/candidates/cnd_1",
    "/compare",
    "/trainings",
    "/trainings/trn_1",
    "/devices",
    "/devices/board",
    "/docs",
    "/login",
    "/nothing",
)
HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, home: Path, **http: str) -> Service:
    url = f"sqlite:///{home / 'edgefront.db'}"
    database = Database(url)
    stack.callback(database.dispose)
    database.migrate()
    settings = Settings(
        home=home, database=DatabaseSettings(url=url), broker=BrokerSettings(), http=HttpSettings(**http)
    )
    server = stack.enter_context(running(settings, database))
    return Service(address(server), database, settings, server, stack)


@pytest.fixture(scope="module")
def trusting(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """It trusts proxies on this machine."""
    return started(stack, tmp_path_factory.mktemp("trusting"), trusted_proxies="127.0.0.1")


@pytest.fixture(scope="module")
def told(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """It trusts nobody; its settings say below which path it is served."""
    return started(stack, tmp_path_factory.mktemp("told"), root_path=f"{ROOT}/")


@pytest.fixture(scope="module", params=["header", "setting", "setting, not stripped"])
def below(request: pytest.FixtureRequest, trusting: Service, told: Service) -> httpx.Client:
    """A stranger that asks the service as a proxy does, below `ROOT`."""
    service = trusting if request.param == "header" else told
    url = service.url + (ROOT if request.param == "setting, not stripped" else "")
    return service.client_with(PREFIX if request.param == "header" else {}, base_url=url)


def signed_in(client: httpx.Client, service: Service) -> str:
    answer = client.post("/v1/session", json={"key": service.key()})
    assert answer.status_code == 201
    return str(answer.headers["set-cookie"])


def test_every_address_in_a_page_stays_below_the_path(below: httpx.Client) -> None:
    assets: set[str] = set()
    for path in PAGES:
        page = below.get(path, headers={**HTML, "Cookie": "edgefront_session=any"})
        assert page.status_code == (404 if path == "/nothing" else 200)
        named = re.findall(r'(?:href|src|action)="([^"]*)"', page.text)
        assert len(named) > 5
        assert [name for name in named if not name.startswith((f"{ROOT}/", "#"))] == [], path
        assert f'data-root="{ROOT}"' in page.text
        here = re.findall(r'<a href="([^"]*)" aria-current="page"', page.text)
        assert here == ([ROOT + path] if path in ("/jobs", "/compare", "/trainings", "/devices", "/docs") else [])
        assets.update(name for name in named if "/static/" in name)
    assert {below.head(name.removeprefix(ROOT)).status_code for name in assets} == {200}


def test_a_page_leads_to_the_login_below_the_path_and_back(below: httpx.Client) -> None:
    answer = below.get("/jobs/job_1?x=1&y=2")
    location = httpx.URL(answer.headers["location"])
    assert (answer.status_code, location.path) == (303, f"{ROOT}/login")
    assert location.params["next"] == f"{ROOT}/jobs/job_1?x=1&y=2"
    assert below.get("/favicon.ico").headers["location"].startswith(f"{ROOT}/static/own/")


def test_the_missing_page_shows_the_address_as_the_browser_does(below: httpx.Client) -> None:
    assert f"<code>{ROOT}/nothing</code>" in below.get("/nothing", headers=HTML).text


@pytest.mark.parametrize("service_name", ["trusting", "told"])
def test_what_the_api_names_is_below_the_path(service_name: str, request: pytest.FixtureRequest) -> None:
    service: Service = request.getfixturevalue(service_name)
    admin = service.client_with({"Authorization": f"Bearer {service.key()}", **PREFIX})
    SimulatedAgent(service.database)
    made = admin.post("/v1/jobs", json=job())
    assert made.headers["location"] == f"{ROOT}/v1/jobs/{made.json()['id']}"
    assert admin.get("/v1/openapi.json").json()["servers"][0]["url"] == ROOT
    own = {"host": "edgefront.example:8443"}
    assert admin.get("/v1/address", headers=own).json()["url"] == f"http://edgefront.example:8443{ROOT}"
    local = admin.get("/v1/address").json()
    assert local == {"url": f"{service.url}{ROOT}", "local_only": True, "note": local["note"]}


def test_the_session_is_that_of_the_path(trusting: Service) -> None:
    """Two services on one host, one below the other: each has a session of its own, whichever was opened first."""
    inner, outer = trusting.client_with(PREFIX), trusting.client_with({})
    cookie = signed_in(inner, trusting)
    assert f"Path={ROOT};" in cookie
    assert "Path=/;" in signed_in(outer, trusting)
    mine = cookie.partition("=")[2].partition(";")[0]
    both = {"Cookie": f"edgefront_session={mine}; edgefront_session=of-the-outer-one"}
    assert inner.get("/v1/me", headers=both).status_code == 200
    left = inner.delete("/v1/session", headers={**both, "Sec-Fetch-Site": "same-origin"})
    assert left.status_code == 204
    assert f"Path={ROOT};" in left.headers["set-cookie"]
    problem(inner.get("/v1/me", headers=both), 401)


@pytest.mark.parametrize(
    "prefix",
    [
        "//evil.example",
        "https://evil.example",
        "/a/../..",
        "/a b",
        "/a\\b",
        '/"><script>',
        "/v1",
        "/jobs/x",
        "x",
        "/%2f",
    ],
)
def test_a_trusted_proxy_that_names_no_path_is_told_so(trusting: Service, prefix: str) -> None:
    answer = trusting.client(None).get("/", headers={"X-Forwarded-Prefix": prefix})
    assert "X-Forwarded-Prefix must be a path" in problem(answer, 400)["detail"]
    assert "location" not in answer.headers


def test_the_prefixes_of_proxies_in_a_row_are_one_path(trusting: Service) -> None:
    named = [("X-Forwarded-Prefix", "/outer/"), ("X-Forwarded-Prefix", "/inner")]
    assert (
        httpx.get(f"{trusting.url}/", headers=named, trust_env=False)
        .headers["location"]
        .startswith("/outer/inner/login?")
    )
    assert trusting.client(None).get("/", headers={"X-Forwarded-Prefix": "/"}).headers["location"].startswith("/login?")


def test_nobody_else_says_where_the_service_is(told: Service, tmp_path: Path) -> None:
    for prefix in ("/other", "//evil.example", "/v1"):
        answer = told.client(None).get(
            "/jobs/x", headers={"X-Forwarded-Prefix": prefix, "X-Forwarded-Host": "evil.example"}
        )
        assert answer.headers["location"] == f"{ROOT}/login?next=%2Fedgefront%2Fjobs%2Fx"
    page = told.client(None).get("/login", headers={"X-Forwarded-Prefix": "/other", "X-Forwarded-Host": "evil.example"})
    assert "other" not in page.text
    assert "evil.example" not in page.text


def test_what_needs_a_key_needs_it_below_the_path_too(below: httpx.Client) -> None:
    for path in ("/v1/jobs", "/v1/openapi.json", "/metrics", f"{ROOT}/v1/jobs", f"{ROOT}/login/../v1/jobs"):
        problem(below.get(path), 401)
    assert below.get("/v1/health").status_code == 200
    problem(below.post("/v1/session", content=b"x" * 20_000, headers={"Content-Type": "application/json"}), 413)


@pytest.mark.anyio
async def test_client_and_agent_reach_a_service_below_a_path(trusting: Service) -> None:
    with path_proxy(trusting.url, ROOT, PREFIX) as proxy:
        with Client(f"{proxy.url}/", trusting.key()) as client:
            url = client.tokens.address().url
            assert (client.url, url) == (proxy.url, proxy.url)
            assert f"--server {proxy.url} " in agent_command(url, "efe_x", None)
            token = client.tokens.create(name="board").token
            async with AgentClient(f"{url}/") as agent:
                made = await agent.enrol(
                    str(token),
                    EnrolRequest.model_validate({**example("enrol_request"), "name": "far", "device_class": "far"}),
                )
            assert client.devices.get(made.device_id).name == "far"
        shown = CliRunner().invoke(cli, ["--url", f"{proxy.url}/", "--key", trusting.key(), "device", "list", "--json"])
        assert "far" in [device["name"] for device in json.loads(shown.stdout)]
    assert proxy.outside == []


def test_no_route_begins_otherwise(trusting: Service) -> None:
    app = create_app(trusting.settings)
    paths = [*app.openapi()["paths"], *PAGES, "/metrics", "/static/own/0/x", "/favicon.ico"]
    assert {path.split("?")[0].split("/")[1] for path in paths} - {"", "nothing"} == OWN_ROOTS


@pytest.mark.parametrize("path", ["/jobs", "/v1/x"])
def test_a_path_of_the_services_own_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"http\.root_path .* begins like one of the service's own paths"):
        create_app(Settings(http=HttpSettings(root_path=path)))


def test_the_path_is_that_of_the_url_unless_it_is_set() -> None:
    assert HttpSettings(url="https://host.example/a/b/").prefix == "/a/b"
    assert HttpSettings(url="https://host.example/").prefix == ""
    assert HttpSettings(url="https://host.example/a", root_path="").prefix == ""
    assert HttpSettings(root_path="/a/").prefix == "/a"
    for wrong in ("edgefront", "//evil.example", "/a/../b", "/a?b", "/a b"):
        with pytest.raises(ValidationError):
            HttpSettings(root_path=wrong)
