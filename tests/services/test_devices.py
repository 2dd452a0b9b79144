"""Devices: enrolment, take-over, credentials, drain and revoke."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from lease_world import START, World, facts

from edgefront.core.errors import Conflict, Forbidden, Gone, NotFound, Unauthenticated
from edgefront.core.services.access import keys
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import handover
from edgefront.core.store.tables import Device
from edgefront.core.wire.agent import PROTOCOL_VERSION, EnrolRequest, EnrolResponse
from edgefront.core.wire.service import EnrolmentTokenRequest

ROOT = Principal("key_r", "root", "root", "admin")
ADA = Principal("key_a", "ada", "ada", "user")


def token(world: World, by: Principal = ROOT, **changes: int) -> tuple[str, str]:
    with world.write() as session:
        row, secret = devices.create_enrolment_token(session, by, EnrolmentTokenRequest(**changes), world.now)
        return row.id, secret


def enrol(world: World, secret: str, name: str = "pi", **changes: Any) -> EnrolResponse:
    request = EnrolRequest.model_validate({"name": name, "device_class": "pi-5", "facts": facts(), **changes})
    with world.write() as session:
        return handover.enrol(session, secret, request, world.now)


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


def test_only_admins_make_tokens(world: World) -> None:
    with pytest.raises(Forbidden):
        token(world, by=ADA)
    with world.database.read() as session, pytest.raises(Forbidden):
        devices.list_enrolment_tokens(session, ADA)


def test_a_lost_credential_is_replaced_by_enrolling_under_the_same_name(world: World) -> None:
    first = enrol(world, token(world)[1])
    world.claim(first.device_id)  # seen now
    _, secret = token(world)
    with pytest.raises(Conflict, match="online"):
        enrol(world, secret)
    world.tick(61)
    second = enrol(world, secret)  # the refused try used nothing up
    assert second.device_id == first.device_id
    assert whoami(world, second.credential).device_id == first.device_id
    with pytest.raises(Unauthenticated):
        whoami(world, first.credential)


def test_another_owners_name_is_not_taken_over(world: World) -> None:
    enrol(world, token(world)[1])
    other = Principal("key_o", "other", "other", "admin")
    world.tick(1000)
    with pytest.raises(Conflict, match="another owner"):
        enrol(world, token(world, by=other)[1])


def test_a_revoked_device_comes_back_by_enrolment(world: World) -> None:
    first = enrol(world, token(world)[1])
    with world.write() as session:
        handover.revoke_device(session, ROOT, first.device_id, world.now)
        for verb in (devices.drain_device, devices.activate_device, devices.rotate_credential):
            with pytest.raises(Gone):
                verb(session, ROOT, first.device_id, world.now)
    with pytest.raises(Gone):
        whoami(world, first.credential)
    second = enrol(world, token(world)[1])
    assert second.device_id == first.device_id
    assert whoami(world, second.credential).device_id == first.device_id


def test_revoking_releases_its_launches_without_an_attempt(world: World) -> None:
    device, (launch,) = world.device(), world.launches(1)
    world.start(device, world.claim(device).items[0])
    with world.write() as session:
        handover.revoke_device(session, ROOT, "bench", world.now)
        handover.revoke_device(session, ROOT, "bench", world.now)
    assert (world.launch(launch).state, world.launch(launch).attempts) == ("wanted", 0)


def test_a_rotated_credential_ends_the_old_one(world: World) -> None:
    first = enrol(world, token(world)[1])
    itself = whoami(world, first.credential)
    with world.write() as session:
        second = devices.rotate_credential(session, itself, first.device_id, world.now)
    with pytest.raises(Unauthenticated):
        whoami(world, first.credential)
    assert whoami(world, second.credential).device_id == first.device_id


def test_who_may_do_what_to_a_device(world: World) -> None:
    device = world.device()  # ada's
    bob = Principal("key_b", "bob", "bob", "user")
    another = Principal("key_d", "other", "ada", "agent", "dev_other")
    with world.write() as session:
        assert devices.drain_device(session, ADA, device, world.now).state == "draining"
        assert devices.activate_device(session, ROOT, "bench", world.now).state == "active"
        assert devices.get_device(session, bob, device).id == device
        for verb in (devices.drain_device, devices.revoke_device, devices.rotate_credential):
            with pytest.raises(Forbidden):
                verb(session, bob, device, world.now)
            with pytest.raises(NotFound):
                verb(session, another, device, world.now)
        with pytest.raises(NotFound):
            devices.get_device(session, ADA, "nobody")
        with pytest.raises(Forbidden):
            devices.list_devices(session, another, world.now)


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


def test_agents_of_this_protocol_version_and_the_one_before_are_served(world: World) -> None:
    devices.check_protocol_version(PROTOCOL_VERSION)
    devices.check_protocol_version(PROTOCOL_VERSION - 1)
    for version, culprit in ((PROTOCOL_VERSION + 1, "server"), (PROTOCOL_VERSION - 2, "agent"), (0, "agent")):
        with pytest.raises(Conflict, match=f"update the {culprit}"):
            devices.check_protocol_version(version)
    with pytest.raises(Conflict, match="update the agent"):
        enrol(world, token(world)[1], protocol_version=PROTOCOL_VERSION - 2)
    with pytest.raises(Conflict):
        enrol(world, token(world)[1], protocol_version=99)
    assert world.rows(Device) == []
