"""One owner, one device or one job cannot starve the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from databases import ON_BOTH
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st
from leasing import ARCHITECTURE, Leasing, done
from running_api import Service, job, problem
from simulated_agent import CLASS
from simulated_pool import ARCHITECTURE as SMALL
from simulated_pool import DATA, prepare
from sqlalchemy import insert

from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.services.settings import OwnerSettings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Measurement, Target, new_id

Asks = list[tuple[str, int, int]]
"""Owner, number of the job, and how many launches it asks for; in this order."""


def asked(leasing: Leasing, asks: Asks, key: str = "class:lab") -> dict[str, str]:
    """Launches that wait; launch id → `owner job`."""
    targets: dict[tuple[str, int], str] = {}
    made: dict[str, str] = {}
    for owner, number, count in asks:
        if (owner, number) not in targets:
            targets[owner, number] = leasing.target(device_key=key)
        with leasing.write() as session:
            target = session.get_one(Target, targets[owner, number])
            session.get_one(Job, target.job_id).owner = owner
            measurements = [
                {
                    "id": new_id("mea"),
                    "digest": f"{leasing.names + index:064x}",
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
            leasing.names += count
            session.execute(insert(Measurement), measurements)
            ids = [str(measurement["id"]) for measurement in measurements]
            demand.add_launches(session, target, ids, purpose="first", now=leasing.now)
            made |= dict.fromkeys(ids, f"{owner} {number}")
    return made


def served(leasing: Leasing, device: str, made: dict[str, str], launches: int, at_once: int = 1) -> list[str]:
    """Whose launches a device takes, one lease after the other; it reports each before the next."""
    order: list[str] = []
    while len(order) < launches:
        items = leasing.claim(device, at_once).items
        if not items:
            break
        order += [made[leasing.launch(item.id).measurement_id] for item in items]
        leasing.append(device, *((item, done()) for item in items))
    return order


@ON_BOTH
def test_a_small_owner_does_not_wait_for_a_large_one(leasing: Leasing) -> None:
    device = leasing.device()
    made = asked(leasing, [("ann", 1, 1000)])
    served(leasing, device, made, 40, at_once=8)
    made |= asked(leasing, [("bob", 1, 10)])
    order = served(leasing, device, made, 20)
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
        leasing = Leasing(database)
        device = leasing.device()
        made = asked(leasing, asks)
        served(leasing, device, made, before, at_once)
        made |= asked(leasing, [("late", 1, 5)])
        order = served(leasing, device, made, len(made), at_once)
        # Each of three owners has one turn for one of another's; ties and batches come on top.
        last = max(index for index, name in enumerate(order) if name == "late 1")
        assert last < 5 * (1 + 3) + 3 + at_once
    finally:
        database.dispose()


@ON_BOTH
def test_launches_of_a_class_and_of_a_device_alone_take_turns(leasing: Leasing) -> None:
    device = leasing.device()
    made = asked(leasing, [("ann", 1, 100)], key=f"device:{device}")
    made |= asked(leasing, [("bob", 1, 20)])
    assert served(leasing, device, made, 10).count("bob 1") == 5
    assert served(leasing, device, made, 24, at_once=8).count("bob 1") == 12
    assert served(leasing, device, made, 100, at_once=8).count("bob 1") == 3  # no more are left


def test_what_comes_back_does_not_let_others_overtake(leasing: Leasing) -> None:
    """The turn of a launch that is given back is of long ago: who asks now does not begin there."""
    device = leasing.device()
    made = asked(leasing, [("ann", 1, 60)])
    first = leasing.claim(device, 1)
    served(leasing, device, made, 30)
    leasing.release(device, first)
    made |= asked(leasing, [("bob", 1, 20)])
    assert served(leasing, device, made, 20).count("bob 1") <= 10


# Bounds --------------------------------------------------------------------------------------------------------------


def test_trainings_of_an_owner_are_bounded_in_bytes(
    sqlite_url: str,
    open_database: Callable[..., Database],
    start_service: Callable[..., Service],
) -> None:
    service = start_service(open_database(sqlite_url), owners=OwnerSettings(stored_bytes=1000))
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
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model").write_bytes(b"x" * 1000)
    refused = problem(bob.post("/v1/trainings", json=asked), 409)
    assert (refused["bound"], refused["used"], refused["most"]) == ("owners.stored_bytes", 1000, 1000)
    assert service.client("user", "ann").post("/v1/trainings", json=asked).status_code == 201
    shutil.rmtree(folder)
    assert bob.post("/v1/trainings", json=asked).status_code == 201


# Slow work -----------------------------------------------------------------------------------------------------------


def test_limits_that_no_model_meets_are_refused_without_a_search(
    sqlite_url: str,
    open_database: Callable[..., Database],
    start_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drawn(_plan: SearchPlan) -> bool:
        raise AssertionError("thousands of architectures were drawn")

    monkeypatch.setattr(SearchPlan, "permitted", drawn)
    service = start_service(open_database(sqlite_url))
    service.enrol(device_class=CLASS)
    ann = service.client("user", "ann")
    for limits in ({"min_decoder": 10**12}, {"max_decoder": 1}, {"max_total": 10}):
        for space in ("lts-gpt2", "srupp"):
            document = problem(ann.post("/v1/jobs", json=job(parameters=limits, space={"name": space})), 422)
            assert document["field"] == f"parameters.{next(iter(limits))}"


# Facts ---------------------------------------------------------------------------------------------------------------
