"""Devices: enrolment, take-over, credentials, drain and revoke."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from lease_world import START, World, facts

from edgefront.core.common.errors import Conflict, Forbidden, Gone, NotFound, Unauthenticated
from edgefront.core.measurement.plausible import CORE_GFLOPS
from edgefront.core.schemas.agent import PROTOCOL_VERSION, EnrolRequest, EnrolResponse
from edgefront.core.schemas.service import EnrolmentTokenRequest, ReenrolRequest
from edgefront.core.services.access import keys
from edgefront.core.services.access import queries as access_queries
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import leases
from edgefront.core.store.tables import ApiKey, Device
from edgefront.embedded.service import DEVICE, EmbeddedService

ROOT = Principal("key_r", "root", "root", "admin")
ADA = Principal("key_a", "ada", "ada", "user")
NONCE = "n" * 43


def admin(world: World) -> Principal:
    """With a key in the database, which is looked at again where a secret is made."""
    with world.write() as session:
        secret = keys.create_key(session, name="root", owner="root", role="admin", now=world.now)[1]
    return whoami(world, secret)


def token(world: World, by: Principal = ROOT, **changes: int) -> tuple[str, str]:
    with world.write() as session:
        row, secret = devices.create_enrolment_token(session, by, EnrolmentTokenRequest(**changes), world.now)
        return row.id, secret


def enrol(world: World, secret: str, name: str = "pi", **changes: Any) -> EnrolResponse:
    request = EnrolRequest.model_validate({"name": name, "device_class": "pi-5", "facts": facts(), **changes})
    with world.write() as session:
        return leases.enrol(session, secret, request, world.now)


def whoami(world: World, secret: str) -> Principal:
    with world.database.read() as session:
        return keys.authenticate(session, secret, world.now)


def test_a_token_is_traded_for_a_device_with_its_own_credential(world: World) -> None:
    _, secret = token(world)
    answer = enrol(world, secret)
    principal = whoami(world, answer.credential)
    assert (principal.device_id, principal.role, principal.owner) == (answer.device_id, "agent", "root")
    with world.database.read() as session:
        view = devices.view(session, devices.get_device(session, ADA, "pi"), world.now)
    assert (view.id, view.device_class, view.online, view.leased) == (answer.device_id, "pi-5", False, 0)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(world, secret, "second")


def test_tokens_have_uses_and_an_end(world: World) -> None:
    id_, secret = token(world, uses=2, minutes=10)
    enrol(world, secret, "one")
    with world.database.read() as session:
        (view,) = devices.list_enrolment_tokens(session, ROOT)
    assert (view.id, view.uses_left, view.token) == (id_, 1, None)
    world.now = START + timedelta(minutes=10)
    with pytest.raises(Unauthenticated, match="expired"):
        enrol(world, secret, "two")
    id_, secret = token(world)
    with world.write() as session:
        devices.revoke_enrolment_token(session, ROOT, id_, world.now)
        devices.revoke_enrolment_token(session, ROOT, id_, world.now)
        with pytest.raises(NotFound):
            devices.revoke_enrolment_token(session, ROOT, "enr_none", world.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(world, secret, "two")
    for wrong in ("", "efe_nope", keys.new_secret("efk")):
        with pytest.raises(Unauthenticated):
            enrol(world, wrong)


def again(world: World, device: str, by: Principal = ROOT) -> str:
    """A token that enrols this device again."""
    with world.write() as session:
        return devices.reenrolment_token(session, by, device, ReenrolRequest(), world.now)[1]


def use(world: World, secret: str) -> Principal:
    """What the first request with a credential does."""
    found = whoami(world, secret)
    if found.pending:
        with world.write() as session:
            devices.first_used(session, found.key_id, world.now)
    return found


@ON_BOTH
def test_a_token_of_several_uses_takes_over_no_device(world: World) -> None:
    id_, secret = token(world, uses=10)
    first = enrol(world, secret, nonce=NONCE)

    def refused(**changes: Any) -> None:
        for nonce in ({}, {"nonce": "another" * 4}, changes):
            with pytest.raises(Conflict, match="device reenrol"):
                enrol(world, secret, **nonce)

    refused()  # before the first use of its credential, though every user can read its name and facts
    assert whoami(world, first.credential).device_id == first.device_id
    lost = enrol(world, secret, nonce=NONCE)  # the same request again: its answer was lost
    assert lost.device_id == first.device_id
    with pytest.raises(Unauthenticated):
        whoami(world, first.credential)
    found = enrol(world, secret, nonce=NONCE, facts=facts(extra={CORE_GFLOPS: 41.5}))  # its agent started again
    assert found.device_id == first.device_id
    use(world, found.credential)
    refused(nonce=NONCE)
    world.tick(1000)
    refused()
    own = again(world, "pi")
    refused()
    back = enrol(world, own, nonce=NONCE)
    refused(nonce=NONCE)
    assert use(world, back.credential).device_id == first.device_id
    with world.write() as session:
        leases.revoke_device(session, ROOT, "pi", world.now)
    refused()
    with world.database.read() as session:
        assert {view.id: view.uses_left for view in devices.list_enrolment_tokens(session, ROOT)}[id_] == 9
        assert devices.get_device(session, ROOT, "pi").state == "revoked"


def test_a_nonce_is_not_stored_and_no_nonce_is_no_answer(world: World) -> None:
    secret = token(world, uses=2)[1]
    enrol(world, secret, "old agent")
    with pytest.raises(Conflict):
        enrol(world, secret, "old agent")
    enrol(world, secret, nonce=NONCE)
    with world.database.read() as session:
        assert NONCE not in {key.enrolment_nonce for key in session.query(ApiKey)}
    assert (
        "nonce" not in EnrolRequest.model_validate({"name": "pi", "device_class": "x", "facts": facts()}).model_dump()
    )


@ON_BOTH
def test_of_tokens_that_enrol_one_name_at_once_one_does(world: World) -> None:
    secrets = [token(world)[1] for _ in range(12)]

    def tried(secret: str) -> str:
        try:
            return enrol(world, secret).device_id
        except Conflict as error:
            return str(error.field)

    found = at_once(*(partial(tried, secret) for secret in secrets))
    [device] = world.rows(Device)
    assert sorted(found) == [device.id, *["name"] * 11]


@ON_BOTH
def test_a_lost_credential_is_replaced_by_a_token_for_the_device(world: World) -> None:
    first = enrol(world, token(world)[1])
    use(world, first.credential)
    world.claim(first.device_id)  # seen now
    secret = again(world, "pi")
    with pytest.raises(Conflict, match="online"):
        enrol(world, secret)
    with pytest.raises(Conflict, match="for the device 'pi'"):
        enrol(world, secret, "another")
    world.tick(61)
    second = enrol(world, secret)  # the refused tries used nothing up
    assert second.device_id == first.device_id
    assert use(world, second.credential).device_id == first.device_id
    with pytest.raises(Unauthenticated):
        whoami(world, first.credential)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(world, secret)


def test_an_enrolment_whose_answer_was_lost_is_answered_again(world: World) -> None:
    id_, secret = token(world)
    lost = enrol(world, secret)
    found = enrol(world, secret)
    assert found.device_id == lost.device_id
    with pytest.raises(Unauthenticated):
        whoami(world, lost.credential)
    with pytest.raises(Conflict):
        enrol(world, token(world)[1])  # only for the same token
    use(world, found.credential)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(world, secret)
    with world.database.read() as session:
        assert {view.id: view.uses_left for view in devices.list_enrolment_tokens(session, ROOT)}[id_] == 0


def test_a_revoked_device_comes_back_by_a_token_for_it(world: World) -> None:
    first = enrol(world, token(world)[1])
    use(world, first.credential)
    with world.write() as session:
        leases.revoke_device(session, ROOT, first.device_id, world.now)
        for verb in (devices.drain_device, devices.activate_device):
            with pytest.raises(Gone):
                verb(session, ROOT, first.device_id, world.now)
    with pytest.raises(Gone):
        whoami(world, first.credential)
    second = enrol(world, again(world, "pi"))
    assert second.device_id == first.device_id
    assert use(world, second.credential).device_id == first.device_id


@ON_BOTH
def test_revoking_releases_its_launches_without_an_attempt(world: World) -> None:
    device, (launch,) = world.device(), world.launches(1)
    world.start(device, world.claim(device).items[0])
    with world.write() as session:
        leases.revoke_device(session, ROOT, "bench", world.now)
        leases.revoke_device(session, ROOT, "bench", world.now)
    assert (world.launch(launch).state, world.launch(launch).attempts) == ("wanted", 0)


@ON_BOTH
def test_revoking_a_device_ends_the_tokens_made_for_it(world: World) -> None:
    first = enrol(world, token(world)[1])
    use(world, first.credential)
    world.tick(1000)
    older, newer = again(world, "pi"), again(world, "pi")
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(world, older)  # a newer one takes its place
    with world.write() as session:
        leases.revoke_device(session, ROOT, "pi", world.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(world, newer)
    assert enrol(world, again(world, "pi")).device_id == first.device_id


@ON_BOTH
def test_an_owner_ends_a_token_for_their_device(world: World) -> None:
    device = world.device()  # ada's
    others = token(world)[0]
    bob = Principal("key_b", "bob", "bob", "user")
    itself = Principal("key_d", "bench", "ada", "agent", device)
    with world.write() as session:
        made, secret = devices.reenrolment_token(session, ADA, device, ReenrolRequest(), world.now)
        for asker, id_ in ((bob, made.id), (ADA, others), (ADA, "enr_none"), (itself, made.id)):
            with pytest.raises(Forbidden):
                devices.revoke_enrolment_token(session, asker, id_, world.now)
        devices.revoke_enrolment_token(session, ADA, made.id, world.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(world, secret, "bench")


def test_what_ends_is_counted(world: World) -> None:
    def count() -> int:
        with world.database.read() as session:
            return access_queries.version(session)

    assert count() == 0
    first = enrol(world, token(world)[1])
    assert count() == 0
    use(world, first.credential)
    before = count()
    with world.write() as session:
        leases.revoke_device(session, ROOT, "pi", world.now)
    assert count() == before + 1
    with world.write() as session:
        key, _ = keys.create_key(session, name="a", owner="a", role="user", now=world.now)
        keys.revoke_key(session, ROOT, key.id, world.now)
        keys.revoke_key(session, ROOT, key.id, world.now)
    assert count() == before + 2


@ON_BOTH
def test_who_may_do_what_to_a_device(world: World) -> None:
    device = world.device()  # ada's
    bob = Principal("key_b", "bob", "bob", "user")
    another = Principal("key_d", "other", "ada", "agent", "dev_other")
    with world.write() as session:
        assert devices.drain_device(session, ADA, device, world.now).state == "draining"
        assert devices.activate_device(session, ROOT, "bench", world.now).state == "active"
        assert devices.get_device(session, bob, device).id == device
        with pytest.raises(Forbidden):
            devices.reenrolment_token(session, bob, device, ReenrolRequest(), world.now)
        assert devices.reenrolment_token(session, ADA, device, ReenrolRequest(), world.now)[0].device_id == device
        for verb in (devices.drain_device, devices.revoke_device):
            with pytest.raises(Forbidden):
                verb(session, bob, device, world.now)
            with pytest.raises(NotFound):
                verb(session, another, device, world.now)
        with pytest.raises(NotFound):
            devices.get_device(session, ADA, "nobody")
        with pytest.raises(Forbidden):
            devices.list_devices(session, another, world.now)
        with pytest.raises(Forbidden):
            devices.list_enrolment_tokens(session, ADA)
    with pytest.raises(Forbidden):
        token(world, by=ADA)


@ON_BOTH
def test_devices_are_paged_in_the_order_of_their_enrolment(world: World) -> None:
    made = [world.device(f"device {index}") for index in range(5)]
    world.launches(3)
    world.claim(made[0])
    with world.database.read() as session:
        first = devices.list_devices(session, ADA, world.now, limit=2)
        second = devices.list_devices(session, ADA, world.now, cursor=first.next_cursor, limit=3)
    assert [view.id for view in (*first.items, *second.items)] == made
    assert second.next_cursor is None
    assert (first.items[0].leased, first.items[0].online, first.items[1].online) == (3, True, False)


def test_agents_of_another_protocol_version_are_refused(world: World) -> None:
    devices.check_protocol_version(PROTOCOL_VERSION)
    for version, culprit in ((PROTOCOL_VERSION + 1, "server"), (PROTOCOL_VERSION - 1, "agent"), (0, "agent")):
        with pytest.raises(Conflict, match=f"update the {culprit}"):
            enrol(world, token(world)[1], protocol_version=version)
    assert world.rows(Device) == []


def test_the_embedded_agent_gets_a_token_for_its_device(world: World, tmp_path: Path) -> None:
    def given() -> str:
        EmbeddedService._enrolment_token(world.database, ROOT, tmp_path / "token")
        return (tmp_path / "token").read_text().strip()

    with world.database.read() as session:
        world.now = world.database.now(session)
    first = enrol(world, given(), DEVICE)
    use(world, first.credential)
    second = enrol(world, given(), DEVICE)  # its folder was lost
    assert second.device_id == first.device_id
