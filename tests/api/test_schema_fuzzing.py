"""schemathesis against the running service: whatever fits the schema, or just does not, is answered as documented."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, core, settings
from running_api import Service, started
from schemathesis.checks import not_a_server_error
from schemathesis.generation.meta import TestPhase
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from simulated_agent import CLASS, SimulatedAgent
from sqlalchemy import URL

from edgefront.api.app import create_app
from edgefront.core.services.settings import LeaseSettings, Settings
from edgefront.core.store.database import Database

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
LONG = settings.get_current_profile_name() in ("long", "fuzz")
"""Whether the thousands of requests at the edges of the schema are sent too: `make test-long`."""
BOUNDED = settings(max_examples=8 if LONG else 3, suppress_health_check=list(HealthCheck))
ENDLESS = "follow_job"
pytestmark = pytest.mark.timeout(1800)  # one test asks all operations


class Fuzzed:
    """A service that holds a finished job, with a key of each role."""

    def __init__(self, service: Service) -> None:
        self.service = service
        agent = SimulatedAgent(service.database)
        device, credential = service.enrol("fuzzed", CLASS)
        user = service.client("user", "bob")
        made = service.submit(user)
        service.measure(agent)
        [candidate, *_] = user.get(f"/v1/jobs/{made['id']}/candidates").json()["items"]
        self.known = {"job_id": made["id"], "candidate_id": candidate["id"], "device_id": device}
        self.keys = {"admin": service.key("admin", "root"), "user": service.key("user", "bob"), "agent": credential}

    def call(self, case: Any, role: str) -> None:
        """Every other request, by what is in it, is about things that there are (which nobody deletes)."""
        spared = {"delete_job", "revoke_device", ENDLESS}
        body = case.body if isinstance(case.body, dict | list | str | int | float) else None
        chosen = crc32(repr((case.path_parameters, case.query, body)).encode())
        if chosen % 2 and case.operation.definition.raw["operationId"] not in spared:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = self.known.get(name, case.path_parameters[name])
        headers = {"Authorization": f"Bearer {self.keys[role]}"}
        case.call_and_validate(base_url=self.service.url, headers=headers, checks=CHECKS, timeout=60)


def start(stack: ExitStack, url: str, home: Path) -> Fuzzed:
    database = Database(url)
    stack.callback(database.dispose)
    return Fuzzed(started(stack, database, home, LeaseSettings(max_wait_s=0.01)))


@pytest.fixture(scope="module")
def fuzzed(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    home = tmp_path_factory.mktemp("fuzzed")
    shutil.copyfile(sqlite_template, home / "fuzzed.db")
    with ExitStack() as stack:
        yield start(stack, f"sqlite:///{home / 'fuzzed.db'}", home)


def _loaded() -> BaseSchema:
    document = create_app(Settings()).openapi()
    # The seed of `make fuzz`: schemathesis would draw its own.
    loaded = schemathesis.openapi.from_dict(document, config=schemathesis.Config(seed=core.global_force_seed))
    loaded.config.phases.coverage.enabled = LONG
    return loaded


@pytest.fixture(scope="module")
def api_schema() -> BaseSchema:
    return _loaded()


@pytest.fixture(scope="module")
def valid_schema() -> BaseSchema:
    """The same without what does not fit: it is refused before it reaches a database, as SQLite's tests try."""
    schema = _loaded()
    schema.config.generation.update(modes=[schemathesis.GenerationMode.POSITIVE])
    return schema


# From fixtures: to work out what fits an operation takes long, and only the process that runs these tests needs it.
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")
schema = schemathesis.pytest.from_fixture("api_schema")
stored = schemathesis.pytest.from_fixture("valid_schema")


@pytest.fixture(autouse=True)
def name_for_schemathesis(request: pytest.FixtureRequest) -> None:
    """schemathesis 4 reads the name of a test where pytest kept it before 9.2."""
    request.node._nodeid = request.node.nodeid


def askers(case: Any, role: str, other: str) -> tuple[str, ...]:
    """Who sends a request: both roles those of chance and of the examples. What is read does not depend on who asks, so
    `role`, which may do all, alone sends the thousands at the edges of the schema.
    """
    return (role,) if case.meta is not None and case.meta.phase.name == TestPhase.COVERAGE else (role, other)


# One test for both roles: to work out what fits an operation takes long.
@schema.exclude(tag="agents").parametrize()
@BOUNDED
def test_a_user_and_an_admin(case: Any, fuzzed: Fuzzed) -> None:
    for role in askers(case, "admin", "user"):
        fuzzed.call(case, role)


@schema.include(tag="agents").parametrize()
@BOUNDED
def test_an_agent_and_an_admin(case: Any, fuzzed: Fuzzed) -> None:
    for role in askers(case, "agent", "admin"):
        fuzzed.call(case, role)


@pytest.fixture(scope="module")
def fuzzed_postgres(
    postgres_server: URL, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fuzzed]:
    name = f"{postgres_template}_fuzzed"
    conninfo = postgres_server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"')
        with ExitStack() as stack:
            url = postgres_server.set(database=name).render_as_string(hide_password=False)
            yield start(stack, url, tmp_path_factory.mktemp("fuzzed"))
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


STORING = ["create_job", "list_jobs", "list_candidates", "create_key", "create_enrolment_token", "list_devices"]


@pytest.mark.long
@stored.include(operation_id=STORING).parametrize()
@BOUNDED
def test_an_admin_on_postgres(case: Any, fuzzed_postgres: Fuzzed) -> None:
    fuzzed_postgres.call(case, "admin")


@pytest.mark.long
@stored.include(operation_id=["lease", "report", "release", "start_launch"]).parametrize()
@BOUNDED
def test_an_agent_on_postgres(case: Any, fuzzed_postgres: Fuzzed) -> None:
    fuzzed_postgres.call(case, "agent")
