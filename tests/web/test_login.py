"""Signing in and out in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, expect
from watched_page import Watch

from edgefront.embedded.service import EmbeddedService


def test_a_typed_key_leads_to_the_page_that_was_wanted(
    watch: Watch, visitor: BrowserContext, service: EmbeddedService
) -> None:
    seen = watch(visitor, "/?from=bookmark")
    expect(seen.page).to_have_url(re.compile(r"/login\?next="))
    seen.page.get_by_label("API key").fill(service.key)
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url(f"{service.url}/?from=bookmark")
    expect(seen.page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def test_a_key_in_the_fragment_signs_in_and_is_gone_from_the_history(
    watch: Watch, visitor: BrowserContext, service: EmbeddedService
) -> None:
    seen = watch(visitor, "/login?next=/")
    addresses: list[str] = []
    seen.page.on("framenavigated", lambda frame: addresses.append(frame.url))
    seen.page.goto("about:blank")
    seen.page.goto(f"/login#key={service.key}&next=/")
    seen.page.wait_for_url(f"{service.url}/")
    seen.eventually(lambda: addresses[-1], f"{service.url}/")
    seen.page.go_back()
    expect(seen.page).to_have_url("about:blank")  # the login page itself is no place to go back to
    assert service.key not in seen.page.url
    assert service.key not in seen.page.content()


@pytest.mark.parametrize(
    ("where", "path"),
    [
        *((where, "/") for where in ("https://evil.example/", "//evil.example/x", "/\\evil.example", "javascript:x()")),
        *((f"/{where}//evil.example/x", "//evil.example/x") for where in ("..", ".", "%2e%2e")),
    ],
)
def test_login_leads_to_no_other_site(
    watch: Watch, visitor: BrowserContext, service: EmbeddedService, where: str, path: str
) -> None:
    seen = watch(visitor, "/login")
    seen.page.goto("about:blank")
    seen.page.goto(f"/login#key={service.key}&next={where}")
    seen.page.wait_for_url(f"{service.url}{path}")
    if path != "/":
        seen.forgive(404)


def test_a_wrong_key_is_refused_in_words_and_can_be_put_right(
    watch: Watch, visitor: BrowserContext, service: EmbeddedService
) -> None:
    seen = watch(visitor, "/login")
    seen.page.get_by_label("API key").fill("efk_wrong")
    seen.page.get_by_role("button", name="Sign in").click()
    seen.page.get_by_role("alert").filter(has_text="not valid").wait_for()
    seen.forgive(401)
    seen.page.get_by_label("API key").fill(service.key)
    seen.page.get_by_role("button", name="Sign in").click()
    seen.page.wait_for_url(f"{service.url}/")


def test_signing_out_ends_the_session(watch: Watch, visitor: BrowserContext, service: EmbeddedService) -> None:
    seen = watch(visitor, "/login")
    seen.sign_in(service.key, "/")
    cookies = seen.page.context.cookies()
    assert [cookie["httpOnly"] for cookie in cookies] == [True]
    seen.page.get_by_role("button", name="Sign out").click()
    seen.page.wait_for_url(f"{service.url}/login")
    seen.page.context.add_cookies([{**cookies[0]}])  # type: ignore[list-item]  # an old cookie opens nothing
    seen.page.goto("/")
    seen.page.wait_for_url(f"{service.url}/login?next=*")
    assert all("401" in text for text in seen.complaints)
    seen.complaints.clear()
