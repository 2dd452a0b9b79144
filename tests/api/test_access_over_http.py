"""Who gets in, with what, and what they then may do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest
from databases import ON_BOTH
from running_api import Service, problem

from edgefront.api.http.auth import PUBLIC, is_public
from edgefront.api.http.credentials import CHECKED_S, TRUSTED_S, Credential, Credentials
from edgefront.core.common.errors import Unauthenticated
from edgefront.core.services.access import keys
from edgefront.core.store.database import Database

PAGES = {"/", "/new", "/jobs", "/compare", "/trainings", "/devices", "/docs", "/login", "/favicon.ico"}


def test_nothing_but_health_answers_without_a_key(service: Service) -> None:
    client = service.client(None)
    assert client.get("/v1/health").json()["status"] == "ok"
    assert client.get("/v1/ready").status_code == 200
    for path in ("/v1/me", "/v1/jobs", "/v1/nothing", "/metrics", "/v1/openapi.json", "/anything", "/v1/health/x"):
        refused = client.get(path)
        assert problem(refused, 401)["kind"] == "unauthenticated"
        assert refused.headers["www-authenticate"] == "Bearer"
    problem(client.post("/v1/leases", json={}), 401)
    assert client.get("/login").status_code == 200
    assert client.get("/").headers["location"].startswith("/login")
    assert {path for path in PUBLIC if not path.startswith("/v1/")} == PAGES
    assert not is_public("GET", "/v1/session")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Basic YTpi",
        "efk_x",
        "Bearer efk_wrong",
        "Bearer efw_wrong",
        "Bearer \u00e9",
        "Bearer " + "x" * 5000,
    ],
)
def test_wrong_headers_are_refused(service: Service, authorization: str) -> None:
    headers = {"Authorization": authorization.encode("utf-8")}
    problem(service.client(None).get("/v1/me", headers=headers), 401)  # type: ignore[arg-type]


def login(service: Service, key: str, **headers: str) -> httpx.Response:
    return service.client(None).post("/v1/session", json={"key": key}, headers=headers)


def test_a_browser_trades_its_key_for_a_cookie(service: Service) -> None:
    answer = login(service, service.key("user", "bob"))
    assert answer.status_code == 201
    assert answer.json()["owner"] == "bob"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie
    secret = answer.cookies["edgefront_session"]
    browser = service.client_with({"Cookie": f"edgefront_session={secret}"})
    assert browser.get("/v1/me").json()["owner"] == "bob"
    problem(service.client_with({"Authorization": f"Bearer {secret}"}).get("/v1/me"), 401)

    ended = browser.delete("/v1/session", headers={"Sec-Fetch-Site": "same-origin"})
    assert ended.status_code == 204
    assert 'edgefront_session=""' in ended.headers["set-cookie"]
    problem(browser.get("/v1/me"), 401)


def test_logging_in_with_a_wrong_key_or_from_another_site_fails(service: Service) -> None:
    problem(login(service, "efk_wrong"), 401)
    problem(login(service, service.enrol()[1]), 403)
    problem(login(service, service.key(), **{"Sec-Fetch-Site": "cross-site"}), 403)
    problem(service.client(None).post("/v1/session", json={}), 422)


def test_a_cookie_works_for_the_servers_own_pages_only(service: Service) -> None:
    secret = login(service, service.key()).cookies["edgefront_session"]
    browser = service.client_with({"Cookie": f"edgefront_session={secret}"})

    def post(**headers: str) -> httpx.Response:
        return browser.post("/v1/keys", json={"name": "x"}, headers=headers)

    assert problem(post(), 403)["kind"] == "forbidden"
    problem(post(**{"Sec-Fetch-Site": "cross-site"}), 403)
    problem(post(**{"Sec-Fetch-Site": "same-site", "Origin": service.url}), 403)
    problem(post(Origin="https://evil.example"), 403)
    problem(post(Origin="null"), 403)
    problem(post(Origin=service.url.replace("http:", "https:")), 403)
    assert post(Origin=service.url).status_code == 201
    assert post(**{"Sec-Fetch-Site": "same-origin"}).status_code == 201
    assert browser.get("/v1/keys", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_the_cookie_is_secure_behind_a_trusted_proxy_that_speaks_https(
    start_service: Callable[..., Service], database: Database
) -> None:
    proxied = start_service(database, trusted_proxies="127.0.0.1")
    answer = login(proxied, proxied.key(), **{"X-Forwarded-Proto": "https"})
    assert "; Secure" in answer.headers["set-cookie"]
    secret = answer.cookies.jar._cookies["127.0.0.1"]["/"]["edgefront_session"].value  # type: ignore[attr-defined]
    browser = proxied.client_with({"Cookie": f"edgefront_session={secret}", "X-Forwarded-Proto": "https"})
    https = proxied.url.replace("http:", "https:")
    assert browser.post("/v1/keys", json={"name": "x"}, headers={"Origin": https}).status_code == 201


def test_forwarded_headers_of_strangers_are_not_believed(service: Service) -> None:
    answer = login(service, service.key(), **{"X-Forwarded-Proto": "https"})
    assert "Secure" not in answer.headers["set-cookie"]


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made_key(database: Database, seconds: float = 3600) -> tuple[str, Credential]:
    """A key that ends after so many seconds."""
    with database.write() as session:
        now = database.now(session)
        ends = now + timedelta(seconds=seconds)
        key, secret = keys.create_key(session, name="bob", owner="bob", role="user", now=now, expires_at=ends)
    return key.id, Credential(secret)


def revoke(database: Database, key_id: str) -> None:
    with database.write() as session:
        admin = keys.Principal("key_test", "test", "ada", "admin")
        keys.revoke_key(session, admin, key_id, database.now(session) + timedelta(seconds=1))


@ON_BOTH
@pytest.mark.anyio
async def test_a_revocation_elsewhere_counts_with_the_next_check(database: Database) -> None:
    clock, changes = Clock(), []
    credentials = Credentials(database, clock, changed=lambda: changes.append(clock.now))
    key_id, credential = made_key(database)
    await credentials.check()
    assert (await credentials.resolve(credential)).owner == "bob"
    revoke(database, key_id)
    assert credentials.remembered(credential) is not None, "no statement is made for each request"
    clock.now = CHECKED_S
    await credentials.check()
    assert changes == [0.0, CHECKED_S]  # also the first check, for streams that began before it
    with pytest.raises(Unauthenticated):
        await credentials.resolve(credential)


@ON_BOTH
@pytest.mark.anyio
async def test_without_checks_nothing_is_remembered_for_a_second(database: Database) -> None:
    clock = Clock()
    credentials = Credentials(database, clock)
    key_id, credential = made_key(database)
    assert (await credentials.resolve(credential)).owner == "bob"
    assert credentials.remembered(credential) is None, "nothing was checked yet"
    await credentials.check()
    await credentials.resolve(credential)
    assert credentials.remembered(credential) is not None
    revoke(database, key_id)
    clock.now = TRUSTED_S
    assert TRUSTED_S < 1.0
    with pytest.raises(Unauthenticated):
        await credentials.resolve(credential)


@ON_BOTH
@pytest.mark.anyio
async def test_a_key_is_not_remembered_beyond_its_end(database: Database) -> None:
    clock = Clock()
    credentials = Credentials(database, clock)
    _, credential = made_key(database, seconds=20)
    await credentials.check()
    await credentials.resolve(credential)
    clock.now = 20.0
    await credentials.check()
    assert credentials.remembered(credential) is None


@ON_BOTH
@pytest.mark.anyio
async def test_a_revocation_here_counts_at_once(database: Database) -> None:
    credentials = Credentials(database)
    with database.write() as session:
        now = database.now(session)
        key, secret = keys.create_key(session, name="bob", owner="bob", role="user", now=now)
    await credentials.check()
    await credentials.resolve(Credential(secret))
    with database.write() as session:
        keys.revoke_key(session, keys.Principal("key_test", "test", "ada", "admin"), key.id, now)
    credentials.forget()
    with pytest.raises(Unauthenticated):
        await credentials.resolve(Credential(secret))


def test_credentials_do_not_show_their_secret() -> None:
    assert "efk_" not in repr(Credential("efk_secret"))
