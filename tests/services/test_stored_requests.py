"""What earlier releases stored is read, upgraded where its form has changed, and ends its job where it cannot be."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import ON_SQLITE
from pydantic import BaseModel, ConfigDict, ValidationError
from simulated_agent import SimulatedAgent
from simulated_service import Service, request
from sqlalchemy import update

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.jobs import lifecycle
from edgefront.core.services.jobs.frontier import dominance_of, frontier_view
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL, TRAINING_REQUEST, VERSION, Stored
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Target
from edgefront.core.wire.jobs import JobRequest, Limits, SpaceRequest
from edgefront.workers.tasks import sweep_once

DUMP = Path(__file__).parent.parent / "golden" / "store_0005.sql.gz"


@pytest.fixture(scope="module")
def store() -> Iterator[sqlite3.Connection]:
    """The rows of an earlier release, as it wrote them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    yield connection
    connection.close()


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database)


def old_request(store: sqlite3.Connection, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.execute("SELECT request FROM job WHERE name = ?", (name,)).fetchone()[0])
    return found


# Reading -----------------------------------------------------------------------------------------------------------


def test_values_in_the_current_form_are_read_unchanged() -> None:
    asked = request(budget={"minutes": 2.0}, proxy="snip")
    stored = JOB_REQUEST.versioned(asked.model_dump(mode="json"))
    assert stored == {**asked.model_dump(mode="json"), "stored_version": 5}
    assert JOB_REQUEST.read(json.loads(json.dumps(stored))) == asked


def test_an_earlier_releases_requests_are_read(store: sqlite3.Connection) -> None:
    asked = JOB_REQUEST.read(old_request(store, "under way"))
    assert (asked.name, asked.targets[0].device_class, asked.seed) == ("under way", "simulated board", 8)
    (text,) = store.execute("SELECT request FROM training").fetchone()
    training = TRAINING_REQUEST.read(json.loads(text))
    assert (training.dataset, training.recipe) == ("letters", "quick")  # the default of that time


def test_absent_fields_have_their_defaults(store: sqlite3.Connection) -> None:
    """Schema 0003 knew no proxies."""
    old = {key: value for key, value in old_request(store, "under way").items() if not key.startswith("proxy")}
    assert JOB_REQUEST.read(old) == JOB_REQUEST.read(old_request(store, "under way"))


@pytest.mark.parametrize("version", [1, 2])
def test_requests_from_before_epsilon_count_every_difference(store: sqlite3.Connection, version: int) -> None:
    old = old_request(store, "under way")
    if version == 2:
        old = {"proxy": "quality_law", "algorithm": {"name": "surrogate"}, **old, VERSION: 2}
    assert "epsilon" not in old
    assert JOB_REQUEST.read(old).epsilon == 0
    assert dominance_of(Job(request=old)).epsilon == 0
    assert JobRequest.model_validate(request().model_dump(exclude={"epsilon"})).epsilon == 0.02, "of a new one"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_memory_limits_from_before_megabytes_stay_as_many_bytes(store: sqlite3.Connection, version: int) -> None:
    old = old_request(store, "under way") | ({} if version == 1 else {VERSION: version})
    old["targets"] = [{**old["targets"][0], "limits": {"latency_ms": 5.0, "memory_mb": 300.0}}]
    if version > 1:
        old = {"proxy": "quality_law", "algorithm": {"name": "surrogate"}, "epsilon": 0.0, **old}
    assert JOB_REQUEST.read(old).targets[0].limits == Limits(latency_ms=5.0, memory_mb=314.5728)
    assert LIMITS.read({"latency_ms": 5.0, "memory_mb": 300.0}).memory_mb == 314.5728
    asked = Limits(memory_mb=300.0)
    assert LIMITS.read(LIMITS.versioned(asked.model_dump(mode="json"))) == asked


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize(("dtype", "held"), [(None, "f32"), ("float32", "f32"), ("float16", "f16")])
def test_targets_from_before_the_kv_cache_keep_theirs(version: int, dtype: str | None, held: str) -> None:
    protocol = {"runtime": "llamacpp", **({} if dtype is None else {"dtype": dtype})}
    old = request().model_dump(mode="json") | {VERSION: version, "targets": [{"protocol": protocol}, {"device": "x"}]}
    (target, other) = JOB_REQUEST.read(old).targets
    assert target.protocol.kv_cache == held
    assert target.protocol.digest == MeasurementProtocol.model_validate(protocol).digest
    assert other.protocol == MeasurementProtocol()
    assert PROTOCOL.read(protocol).kv_cache == held
    new = JobRequest.model_validate({"targets": [{"protocol": protocol}]}).model_dump(mode="json")
    new = JOB_REQUEST.versioned(new)
    assert JOB_REQUEST.read(new).targets[0].protocol.kv_cache == "f16", "of a new one"


@pytest.mark.parametrize("wrong", [-0.01, 0.5, float("nan"), float("inf"), "0.1", True, None])
def test_an_epsilon_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        request(epsilon=wrong)


class _Renamed(BaseModel):
    """As if a later release called the space `search_space` and its seed were text."""

    model_config = ConfigDict(extra="ignore")

    name: str
    search_space: SpaceRequest
    seed: str


def _space_renamed(old: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in old.items() if key != "space"}, "search_space": old["space"]}


def _seed_as_text(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "seed": str(old["seed"])}


LATER = Stored("request", _Renamed, (_space_renamed, _seed_as_text))


