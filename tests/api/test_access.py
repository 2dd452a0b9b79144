"""Who gets in, with what, and what they then may do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count, takewhile

import httpx
import pytest
from running_api import Service, problem

from edgefront.api.docs import examples
from edgefront.api.http.auth import PUBLIC, is_public
from edgefront.api.http.credentials import REMEMBERED_S, Credential, Credentials
from edgefront.core.errors import Unauthenticated
from edgefront.core.services.access import keys
from edgefront.core.store.database import Database

PAGES = {"/", "/new", "/trainings", "/login", "/favicon.ico"}


def test_nothing_but_health_answers_without_a_key(sqlite_service: Service) -> None:
    client = sqlite_service.client(None)
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
def test_wrong_headers_are_refused(sqlite_service: Service, authorization: str) -> None:
    headers = {"Authorization": authorization.encode("utf-8")}
    problem(sqlite_service.client(None).get("/v1/me", headers=headers), 401)  # type: ignore[arg-type]


def test_a_key_has_an_owner(service: Service) -> None:
    me = service.client("user", "bob").get("/v1/me").json()
    assert (me["owner"], me["role"], me["device_id"]) == ("bob", "user", None)


def test_expired_and_revoked_keys_are_refused(service: Service) -> None:
    expired = service.key(expires_at=service.later(seconds=-1))
    problem(service.client_with({"Authorization": f"Bearer {expired}"}).get("/v1/me"), 401)

    admin = service.client()
    made = admin.post("/v1/keys", json={"name": "notebook"})
    assert made.status_code == 201
    client = service.client_with({"Authorization": f"Bearer {made.json()['key']}"})
    assert client.get("/v1/me").json()["owner"] == "notebook"
    listed = {key["id"]: key for key in admin.get("/v1/keys").json()}
    assert listed[made.json()["id"]]["key"] is None
    assert admin.delete(f"/v1/keys/{made.json()['id']}").status_code == 204
    assert problem(client.get("/v1/me"), 401)["detail"] == "the key was revoked"


def test_roles(service: Service) -> None:
    user, agent = service.client("user", "bob"), service.agent()
    problem(user.post("/v1/keys", json={"name": "more"}), 403)
    problem(user.post("/v1/enrolment-tokens", json={}), 403)
    problem(user.get("/v1/enrolment-tokens"), 403)
    problem(user.post("/v1/leases", json={}), 403)
    problem(service.client().post("/v1/reports", json=examples.REPORT_REQUEST), 403)
    for path in ("/v1/jobs", "/v1/keys", "/metrics", "/v1/devices"):
        problem(agent.get(path), 403)
    problem(agent.post("/v1/jobs", json=examples.JOB_REQUEST), 403)
    assert agent.get("/v1/me").json()["role"] == "agent"


def test_users_see_their_own_keys_only(service: Service) -> None:
    bob, eve = service.client("user", "bob"), service.client("user", "eve")
    [own] = bob.get("/v1/keys").json()
    assert own["owner"] == "bob"
    problem(eve.delete(f"/v1/keys/{own['id']}"), 404)
    assert bob.delete(f"/v1/keys/{own['id']}").status_code == 204
    problem(bob.get("/v1/me"), 401)


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


def test_a_session_ends_with_its_key(service: Service) -> None:
    admin = service.client()
    made = admin.post("/v1/keys", json={"name": "bob"}).json()
    secret = login(service, made["key"]).cookies["edgefront_session"]
    browser = service.client_with({"Cookie": f"edgefront_session={secret}"})
    assert browser.get("/v1/me").status_code == 200
    admin.delete(f"/v1/keys/{made['id']}")
    problem(browser.get("/v1/me"), 401)


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


def test_rates_are_bounded_for_each_key(start_service: Callable[..., Service], database: Database) -> None:
    service = start_service(database, requests_per_minute=60)
    busy, other = service.client("user", "bob"), service.client("user", "eve")
    answers = [busy.get("/v1/me") for _ in range(10)]  # a burst of ten seconds' worth
    assert [answer.status_code for answer in answers] == [200] * 10
    while (refused := busy.get("/v1/me")).status_code == 200:  # what has trickled in meanwhile is used up first
        continue
    assert problem(refused, 429)["kind"] == "too-many-requests"
    assert int(refused.headers["retry-after"]) >= 1
    assert other.get("/v1/me").status_code == 200


def test_guessing_keys_is_bounded_for_each_address(sqlite_service: Service) -> None:
    client, known = sqlite_service.client(None), sqlite_service.client()
    assert known.get("/v1/me").status_code == 200
    guesses = (client.get("/v1/me", headers={"Authorization": f"Bearer efk_{number}"}) for number in count())
    codes = [guess.status_code for guess in takewhile(lambda guess: guess.status_code != 429, guesses)]
    assert set(codes) == {401}
    assert known.get("/v1/me").status_code == 200, "a key that was just used is not looked up"


@pytest.mark.anyio
async def test_a_revocation_elsewhere_counts_within_seconds(database: Database) -> None:
    clock = [0.0]
    credentials = Credentials(database, clock=lambda: clock[0])
    with database.write() as session:
        now = database.now(session)
        key, secret = keys.create_key(session, name="bob", owner="bob", role="user", now=now)
    credential = Credential(secret)
    assert (await credentials.resolve(credential)).owner == "bob"
    with database.write() as session:
        admin = keys.Principal("key_test", "test", "ada", "admin")
        keys.revoke_key(session, admin, key.id, now + timedelta(seconds=1))
    clock[0] = REMEMBERED_S - 0.01
    assert (await credentials.resolve(credential)).owner == "bob"
    clock[0] = REMEMBERED_S
    with pytest.raises(Unauthenticated):
        await credentials.resolve(credential)


@pytest.mark.anyio
async def test_a_revocation_here_counts_at_once(database: Database) -> None:
    credentials = Credentials(database)
    with database.write() as session:
        now = database.now(session)
        key, secret = keys.create_key(session, name="bob", owner="bob", role="user", now=now)
    await credentials.resolve(Credential(secret))
    with database.write() as session:
        keys.revoke_key(session, keys.Principal("key_test", "test", "ada", "admin"), key.id, now)
    credentials.forget()
    with pytest.raises(Unauthenticated):
        await credentials.resolve(Credential(secret))


def test_credentials_do_not_show_their_secret() -> None:
    assert "efk_" not in repr(Credential("efk_secret"))
