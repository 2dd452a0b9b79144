"""Every page by axe-core, light and dark: no violation of any of its rules."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from watched_page import Watch, inspect
from worked_trainings import Pool, metric

OWN_SERVICE = True


@pytest.mark.parametrize("path", ["/", "/jobs", "/new", "/trainings", "/no/such/page"])
def test_pages_with_content(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], pool: Pool, path: str
) -> None:
    if path == "/trainings":
        pool.submit(name="a small one")
    seen = watch(member, path)
    ready = {
        "/": "#jobs tbody tr",
        "/jobs": "#jobs tbody tr",
        "/new": "#estimate-launches:not(:empty)",
        "/trainings": "#trainings tbody tr",
        "/no/such/page": "h1",
    }
    seen.page.locator(ready[path]).first.wait_for()
    inspect(seen)
    if "such" in path:
        seen.forgive(404)


def test_every_field_of_a_new_search(watch: Watch, member: BrowserContext, predicted: dict[str, Any]) -> None:
    seen = watch(member, "/new")
    seen.page.locator("#estimate-launches:not(:empty)").wait_for()
    seen.page.locator("#more > summary").click()
    seen.page.locator("#narrowing-title").click()
    seen.page.get_by_label("One pass").select_option("generate")
    inspect(seen)
    seen.page.get_by_label("Begin with").select_option("model")
    inspect(seen)


def test_login(watch: Watch, visitor: BrowserContext) -> None:
    seen = watch(visitor, "/login")
    seen.page.get_by_label("API key").wait_for()
    inspect(seen)


def test_a_finished_search(watch: Watch, member: BrowserContext, predicted: dict[str, Any]) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    expect(seen.page.locator("#answer")).to_be_visible()
    seen.until("document.getElementById('chart').data?.length > 0")
    seen.page.locator("button.pick").first.click()
    expect(seen.page.locator("#chosen")).to_be_visible()
    inspect(seen)
    seen.page.locator("#train").click()
    expect(seen.page.get_by_role("dialog").get_by_label("Recipe")).to_have_value("modern")
    inspect(seen)


@pytest.mark.parametrize("kind", ["model", "supernet"])
def test_a_training_with_curves(watch: Watch, member: BrowserContext, pool: Pool, api: httpx.Client, kind: str) -> None:
    for waiting in api.get("/v1/trainings", params={"state": "queued"}).json()["items"]:
        api.delete(f"/v1/trainings/{waiting['id']}").raise_for_status()
    training = pool.submit(name="a small one") if kind == "model" else pool.supernet()
    rows = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2]]
    extra = {"phase": "tuning", "temperature": 0.5, "pattern": "sf", "seed": 1, "probabilities": rows}
    metrics = [metric(step, **({"extra": extra} if kind == "supernet" else {})) for step in (10, 20)]
    claim = pool.claim()
    pool.report(claim, step=20, metrics=metrics)
    seen = watch(member, f"/trainings/{training}")
    seen.until("document.getElementById('curves').data?.length", 3)
    if kind == "supernet":
        seen.until("document.getElementById('layer-steps').data?.length", 1)
    inspect(seen)


def test_charts_offer_nothing_that_leaves_the_page(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    seen.until("document.querySelectorAll('.modebar-group').length > 0")
    flat = buttons(seen.page)
    seen.page.get_by_role("button", name="3-D").click()
    seen.page.get_by_role("application").scroll_into_view_if_needed()
    seen.page.locator(".modebar-btn[data-title='Turntable rotation']").wait_for(state="attached")
    assert flat | buttons(seen.page) == {
        "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes",
        "Turntable rotation", "Orbital rotation", "Reset camera to default",
    }  # fmt: skip
    assert seen.page.locator(".modebar a[href]").count() == 0


def buttons(page: Page) -> set[str]:
    titles: list[str] = page.locator(".modebar-btn").evaluate_all("(all) => all.map((one) => one.dataset.title)")
    return set(titles)


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/trainings", "/trainings/TRN", "/devices", "/devices/bench-1", "/jobs/JOB"]
)
def test_on_a_phone_nothing_is_wider_than_the_screen(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], pool: Pool, path: str
) -> None:
    training = pool.submit(name="a small one")
    seen = watch(member, "/docs")
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.page.goto(path.replace("JOB", predicted["id"]).replace("TRN", training))
    seen.page.locator("#recipe-facts, table.stacks tbody tr:visible").first.wait_for()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    wider = "(all) => all.filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.ariaLabel)"
    assert seen.page.locator(".scroll:visible, .tabs").evaluate_all(wider) == []