def test_a_form_that_has_changed_since_is_upgraded_step_by_step(store: sqlite3.Connection) -> None:
    old = old_request(store, "under way")
    before = json.dumps(old)
    found = LATER.read(old)
    assert (found.search_space.name, found.seed) == ("lts-gpt2", "8")
    assert json.dumps(old) == before
    assert LATER.read({**_space_renamed(old), VERSION: 2}) == found
    written = LATER.versioned(found.model_dump(mode="json"))
    assert written[VERSION] == 3
    assert LATER.read(written) == found


def _eight_bits(old: dict[str, Any]) -> dict[str, Any]:
    """As migration 0006 renamed it in the protocols of targets."""
    targets = [
        {**target, "protocol": {**target["protocol"], "weights": "int8_8bit"}}
        if target["protocol"]["weights"] == "int8"
        else target
        for target in old["targets"]
    ]
    return {**old, "targets": targets}


def test_a_value_that_was_renamed_is_upgraded_inside_too(store: sqlite3.Connection) -> None:
    kind = Stored("request", JobRequest, (_eight_bits,))
    assert kind.read(old_request(store, "int8")).targets[0].protocol.weights == "int8_8bit"
    assert kind.read({**old_request(store, "int8"), VERSION: 2}).targets[0].protocol.weights == "int8"


@pytest.mark.parametrize("version", [6, 0, "1", True, None])
def test_a_version_that_is_not_known_is_named(version: Any) -> None:
    with pytest.raises(InvalidInput, match=r"request\.stored_version: this release reads 1 to 5, not") as caught:
        JOB_REQUEST.read({**request().model_dump(mode="json"), VERSION: version})
    assert caught.value.field == "request.stored_version"


def test_a_field_that_cannot_be_read_is_named_by_its_path() -> None:
    stored = request().model_dump(mode="json")
    stored["targets"][0]["protocol"]["threads"] = 0
    with pytest.raises(InvalidInput) as caught:
        JOB_REQUEST.read(stored)
    assert caught.value.field == "request.targets.0.protocol.threads"
    assert caught.value.detail.startswith("request.targets.0.protocol.threads: must be ")


# What cannot be read -----------------------------------------------------------------------------------------------


def spoil_request(service: Service, job_id: str, **changes: Any) -> None:
    with service.database.write() as session:
        job = session.get_one(Job, job_id)
        job.request = {**job.request, **changes}


def spoil_target(service: Service, job_id: str, **values: Any) -> None:
    with service.database.write() as session:
        session.execute(update(Target).where(Target.job_id == job_id).values(**values))


WRONG_PROTOCOL = {**request().targets[0].protocol.model_dump(mode="json"), "runtime": "abacus"}


@ON_SQLITE
def test_a_request_that_cannot_be_read_ends_its_job_and_no_other(service: Service, agent: SimulatedAgent) -> None:
    good, bad = service.submit(), service.submit(request(name="bad", seed=8))
    spoil_request(service, bad.id, budget={"minuts": 3})
    shown = service.get(bad.id)
    assert (shown.state, shown.targets[0].planned, shown.targets[0].device) == ("running", None, "simulated board")
    agent.step(2)  # leases and settling go on meanwhile
    service.inbox.clear()
    sweep_once(service.database)
    service.run(agent)
    ended = service.get(bad.id)
    assert ended.state == "failed"
    assert ended.reason == ended.targets[0].note
    assert ended.targets[0].note.startswith("The search cannot continue: request.budget.minuts: there is no such field")
    assert service.get(good.id).state == "finished"
    with service.database.read() as session:
        page = lifecycle.list_jobs(session, service.user, service.database.now(session))
        assert {job.id for job in page.items} == {good.id, bad.id}
        assert frontier_view(session, service.user, bad.id).proxy_trust.sentence == ""


@ON_SQLITE
def test_a_space_that_is_gone_ends_the_job(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit()
    spoil_request(service, job.id, space={"name": "gone", "narrow": {}})
    assert service.get(job.id).targets[0].planned is None
    service.run(agent)
    ended = service.get(job.id)
    assert ended.state == "failed"
    assert "no search space 'gone'" in str(ended.reason)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"limits": {"latency": 3}}, "limits.latency"),
        ({"protocol": WRONG_PROTOCOL}, "protocol.runtime"),
    ],
)
@pytest.mark.usefixtures("agent")
def test_a_target_that_cannot_be_read_ends_though_it_waits_for_devices(
    service: Service, values: dict[str, Any], field: str
) -> None:
    job = service.submit()
    spoil_target(service, job.id, **values)
    assert service.get(job.id).state == "running"
    sweep_once(service.database)
    service.work()
    assert service.get(job.id).state == "failed"
    assert f"{field}: " in str(service.get(job.id).reason)


@ON_SQLITE
def test_reports_for_limits_that_cannot_be_read_do_not_stop_the_others(service: Service, agent: SimulatedAgent) -> None:
    good, bad = service.submit(), service.submit(request(name="bad"))  # which share their baselines
    spoil_target(service, bad.id, limits={"latency": 3})
    service.run(agent)
    assert (service.get(good.id).state, service.get(bad.id).state) == ("finished", "failed")
    assert "limits.latency: " in str(service.get(bad.id).reason)


@pytest.mark.usefixtures("agent")
def test_a_paused_job_that_cannot_be_read_is_shown_cancelled_and_deleted(service: Service) -> None:
    job = service.submit()
    service.act("pause", job.id)
    spoil_request(service, job.id, seed="seven")
    spoil_target(service, job.id, limits={"latency": 3}, protocol=WRONG_PROTOCOL)
    assert service.get(job.id).state == "paused"
    service.act("cancel", job.id)
    assert service.get(job.id).state == "cancelled"
    service.act("delete", job.id)
