"""One owner, one device or one job cannot starve the others."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from databases import ON_SQLITE
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st
from lease_world import ARCHITECTURE, World, done
from running_api import Service, job, problem
from simulated_agent import CLASS
from simulated_pool import ARCHITECTURE as SMALL
from simulated_pool import DATA, prepare
from sqlalchemy import event, insert

from edgefront.api.http.wrong_keys import WrongKeys
from edgefront.api.jobs import endpoints
from edgefront.core.services.access import keys
from edgefront.core.services.access.queries import valid_hashes
from edgefront.core.services.fleet.queries import facts_of
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.services.settings import OwnerSettings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import ApiKey, Device, Job, Measurement, Target, WebSession, new_id
from edgefront.core.wire.agent import MAX_FACTS_BYTES

Asks = list[tuple[str, int, int]]
"""Owner, number of the job, and how many launches it asks for; in this order."""


def asked(world: World, asks: Asks, key: str = "class:lab") -> dict[str, str]:
    """Launches that wait; launch id → `owner job`."""
    targets: dict[tuple[str, int], str] = {}
    made: dict[str, str] = {}
    for owner, number, count in asks:
        if (owner, number) not in targets:
            targets[owner, number] = world.target(device_key=key)
        with world.write() as session:
            target = session.get_one(Target, targets[owner, number])
            session.get_one(Job, target.job_id).owner = owner
            measurements = [
                {
                    "id": new_id("mea"),
                    "digest": f"{world.names + index:064x}",
                    "device_key": target.device_key,
                    "protocol_digest": target.protocol_digest,
                    "protocol": target.protocol,
                    "architecture": ARCHITECTURE,
                    "seed": 7,
                    "state": "wanted",
                    "launches": 0,
                }
                for index in range(count)
            ]
            world.names += count
            session.execute(insert(Measurement), measurements)
            ids = [str(measurement["id"]) for measurement in measurements]
            demand.add_launches(session, target, ids, purpose="first", now=world.now)
            made |= dict.fromkeys(ids, f"{owner} {number}")
    return made


def served(world: World, device: str, made: dict[str, str], launches: int, at_once: int = 1) -> list[str]:
    """Whose launches a device takes, one lease after the other; it reports each before the next."""
    order: list[str] = []
    while len(order) < launches:
        items = world.claim(device, at_once).items
        if not items:
            break
        order += [made[world.launch(item.launch_id).measurement_id] for item in items]
        world.append(device, *((item, done()) for item in items))
    return order


def test_a_small_owner_does_not_wait_for_a_large_one(world: World) -> None:
    device = world.device()
    made = asked(world, [("ann", 1, 1000)])
    served(world, device, made, 40, at_once=8)
    made |= asked(world, [("bob", 1, 10)])
    order = served(world, device, made, 20)
    assert order.count("bob 1") == 10


@bounded(max_examples=15)
@given(
    asks=st.lists(
        st.tuples(st.sampled_from(["ann", "bob", "cy"]), st.integers(1, 3), st.integers(1, 12)), min_size=1, max_size=8
    ),
    at_once=st.integers(1, 8),
    before=st.integers(0, 20),
)
def test_whoever_asks_is_served_within_a_bounded_number_of_leases(
    sqlite_template: object, tmp_path_factory: pytest.TempPathFactory, asks: Asks, at_once: int, before: int
) -> None:
    path = tmp_path_factory.mktemp("fair") / "edgefront.db"
    shutil.copyfile(str(sqlite_template), path)
    database = Database(f"sqlite:///{path}")
    try:
        world = World(database)
        device = world.device()
        made = asked(world, asks)
        served(world, device, made, before, at_once)
        made |= asked(world, [("late", 1, 5)])
        order = served(world, device, made, len(made), at_once)
        # Each of three owners has one turn for one of another's; ties and batches come on top.
        last = max(index for index, name in enumerate(order) if name == "late 1")
        assert last < 5 * (1 + 3) + 3 + at_once
    finally:
        database.dispose()


def test_launches_of_a_class_and_of_a_device_alone_take_turns(world: World) -> None:
    device = world.device()
    made = asked(world, [("ann", 1, 100)], key=f"device:{device}")
    made |= asked(world, [("bob", 1, 20)])
    assert served(world, device, made, 10).count("bob 1") == 5
    assert served(world, device, made, 24, at_once=8).count("bob 1") == 12
    assert served(world, device, made, 100, at_once=8).count("bob 1") == 3  # no more are left


@ON_SQLITE
def test_what_comes_back_does_not_let_others_overtake(world: World) -> None:
    """The turn of a launch that is given back is of long ago: who asks now does not begin there."""
    device = world.device()
    made = asked(world, [("ann", 1, 60)])
    first = world.claim(device, 1)
    served(world, device, made, 30)
    world.release(device, first)
    made |= asked(world, [("bob", 1, 20)])
    assert served(world, device, made, 20).count("bob 1") <= 10


# Bounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["folder", "object store"])
def test_trainings_of_an_owner_are_bounded_in_bytes(
    sqlite_url: str, start_service: Callable[..., Service], tmp_path: Path, store: str
) -> None:
    database = Database(sqlite_url)
    try:
        service = start_service(database, OwnerSettings(stored_bytes=1000))
        prepare(service.settings.data_folder)
        bob = service.client("user", "bob")
        asked = {
            "architecture": SMALL,
            "dataset": DATA,
            "overrides": {"steps": 5, "segment": 8, "schedule": {"warmup": 0}},
        }
        first = bob.post("/v1/trainings", json=asked)
        assert first.status_code == 201, first.text
        made = first.json()["items"][0]["id"]
        folder = service.settings.artifact_folder / "trainings" / made
        if store == "object store":
            folder = tmp_path / "store" / "trainings" / made
            service.settings.artifacts = f"file://{tmp_path}/store"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "model").write_bytes(b"x" * 1000)
        refused = problem(bob.post("/v1/trainings", json=asked), 409)
        assert (refused["bound"], refused["used"], refused["most"]) == ("owners.stored_bytes", 1000, 1000)
        assert service.client("user", "ann").post("/v1/trainings", json=asked).status_code == 201
        shutil.rmtree(folder)
        assert bob.post("/v1/trainings", json=asked).status_code == 201
    finally:
        database.dispose()


# Slow work -----------------------------------------------------------------------------------------------------------


def test_limits_that_no_model_meets_are_refused_without_a_search(
    sqlite_url: str, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(_plan: SearchPlan) -> bool:
        raise AssertionError("thousands of architectures were drawn")

    monkeypatch.setattr(SearchPlan, "permitted", drawn)
    database = Database(sqlite_url)
    try:
        service = start_service(database)
        service.enrol(device_class=CLASS)
        ann = service.client("user", "ann")
        for limits in ({"min_decoder": 10**12}, {"max_decoder": 1}, {"max_total": 10}):
            for space in ("lts-gpt2", "srupp"):
                document = problem(ann.post("/v1/jobs", json=job(parameters=limits, space={"name": space})), 422)
                assert document["field"] == f"parameters.{next(iter(limits))}"
    finally:
        database.dispose()


def test_slow_requests_of_one_owner_hold_no_connection_and_leave_room_for_others(
    postgres_url: str, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def slow(owner: str) -> None:
        if owner == "ann":
            begun.release()
            assert may_end.wait(60)

    submit = endpoints.jobs.submit_job

    def blocked(database: Database, person: object, *given: object) -> object:
        slow(getattr(person, "owner", ""))
        return submit(database, person, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(endpoints.jobs, "submit_job", blocked)
    database = Database(postgres_url, pool_size=2)
    try:
        service = start_service(database, slow_requests=6)
        service.enrol(device_class=CLASS)
        ann, bob = service.client("user", "ann"), service.client("user", "bob")
        with ThreadPoolExecutor(24) as many:
            sent = [many.submit(ann.post, "/v1/jobs", json=job()) for _ in range(24)]
            try:
                assert begun.acquire(timeout=60)
                assert begun.acquire(timeout=60)
                _wait(lambda: database.engine.pool.checkedout() == 0)  # type: ignore[attr-defined]
                assert bob.post("/v1/jobs", json=job()).status_code == 201
                assert bob.get("/v1/jobs").status_code == 200
            finally:
                may_end.set()
            answers = [future.result() for future in sent]
        statuses = [answer.status_code for answer in answers]
        assert statuses.count(201) >= 6
        refused = [answer for answer in answers if answer.status_code != 201]
        assert refused
        for response in refused:
            assert "ann" in problem(response, 429)["detail"]
            assert int(response.headers["retry-after"]) >= 1
    finally:
        database.dispose()


def _wait(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# Wrong keys ----------------------------------------------------------------------------------------------------------


def test_wrong_keys_shut_nobody_out(
    database: Database, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(database)
    monkeypatch.setattr(service.context, "wrong_keys", WrongKeys(database, 30, delay_s=0.05))
    valid = service.key("user", "ann")
    nobody = service.client(None)

    def ask(key: str) -> httpx.Response:
        return nobody.get("/v1/me", headers={"Authorization": f"Bearer {key}"})

    statuses = [ask(f"efk_wrong{index}").status_code for index in range(8)]
    assert statuses == [401] * 5 + [429] * 3
    assert int(ask("efk_wrong").headers["retry-after"]) >= 1
    with ThreadPoolExecutor(8) as many:
        wrong = [many.submit(ask, f"efk_more{index}") for index in range(16)]
        assert ask(valid).status_code == 200
        assert {future.result().status_code for future in wrong} <= {401, 429}
    login = nobody.post("/v1/session", json={"key": valid})
    assert login.status_code == 201


def test_a_valid_key_does_not_wait_behind_wrong_ones(
    database: Database, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come from its address meanwhile, it is looked for in the next query."""
    service = start_service(database)
    wrong_keys = WrongKeys(database, 0.6, delay_s=0.0)
    monkeypatch.setattr(service.context, "wrong_keys", wrong_keys)
    nobody = service.client(None)

    def ask(key: str) -> httpx.Response:
        return nobody.get("/v1/me", headers={"Authorization": f"Bearer {key}"})

    assert [ask(f"efk_wrong{index}").status_code for index in range(2)] == [401, 429]
    asked: list[set[str]] = []
    may_end, find = threading.Event(), wrong_keys._valid

    def slow(hashes: set[str]) -> set[str]:
        asked.append(hashes)
        assert may_end.wait(60)
        return find(hashes)

    monkeypatch.setattr(wrong_keys, "_valid", slow)
    with ThreadPoolExecutor(33) as many:
        sent = [many.submit(ask, f"efk_more{index}") for index in range(32)]
        try:
            valid = many.submit(ask, service.key("user", "ann"))
            _wait(lambda: bool(asked) and len(asked[0]) + len((wrong_keys._next or (set(),))[0]) == 33)
        finally:
            may_end.set()
        assert valid.result().status_code == 200
        assert {future.result().status_code for future in sent} == {429}
    assert len(asked) <= 2


