"""The pages through a proxy that serves them below a path, in a real browser: nothing leaves the path."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from path_proxy import PathProxy, path_proxy
from playwright.sync_api import Browser, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, WatchedPage
from worked_trainings import Pool, metric, serving

from edgefront.embedded.service import EmbeddedService

ROOT = "/edgefront"
ADDRESSES = """Array.from(document.querySelectorAll("[href], [src], [action]"),
  (node) => node.href?.animVal ?? node.href ?? node.src ?? node.action)"""

LICENCE = "https://spdx.org/licenses/Apache-2.0.html"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """One whose address has a path."""
    with serving(
        tmp_path_factory.mktemp("service") / "home", EDGEFRONT_HTTP__URL=f"https://host.example{ROOT}"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def proxy(service: EmbeddedService) -> Iterator[PathProxy]:
    with path_proxy(service.url, ROOT) as proxy:
        yield proxy
    assert proxy.outside == []


@pytest.fixture
def seen(browser: Browser, proxy: PathProxy) -> Iterator[WatchedPage]:
    """A page that asks for nothing outside the path, and complains of nothing."""
    context = browser.new_context(viewport={"width": 900, "height": 700})
    seen = WatchedPage(context.new_page(), proxy.url)
    yield seen
    context.close()
    assert seen.complaints == []
    assert seen.strangers == []


def look_at_links(seen: WatchedPage) -> None:
    """Asserts that every address on the page is below the path, but that of the licence in the API's document."""
    addresses: list[str] = seen.page.evaluate(ADDRESSES)
    assert len(addresses) > 5
    assert {address for address in addresses if not address.startswith(f"{seen.origin}/")} <= {LICENCE}


def test_every_page_stays_below_the_path(
    seen: WatchedPage, service: EmbeddedService, agent: RemoteAgent, submit: Submit, api: httpx.Client, pool: Pool
) -> None:
    finished = agent.finish(api, submit(agent.name, candidates=4)["id"])
    training = pool.submit(name="a small one")
    page, job = seen.page, f"{seen.origin}/jobs/{finished['id']}"
    page.goto(job)
    page.wait_for_url(f"{seen.origin}/login?next=*")
    page.get_by_label("API key").fill(service.key)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{job}*")
    assert [cookie["path"] for cookie in page.context.cookies()] == [ROOT]
    expect(page.locator("#candidates tbody tr").first).to_be_visible()
    seen.until("document.getElementById('chart').data?.length > 0")
    look_at_links(seen)
    with page.expect_download() as download:
        page.get_by_role("link", name="Candidates of this target as CSV").click()
    assert download.value.url.startswith(f"{seen.origin}/v1/jobs/")
    assert download.value.path().stat().st_size > 0
    page.locator("#candidates tbody a", has=page.locator("code")).first.click()
    page.wait_for_url(f"{job}/candidates/*")
    expect(page.locator("#downloads tbody tr").first).to_be_visible()
    look_at_links(seen)
    page.goto(f"{job}/log")
    expect(page.locator("#log .line").first).to_be_visible()  # an event stream
    look_at_links(seen)
    page.goto(f"{seen.origin}/trainings/{training}")
    expect(page.locator("#live")).to_have_text("live")
    pool.report(pool.claim(), step=10, metrics=[metric(10)])
    expect(page.locator("#loss")).to_have_text("4.000")
    look_at_links(seen)
    for name in ("Compare", "Trainings", "Devices", "API", "Jobs"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
        expect(page.locator("nav [aria-current=page]")).to_have_text(name)
        expect(page.locator("#owner")).not_to_be_empty()
        look_at_links(seen)
    page.get_by_role("link", name="New search").first.click()
    expect(page.locator("#estimate-launches")).not_to_be_empty()
    page.get_by_role("button", name="Start the search").click()
    page.wait_for_url(re.compile(f"{seen.origin}/jobs/job_.*"))
    page.get_by_role("link", name="edgefront").click()
    page.wait_for_url(f"{seen.origin}/")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{seen.origin}/login")
    assert page.context.cookies() == []


@pytest.mark.parametrize("where", ["/", "/other/", "//evil.example", "https://evil.example/edgefront/"])
def test_login_leads_to_no_other_service_of_the_host(seen: WatchedPage, service: EmbeddedService, where: str) -> None:
    seen.page.goto(f"{seen.origin}/login#key={service.key}&next={where}")
    seen.page.wait_for_url(f"{seen.origin}/")
    expect(seen.page.locator("#owner")).not_to_be_empty()


def test_dialog_and_documentation_name_the_path(seen: WatchedPage, service: EmbeddedService) -> None:
    page = seen.page
    page.goto(f"{seen.origin}/login#key={service.key}&next={ROOT}/devices")
    page.get_by_role("button", name="Add a device").click()
    dialog = page.get_by_role("dialog")
    address = dialog.get_by_label("Address of this service")
    expect(address).to_have_value(f"https://host.example{ROOT}")
    dialog.get_by_role("button", name="Make the command").click()
    command = dialog.locator("#add-command")
    expect(command).to_contain_text(f" | edgefront agent --server https://host.example{ROOT} --token-file -")
    page.goto(f"{seen.origin}/docs")
    endpoint = page.locator(".opblock", has=page.locator('[data-path="/v1/me"]'))
    endpoint.locator(".opblock-summary-control").click()
    endpoint.get_by_role("button", name="Execute").click()
    expect(endpoint.locator(".live-responses-table")).to_contain_text('"role"')
    expect(endpoint.locator(".request-url")).to_contain_text(f"{seen.origin}/v1/me")
