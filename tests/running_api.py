"""A real server in a thread on a free port, and its keys and devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from simulated_agent import CLASS, SimulatedAgent
from simulated_service import Inbox

from edgefront.api.app import create_app
from edgefront.api.context import Context
from edgefront.api.docs.examples import example
from edgefront.api.serve import Server, make_server
from edgefront.core.schemas.agent import DeviceFacts, EnrolRequest
from edgefront.core.schemas.service import EnrolmentTokenRequest, Problem, Role
from edgefront.core.services.access import keys
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import leases
from edgefront.core.services.settings import (
    BrokerSettings,
    DatabaseSettings,
    HttpSettings,
    LeaseSettings,
    OwnerSettings,
    Settings,
)
from edgefront.core.store.database import Database


@dataclass
class Service:
    """A running API: `client()` talks to it, `database` looks behind it."""

    url: str
    database: Database
    settings: Settings
    server: Server
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.tasks = Inbox(self.database)

    @property
    def context(self) -> Context:
        """What the endpoints share."""
        context: Context = self.server.config.app.state.context  # type: ignore[union-attr]
        return context

    def work(self) -> None:
        """Does the tasks that wait, as a worker would."""
        self.tasks.work()

    def submit(self, client: httpx.Client, **changes: Any) -> dict[str, Any]:
        """A small job whose baselines are wanted."""
        made = client.post("/v1/jobs", json=job(**changes))
        assert made.status_code == 201, made.text
        self.work()
        view: dict[str, Any] = made.json()
        return view

    def measure(self, agent: SimulatedAgent, steps: int = 100) -> None:
        """Measures until there is no work left."""
        for _ in range(steps):
            self.work()
            if not agent.step():
                return

    def key(self, role: Role = "admin", owner: str = "ada", **options: Any) -> str:
        with self.database.write() as session:
            now = self.database.now(session)
            options = {"name": f"{owner}'s {role}", "owner": owner, "role": role, **options}
            return keys.create_key(session, now=now, **options)[1]

    def client(self, role: Role | None = "admin", owner: str = "ada", **options: Any) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.key(role, owner)}"}
        return self.client_with(headers, **options)

    def client_with(self, headers: dict[str, str], **options: Any) -> httpx.Client:
        # No certificate is asked for: to load those of authorities takes 36 ms of a core, for each client.
        options = {
            "base_url": self.url,
            "headers": headers,
            "timeout": 60,
            "trust_env": False,
            "verify": False,
        } | options
        return self.stack.enter_context(httpx.Client(**options))

    def enrol(self, name: str = "lab-7", device_class: str = "laptop", owner: str = "ada") -> tuple[str, str]:
        """A device: its id and its credential."""
        with self.database.write() as session:
            now = self.database.now(session)
            admin = keys.Principal("key_test", "test", owner, "admin")
            _, token = devices.create_enrolment_token(session, admin, EnrolmentTokenRequest(), now)
            facts = DeviceFacts.model_validate(example("enrol_request")["facts"])
            asked = EnrolRequest(name=name, device_class=device_class, facts=facts)
            answer = leases.enrol(session, token, asked, now)
            return answer.device_id, answer.credential

    def agent(self, name: str = "lab-7", device_class: str = "laptop") -> httpx.Client:
        _, credential = self.enrol(name, device_class)
        return self.client_with({"Authorization": f"Bearer {credential}"})

    def later(self, **delta: float) -> Any:
        with self.database.read() as session:
            return self.database.now(session) + timedelta(**delta)


def job(**changes: Any) -> dict[str, Any]:
    """The request of a small job on the simulated board: 2 baselines and two generations."""
    narrow = {"n_layer": {"max": 2}, "d_model": [128, 192], "d_inner": {"max": 640}}
    return {
        "space": {"name": "lts-gpt2", "narrow": narrow},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 6}},
        "budget": {"refinement": 0},
        "seed": 7,
        **changes,
    }


@contextmanager
def running(settings: Settings, database: Database | None) -> Iterator[Server]:
    """A server that answers, stopped at the end."""
    server = make_server(settings, create_app(settings, database=database), port=0, log_config=None)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server ended while it started"
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


def started(
    stack: ExitStack,
    database: Database,
    home: Path,
    leases: LeaseSettings | None = None,
    owners: OwnerSettings | None = None,
    **http: Any,
) -> Service:
    """A running API on `database`, until the stack is closed."""
    settings = Settings(
        home=home,
        database=DatabaseSettings(url=database.url.render_as_string(hide_password=False)),
        broker=BrokerSettings(),
        leases=leases or LeaseSettings(),
        owners=owners or OwnerSettings(),
        http=HttpSettings(**http),
    )
    server = stack.enter_context(running(settings, database))
    return Service(address(server), database, settings, server, stack)


@pytest.fixture(name="start_service")
def starts(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """`start_service(database, **settings)`: `started`, until the test has ended."""
    with ExitStack() as stack:
        yield partial(started, stack, home=tmp_path / "home")


def address(server: Server) -> str:
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    return f"http://{host}:{port}"


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    Problem.model_validate(document)
    assert document["status"] == status
    assert document["detail"]
    assert document["type"] == f"urn:edgefront:problem:{document['kind']}"
    return document