def test_keys_that_were_valid_hold_up_none_that_is(
    database: Database, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests with a revoked or an expired key, a session that has ended, and one of an expired key are not looked up
    one after the other, in the queue of the valid ones.
    """
    service = start_service(database)
    secrets = {name: service.key("user", name) for name in ("revoked", "expired", "valid")}
    sessions = {name: f"efw_{name}" for name in ("ended", "of expired", "of valid")}
    with database.write() as session:
        now = database.now(session)
        ids = {name: keys.authenticate(session, secret, now).key_id for name, secret in secrets.items()}
        for name, of in (("ended", "valid"), ("of expired", "expired"), ("of valid", "valid")):
            end = now if name == "ended" else now + timedelta(days=1)
            hashed = keys.hash_secret(sessions[name])
            session.add(WebSession(api_key_id=ids[of], secret_hash=hashed, created_at=now, expires_at=end))
        session.get_one(ApiKey, ids["revoked"]).revoked_at = now
        session.get_one(ApiKey, ids["expired"]).expires_at = now
    with database.read() as session:
        hashes = {name: keys.hash_secret(secret) for name, secret in (secrets | sessions).items()}
        valid = valid_hashes(session, hashes.values(), database.now(session))
    assert {name for name, hashed in hashes.items() if hashed in valid} == {"valid", "of valid"}

    wrong_keys = WrongKeys(database, 0.6, delay_s=0.0)
    monkeypatch.setattr(service.context, "wrong_keys", wrong_keys)
    queued: list[object] = []
    turn = wrong_keys._queues.turn
    monkeypatch.setattr(wrong_keys._queues, "turn", lambda *given: queued.append(given) or turn(*given))
    nobody = service.client(None)

    def ask(key: str) -> int:
        return nobody.get("/v1/me", headers={"Authorization": f"Bearer {key}"}).status_code

    assert [ask(secrets["revoked"]) for _ in range(2)] == [401, 429]
    with ThreadPoolExecutor(17) as many:
        sent = [many.submit(ask, secrets[name]) for name in ("revoked", "expired") * 8]
        assert many.submit(ask, secrets["valid"]).result() == 200
        assert {future.result() for future in sent} == {429}
    assert len(queued) == 1


# Facts ---------------------------------------------------------------------------------------------------------------


def test_facts_are_bounded(sqlite_url: str, start_service: Callable[..., Service]) -> None:
    database = Database(sqlite_url)
    try:
        service = start_service(database)
        agent = service.agent()
        with database.read() as session:
            stored = facts_of(session, agent.get("/v1/me").json()["device_id"])
        large = {**stored, "extra": {f"note {index}": "x" * 8000 for index in range(9)}}
        body = {"protocol_version": 3, "wait_s": 0, "facts": large}
        refused = problem(agent.post("/v1/leases", json=body), 422)
        assert refused["field"] == "facts"
        assert str(MAX_FACTS_BYTES) in refused["detail"]
    finally:
        database.dispose()


def test_a_lease_does_not_read_the_facts_again(world: World) -> None:
    device = world.device(cpu="first")
    asked(world, [("ann", 1, 20)])
    assert world.claim(device, 1).items
    seen: list[str] = []
    event.listen(
        world.database.engine, "before_cursor_execute", lambda _c, _k, statement, *_: seen.append(statement.lower())
    )
    assert world.claim(device, 1).items
    assert seen
    assert not [
        statement
        for statement in seen
        if "device.facts " in statement or "device.facts\n" in statement or "device.facts," in statement
    ]


def test_what_a_device_can_run_follows_its_facts(world: World) -> None:
    device = world.device()
    asked(world, [("ann", 1, 20)])
    assert world.claim(device, 1).items
    with world.write() as session:
        row = session.get_one(Device, device)
        row.facts = {**row.facts, "runtimes": []}
    assert not world.claim(device, 1).items
