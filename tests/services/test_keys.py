"""Keys and browser sessions: hashed, expiring, revocable."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from databases import ON_BOTH
from leasing import START, Leasing
from sqlalchemy import text

from edgefront.core.common.errors import Conflict, Forbidden, Gone, InvalidInput, NotFound, Unauthenticated
from edgefront.core.services.access import keys
from edgefront.core.services.access.keys import Principal
from edgefront.core.store.tables import Device

ADMIN = Principal("key_admin", "root", "root", "admin")
DAY = timedelta(days=1)


def make(leasing: Leasing, **changes: object) -> tuple[str, str]:
    values = {"name": "laptop", "owner": "ada", "role": "user", "now": START, **changes}
    with leasing.write() as session:
        key, secret = keys.create_key(session, **values)  # type: ignore[arg-type]
        return key.id, secret


def whoami(leasing: Leasing, secret: str, now: object = START) -> Principal:
    with leasing.database.read() as session:
        return keys.authenticate(session, secret, now)  # type: ignore[arg-type]


def test_a_key_authenticates_its_principal(leasing: Leasing) -> None:
    key_id, secret = make(leasing)
    assert re.fullmatch(r"efk_[\w-]{43}", secret)
    assert whoami(leasing, secret) == Principal(key_id, "laptop", "ada", "user")


def test_secrets_are_nowhere_in_the_database(leasing: Leasing) -> None:
    _, secret = make(leasing)
    with leasing.write() as session:
        cookie = keys.open_web_session(session, keys.authenticate(session, secret, START), START)
    with leasing.database.read() as session:
        for table in ("api_key", "web_session"):
            for row in session.execute(text(f"SELECT * FROM {table}")):
                assert not {secret, cookie, secret[4:], cookie[4:]} & {str(value) for value in row}


@pytest.mark.parametrize("secret", ["", "efk_", "efk_" + "x" * 43, "efe_" + "x" * 43, "hello", "efk_\u00e9"])
def test_unknown_secrets_are_refused(leasing: Leasing, secret: str) -> None:
    with pytest.raises(Unauthenticated):
        whoami(leasing, secret)


def test_keys_expire(leasing: Leasing) -> None:
    _, secret = make(leasing, expires_at=START + DAY)
    assert whoami(leasing, secret, START + DAY - timedelta(seconds=1)).owner == "ada"
    with pytest.raises(Unauthenticated, match="expired at 2026-01-02"):
        whoami(leasing, secret, START + DAY)


def test_revoking_ends_the_key_and_its_browser_sessions(leasing: Leasing) -> None:
    key_id, secret = make(leasing)
    ada = whoami(leasing, secret)
    with leasing.write() as session:
        cookie = keys.open_web_session(session, ada, START)
        assert keys.authenticate_web(session, cookie, START) == ada
        keys.revoke_key(session, ada, key_id, START)
        keys.revoke_key(session, ada, key_id, START + DAY)
        with pytest.raises(Unauthenticated, match="revoked"):
            keys.authenticate(session, secret, START)
        with pytest.raises(Unauthenticated, match="revoked"):
            keys.authenticate_web(session, cookie, START)


@ON_BOTH
def test_browser_sessions_end_by_time_and_by_hand(leasing: Leasing) -> None:
    _, secret = make(leasing)
    ada = whoami(leasing, secret)
    with leasing.write() as session:
        cookie = keys.open_web_session(session, ada, START)
        with pytest.raises(Unauthenticated):
            keys.authenticate_web(session, cookie, START + keys.WEB_SESSION)
        keys.close_web_session(session, cookie)
        keys.close_web_session(session, cookie)
        with pytest.raises(Unauthenticated):
            keys.authenticate_web(session, cookie, START)


@ON_BOTH
def test_keys_are_their_owners_and_the_admins(leasing: Leasing) -> None:
    ada_key, _ = make(leasing)
    make(leasing, name="phone", owner="bob")
    bob = Principal("key_x", "phone", "bob", "user")
    with leasing.write() as session:
        assert [view.owner for view in keys.list_keys(session, bob)] == ["bob"]
        assert [view.owner for view in keys.list_keys(session, ADMIN)] == ["ada", "bob"]
        assert all(view.key is None for view in keys.list_keys(session, ADMIN))
        with pytest.raises(NotFound):
            keys.revoke_key(session, bob, ada_key, START)
        keys.revoke_key(session, ADMIN, ada_key, START)
        assert [view.revoked for view in keys.list_keys(session, ADMIN)] == [True, False]


def test_the_last_admin_key_is_revoked_only_if_that_is_meant(leasing: Leasing) -> None:
    first, _ = make(leasing, name="root", owner="root", role="admin")
    make(leasing, name="old", owner="old", role="admin", expires_at=START + DAY)
    make(leasing)
    later = START + 2 * DAY  # the other admin's key has expired
    with leasing.write() as session, pytest.raises(Conflict, match="last admin key") as refused:
        keys.revoke_key(session, ADMIN, first, later)
    assert refused.value.field == "force"
    second, _ = make(leasing, name="second", owner="second", role="admin")
    with leasing.write() as session:
        keys.revoke_key(session, ADMIN, first, later)
        keys.revoke_key(session, ADMIN, first, later)
        with pytest.raises(Conflict):
            keys.revoke_key(session, ADMIN, second, later)
        keys.revoke_key(session, ADMIN, second, later, force=True)
        assert [view.revoked for view in keys.list_keys(session, ADMIN)] == [True, False, False, True]


def test_an_admin_key_that_lasts_longer_than_all_others_counts_as_the_last(leasing: Leasing) -> None:
    lasting, _ = make(leasing, name="root", owner="root", role="admin")
    brief, _ = make(leasing, name="brief", owner="brief", role="admin", expires_at=START + DAY)
    longer, _ = make(leasing, name="longer", owner="longer", role="admin", expires_at=START + 2 * DAY)
    with leasing.write() as session:
        with pytest.raises(Conflict, match="all others expire earlier"):
            keys.revoke_key(session, ADMIN, lasting, START)
        keys.revoke_key(session, ADMIN, brief, START)
        keys.revoke_key(session, ADMIN, lasting, START, force=True)
        with pytest.raises(Conflict):
            keys.revoke_key(session, ADMIN, longer, START)


def test_a_browser_session_says_when_it_expires(leasing: Leasing) -> None:
    """Else it would be remembered beyond that."""
    for expires_at in (None, START + DAY, START + 30 * DAY):
        _, secret = make(leasing, expires_at=expires_at)
        with leasing.write() as session:
            cookie = keys.open_web_session(session, keys.authenticate(session, secret, START), START)
            found = keys.authenticate_web(session, cookie, START).expires_at
        assert found == min(expires_at or START + keys.WEB_SESSION, START + keys.WEB_SESSION)


@pytest.mark.parametrize("role", ["user", "viewer", "agent"])
def test_only_admins_revoke_keys_of_admins(leasing: Leasing, role: str) -> None:
    """Also of the same owner, and also where it says that it means the last one."""
    admin, secret = make(leasing, name="root", owner="root", role="admin")
    make(leasing, name="second", owner="second", role="admin")
    other, _ = make(leasing, name="script", owner="bob")
    for owner in ("root", "ada"):
        asker = Principal("key_x", "script", owner, role, None if role != "agent" else "dev_1")  # type: ignore[arg-type]
        for key_id in (admin, other):
            for force in (False, True):
                with leasing.write() as session, pytest.raises((Forbidden, NotFound)):
                    keys.revoke_key(session, asker, key_id, START, force=force)
    assert whoami(leasing, secret).is_admin
    with leasing.database.read() as session:
        assert not any(view.revoked for view in keys.list_keys(session, ADMIN))


def test_device_credentials_go_with_their_device(leasing: Leasing) -> None:
    device = leasing.device()
    key_id, secret = make(leasing, role="agent", credential=keys.DeviceCredential(device))
    assert secret.startswith("efa_")
    principal = whoami(leasing, secret)
    assert (principal.role, principal.device_id) == ("agent", device)
    with leasing.write() as session:
        assert keys.list_keys(session, ADMIN) == []
        with pytest.raises(NotFound):
            keys.revoke_key(session, ADMIN, key_id, START)
        with pytest.raises(Forbidden):
            keys.open_web_session(session, principal, START)
        session.get_one(Device, device).state = "revoked"
    with pytest.raises(Gone):
        whoami(leasing, secret)


def test_roles(leasing: Leasing) -> None:
    ada = Principal("k", "n", "ada", "user")
    ada.require("user")
    ADMIN.require("user")
    with pytest.raises(Forbidden):
        ada.require("admin")
    with pytest.raises(Forbidden):
        ADMIN.require("agent")
    with pytest.raises(InvalidInput):
        make(leasing, role="agent")
    with pytest.raises(InvalidInput):
        make(leasing, credential=keys.DeviceCredential("dev_x"))
