"""The API's documentation as a page: Swagger UI from this service, over this service's document."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, expect
from watched_page import WatchedPage


def test_an_endpoint_is_found_and_called_on_the_page(watch: Callable[..., WatchedPage], member: BrowserContext) -> None:
    page = watch(member, "/docs").page
    expect(page.locator(".opblock").first).to_be_visible()
    page.get_by_placeholder("Filter by tag").fill("access")
    endpoint = page.locator(".opblock", has=page.locator('[data-path="/v1/me"]'))
    endpoint.locator(".opblock-summary-control").click()
    endpoint.get_by_role("button", name="Execute").click()
    answer = endpoint.locator(".live-responses-table")
    expect(answer).to_contain_text("200")
    expect(answer).to_contain_text('"role"')
