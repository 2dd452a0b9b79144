"""Devices: enrolment, take-over, credentials, drain and revoke."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from leasing import START, Leasing, facts

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


def admin(leasing: Leasing) -> Principal:
    """With a key in the database, which is looked at again where a secret is made."""
    with leasing.write() as session:
        secret = keys.create_key(session, name="root", owner="root", role="admin", now=leasing.now)[1]
    return whoami(leasing, secret)


def token(leasing: Leasing, by: Principal = ROOT, **changes: int) -> tuple[str, str]:
    with leasing.write() as session:
        row, secret = devices.create_enrolment_token(session, by, EnrolmentTokenRequest(**changes), leasing.now)
        return row.id, secret


def enrol(leasing: Leasing, secret: str, name: str = "pi", **changes: Any) -> EnrolResponse:
    request = EnrolRequest.model_validate({"name": name, "device_class": "pi-5", "facts": facts(), **changes})
    with leasing.write() as session:
        return leases.enrol(session, secret, request, leasing.now)


def whoami(leasing: Leasing, secret: str) -> Principal:
    with leasing.database.read() as session:
        return keys.authenticate(session, secret, leasing.now)


def test_a_token_is_traded_for_a_device_with_its_own_credential(leasing: Leasing) -> None:
    _, secret = token(leasing)
    answer = enrol(leasing, secret)
    principal = whoami(leasing, answer.credential)
    assert (principal.device_id, principal.role, principal.owner) == (answer.device_id, "agent", "root")
    with leasing.database.read() as session:
        view = devices.view(session, devices.get_device(session, ADA, "pi"), leasing.now)
    assert (view.id, view.device_class, view.online, view.leased) == (answer.device_id, "pi-5", False, 0)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(leasing, secret, "second")


def test_tokens_have_uses_and_an_end(leasing: Leasing) -> None:
    id_, secret = token(leasing, uses=2, minutes=10)
    enrol(leasing, secret, "one")
    with leasing.database.read() as session:
        (view,) = devices.list_enrolment_tokens(session, ROOT)
    assert (view.id, view.uses_left, view.token) == (id_, 1, None)
    leasing.now = START + timedelta(minutes=10)
    with pytest.raises(Unauthenticated, match="expired"):
        enrol(leasing, secret, "two")
    id_, secret = token(leasing)
    with leasing.write() as session:
        devices.revoke_enrolment_token(session, ROOT, id_, leasing.now)
        devices.revoke_enrolment_token(session, ROOT, id_, leasing.now)
        with pytest.raises(NotFound):
            devices.revoke_enrolment_token(session, ROOT, "enr_none", leasing.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(leasing, secret, "two")
    for wrong in ("", "efe_nope", keys.new_secret("efk")):
        with pytest.raises(Unauthenticated):
            enrol(leasing, wrong)


def again(leasing: Leasing, device: str, by: Principal = ROOT) -> str:
    """A token that enrols this device again."""
    with leasing.write() as session:
        return devices.reenrolment_token(session, by, device, ReenrolRequest(), leasing.now)[1]


def use(leasing: Leasing, secret: str) -> Principal:
    """What the first request with a credential does."""
    device = whoami(leasing, secret)
    if device.pending:
        with leasing.write() as session:
            devices.first_used(session, device.key_id, leasing.now)
    return device


@ON_BOTH
def test_a_token_of_several_uses_takes_over_no_device(leasing: Leasing) -> None:
    id_, secret = token(leasing, uses=10)
    first = enrol(leasing, secret, nonce=NONCE)

    def refused(**changes: Any) -> None:
        for nonce in ({}, {"nonce": "another" * 4}, changes):
            with pytest.raises(Conflict, match="device reenrol"):
                enrol(leasing, secret, **nonce)

    refused()  # before the first use of its credential, though every user can read its name and facts
    assert whoami(leasing, first.credential).device_id == first.device_id
    lost = enrol(leasing, secret, nonce=NONCE)  # the same request again: its answer was lost
    assert lost.device_id == first.device_id
    with pytest.raises(Unauthenticated):
        whoami(leasing, first.credential)
    device = enrol(leasing, secret, nonce=NONCE, facts=facts(extra={CORE_GFLOPS: 41.5}))  # its agent started again
    assert device.device_id == first.device_id
    use(leasing, device.credential)
    refused(nonce=NONCE)
    leasing.tick(1000)
    refused()
    own = again(leasing, "pi")
    refused()
    back = enrol(leasing, own, nonce=NONCE)
    refused(nonce=NONCE)
    assert use(leasing, back.credential).device_id == first.device_id
    with leasing.write() as session:
        leases.revoke_device(session, ROOT, "pi", leasing.now)
    refused()
    with leasing.database.read() as session:
        assert {view.id: view.uses_left for view in devices.list_enrolment_tokens(session, ROOT)}[id_] == 9
        assert devices.get_device(session, ROOT, "pi").state == "revoked"


def test_a_nonce_is_not_stored_and_no_nonce_is_no_answer(leasing: Leasing) -> None:
    secret = token(leasing, uses=2)[1]
    enrol(leasing, secret, "old agent")
    with pytest.raises(Conflict):
        enrol(leasing, secret, "old agent")
    enrol(leasing, secret, nonce=NONCE)
    with leasing.database.read() as session:
        assert NONCE not in {key.enrolment_nonce for key in session.query(ApiKey)}
    assert (
        "nonce" not in EnrolRequest.model_validate({"name": "pi", "device_class": "x", "facts": facts()}).model_dump()
    )


@ON_BOTH
def test_of_tokens_that_enrol_one_name_at_once_one_does(leasing: Leasing) -> None:
    secrets = [token(leasing)[1] for _ in range(12)]

    def tried(secret: str) -> str:
        try:
            return enrol(leasing, secret).device_id
        except Conflict as error:
            return str(error.field)

    found = at_once(*(partial(tried, secret) for secret in secrets))
    [device] = leasing.rows(Device)
    assert sorted(found) == [device.id, *["name"] * 11]


@ON_BOTH
def test_a_lost_credential_is_replaced_by_a_token_for_the_device(leasing: Leasing) -> None:
    first = enrol(leasing, token(leasing)[1])
    use(leasing, first.credential)
    leasing.claim(first.device_id)  # seen now
    secret = again(leasing, "pi")
    with pytest.raises(Conflict, match="online"):
        enrol(leasing, secret)
    with pytest.raises(Conflict, match="for the device 'pi'"):
        enrol(leasing, secret, "another")
    leasing.tick(61)
    second = enrol(leasing, secret)  # the refused tries used nothing up
    assert second.device_id == first.device_id
    assert use(leasing, second.credential).device_id == first.device_id
    with pytest.raises(Unauthenticated):
        whoami(leasing, first.credential)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(leasing, secret)


def test_an_enrolment_whose_answer_was_lost_is_answered_again(leasing: Leasing) -> None:
    id_, secret = token(leasing)
    lost = enrol(leasing, secret)
    device = enrol(leasing, secret)
    assert device.device_id == lost.device_id
    with pytest.raises(Unauthenticated):
        whoami(leasing, lost.credential)
    with pytest.raises(Conflict):
        enrol(leasing, token(leasing)[1])  # only for the same token
    use(leasing, device.credential)
    with pytest.raises(Unauthenticated, match="used up"):
        enrol(leasing, secret)
    with leasing.database.read() as session:
        assert {view.id: view.uses_left for view in devices.list_enrolment_tokens(session, ROOT)}[id_] == 0


def test_a_revoked_device_comes_back_by_a_token_for_it(leasing: Leasing) -> None:
    first = enrol(leasing, token(leasing)[1])
    use(leasing, first.credential)
    with leasing.write() as session:
        leases.revoke_device(session, ROOT, first.device_id, leasing.now)
        for verb in (devices.drain_device, devices.activate_device):
            with pytest.raises(Gone):
                verb(session, ROOT, first.device_id, leasing.now)
    with pytest.raises(Gone):
        whoami(leasing, first.credential)
    second = enrol(leasing, again(leasing, "pi"))
    assert second.device_id == first.device_id
    assert use(leasing, second.credential).device_id == first.device_id


@ON_BOTH
def test_revoking_releases_its_launches_without_an_attempt(leasing: Leasing) -> None:
    device, (launch,) = leasing.device(), leasing.launches(1)
    leasing.start(device, leasing.claim(device).items[0])
    with leasing.write() as session:
        leases.revoke_device(session, ROOT, "bench", leasing.now)
        leases.revoke_device(session, ROOT, "bench", leasing.now)
    assert (leasing.launch(launch).state, leasing.launch(launch).attempts) == ("wanted", 0)


@ON_BOTH
def test_revoking_a_device_ends_the_tokens_made_for_it(leasing: Leasing) -> None:
    first = enrol(leasing, token(leasing)[1])
    use(leasing, first.credential)
    leasing.tick(1000)
    older, newer = again(leasing, "pi"), again(leasing, "pi")
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(leasing, older)  # a newer one takes its place
    with leasing.write() as session:
        leases.revoke_device(session, ROOT, "pi", leasing.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(leasing, newer)
    assert enrol(leasing, again(leasing, "pi")).device_id == first.device_id


@ON_BOTH
def test_an_owner_ends_a_token_for_their_device(leasing: Leasing) -> None:
    device = leasing.device()  # ada's
    others = token(leasing)[0]
    bob = Principal("key_b", "bob", "bob", "user")
    itself = Principal("key_d", "bench", "ada", "agent", device)
    with leasing.write() as session:
        made, secret = devices.reenrolment_token(session, ADA, device, ReenrolRequest(), leasing.now)
        for asker, id_ in ((bob, made.id), (ADA, others), (ADA, "enr_none"), (itself, made.id)):
            with pytest.raises(Forbidden):
                devices.revoke_enrolment_token(session, asker, id_, leasing.now)
        devices.revoke_enrolment_token(session, ADA, made.id, leasing.now)
    with pytest.raises(Unauthenticated, match="revoked"):
        enrol(leasing, secret, "bench")


def test_what_ends_is_counted(leasing: Leasing) -> None:
    def count() -> int:
        with leasing.database.read() as session:
            return access_queries.version(session)

    assert count() == 0
    first = enrol(leasing, token(leasing)[1])
    assert count() == 0
    use(leasing, first.credential)
    before = count()
    with leasing.write() as session:
        leases.revoke_device(session, ROOT, "pi", leasing.now)
    assert count() == before + 1
    with leasing.write() as session:
        key, _ = keys.create_key(session, name="a", owner="a", role="user", now=leasing.now)
        keys.revoke_key(session, ROOT, key.id, leasing.now)
        keys.revoke_key(session, ROOT, key.id, leasing.now)
    assert count() == before + 2


@ON_BOTH
def test_who_may_do_what_to_a_device(leasing: Leasing) -> None:
    device = leasing.device()  # ada's
    bob = Principal("key_b", "bob", "bob", "user")
    another = Principal("key_d", "other", "ada", "agent", "dev_other")
    with leasing.write() as session:
        assert devices.drain_device(session, ADA, device, leasing.now).state == "draining"
        assert devices.activate_device(session, ROOT, "bench", leasing.now).state == "active"
        assert devices.get_device(session, bob, device).id == device
        with pytest.raises(Forbidden):
            devices.reenrolment_token(session, bob, device, ReenrolRequest(), leasing.now)
        assert devices.reenrolment_token(session, ADA, device, ReenrolRequest(), leasing.now)[0].device_id == device
        for verb in (devices.drain_device, devices.revoke_device):
            with pytest.raises(Forbidden):
                verb(session, bob, device, leasing.now)
            with pytest.raises(NotFound):
                verb(session, another, device, leasing.now)
        with pytest.raises(NotFound):
            devices.get_device(session, ADA, "nobody")
        with pytest.raises(Forbidden):
            devices.list_devices(session, another, leasing.now)
        with pytest.raises(Forbidden):
            devices.list_enrolment_tokens(session, ADA)
    with pytest.raises(Forbidden):
        token(leasing, by=ADA)


@ON_BOTH
def test_devices_are_paged_in_the_order_of_their_enrolment(leasing: Leasing) -> None:
    made = [leasing.device(f"device {index}") for index in range(5)]
    leasing.launches(3)
    leasing.claim(made[0])
    with leasing.database.read() as session:
        first = devices.list_devices(session, ADA, leasing.now, limit=2)
        second = devices.list_devices(session, ADA, leasing.now, cursor=first.next_cursor, limit=3)
    assert [view.id for view in (*first.items, *second.items)] == made
    assert second.next_cursor is None
    assert (first.items[0].leased, first.items[0].online, first.items[1].online) == (3, True, False)


def test_agents_of_another_protocol_version_are_refused(leasing: Leasing) -> None:
    devices.check_protocol_version(PROTOCOL_VERSION)
    for version, culprit in ((PROTOCOL_VERSION + 1, "server"), (PROTOCOL_VERSION - 1, "agent"), (0, "agent")):
        with pytest.raises(Conflict, match=f"update the {culprit}"):
            enrol(leasing, token(leasing)[1], protocol_version=version)
    assert leasing.rows(Device) == []


def test_the_embedded_agent_gets_a_token_for_its_device(leasing: Leasing, tmp_path: Path) -> None:
    def given() -> str:
        EmbeddedService._enrolment_token(leasing.database, ROOT, tmp_path / "token")
        return (tmp_path / "token").read_text().strip()

    with leasing.database.read() as session:
        leasing.now = leasing.database.now(session)
    first = enrol(leasing, given(), DEVICE)
    use(leasing, first.credential)
    second = enrol(leasing, given(), DEVICE)  # its folder was lost
    assert second.device_id == first.device_id
