"""What was asked for another selection is not shown under the one of now, and what a page keeps is bounded."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import BrowserContext, Page, Route, expect
from watched_page import Watch, WatchedPage

from edgefront.api.web.pages import own_address

ROWS = "#candidates tbody tr"


class Held:
    """Requests whose address has all of `parts`: none is answered before `release`."""

    def __init__(self, page: Page, *parts: str) -> None:
        self.page, self.parts = page, parts
        self.waiting: list[Route] = []
        self.released = False
        page.route(self.matches, self.hold)

    def matches(self, url: str) -> bool:
        return all(part in url for part in self.parts)

    def hold(self, route: Route) -> None:
        if self.released:
            route.continue_()
        else:
            self.waiting.append(route)

    def release(self) -> None:
        """Answers them, and waits until the answers are there."""
        self.released = True
        for route in self.waiting:
            with self.page.expect_response(lambda response: self.matches(response.url)):
                route.continue_()
        self.page.wait_for_timeout(200)  # for what the page does with them


def ids(seen: WatchedPage) -> list[str]:
    row_ids: list[str] = seen.page.locator(ROWS).evaluate_all("(rows) => rows.map((row) => row.dataset.id)")
    return row_ids


def test_rows_and_recommendation_are_those_of_the_target_that_is_shown(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    free, bounded = (target["id"] for target in finished["targets"])
    seen = watch(member, f"/jobs/{finished['id']}")
    page = seen.page
    tab = page.locator("#tabs button")
    expect(page.locator("#answer-sentence")).not_to_be_empty()
    of_free = ids(seen)
    held = Held(page, "/candidates?", bounded)
    tab.nth(1).click()
    expect(page.locator("#candidates")).to_have_attribute("aria-busy", "true")
    assert ids(seen) == []
    expect(page.locator("#table-empty")).to_be_hidden()
    held.release()
    expect(page.locator("#candidates")).not_to_have_attribute("aria-busy", "true")
    of_bounded = ids(seen)
    assert of_bounded
    assert not set(of_bounded) & set(of_free)
    held = Held(page, "/candidates?", free)
    tab.nth(0).click()
    tab.nth(1).click()
    seen.eventually(lambda: ids(seen), of_bounded)
    held.release()
    assert ids(seen) == of_bounded
    first, second = Held(page, "/recommendation?", free), Held(page, "/recommendation?", bounded)
    tab.nth(0).click()
    seen.eventually(lambda: len(first.waiting) > 0, True)
    tab.nth(1).click()
    expect(page.locator("#answer")).to_be_hidden()
    first.release()
    expect(page.locator("#answer")).to_be_hidden()
    second.release()
    expect(page.locator("#answer-sentence")).not_to_be_empty()


def test_a_comparison_is_that_of_the_last_choice(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    first, second = (target["id"] for target in finished["targets"])
    seen = watch(member, f"/compare?target={first}&target={second}")
    page = seen.page
    rows = page.locator("#targets tbody tr")
    expect(rows).to_have_count(2)
    held = Held(page, "/v1/comparison?")
    page.get_by_role("button", name="Remove").nth(0).click()
    seen.eventually(lambda: len(held.waiting), 1)
    page.locator("#targets").evaluate("(table) => table.tBodies[0].rows[1].querySelectorAll('button')[1].click()")
    expect(page.locator("#nothing")).to_be_visible()
    held.release()
    expect(page.locator("#nothing")).to_be_visible()
    expect(page).to_have_url(f"{seen.origin}/compare")


PUT_MANY = """async (address) => {
  const { Candidates } = await import(address);
  const known = new Candidates();
  const kept = () => Object.values(known).reduce((sum, held) => sum + (held?.size ?? held?.length ?? 0), 0);
  known.turn("shown");
  for (let number = 0; number < 20000; number += 1) {
    known.put({
      id: `cnd_${number}`, number, target_id: number % 2 ? "shown" : "other", latency_ms: 1, memory_bytes: 1,
      ...(number % 3 ? {} : { architecture: { d_model: 8, blocks: [] } }),
    });
  }
  const found = [known.all.every((each) => each.target_id === "shown"), known.isCrowded, known.all.length, kept()];
  known.turn("other");
  return [...found, known.all.length];
}"""


def test_the_candidates_that_a_page_keeps_are_bounded_and_of_one_target(watch: Watch, member: BrowserContext) -> None:
    seen = watch(member, "/trainings")
    pure, crowded, points, kept, after_turning = seen.page.evaluate(PUT_MANY, own_address("js/job/candidates.js"))
    assert (pure, crowded, points, after_turning) == (True, True, 6000, 0)
    assert kept < 14_000  # the points, the list of them, 1000 records


def test_the_log_of_a_job_keeps_its_last_events(watch: Watch, member: BrowserContext, finished: dict[str, Any]) -> None:
    def event(number: int) -> str:
        data = {"number": number, "kind": "job_state", "created_at": "2026-01-01T00:00:00Z", "target_id": None}
        return f"event: job_state\ndata: {json.dumps({**data, 'data': {'state': 'finished'}})}\n\n"

    seen = watch(member, "/")
    stream = "".join(event(number) for number in range(finished["last_event"] + 1, finished["last_event"] + 7001))
    body = {"body": stream}

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream", **body)
        body["body"] = ": nothing more\n\n"

    seen.page.route("**/events?*", answer)
    seen.page.goto(f"/jobs/{finished['id']}/log")
    seen.until("document.querySelectorAll('#log .line').length > 4000")
    assert seen.page.locator("#log .line").count() <= 5000
    expect(seen.page.locator("#range")).to_contain_text(f"{finished['last_event'] + 7000:,}")
    expect(seen.page.get_by_role("button", name="Show earlier ones")).to_be_visible()
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url))
    seen.page.get_by_role("button", name="Show earlier ones").click()
    seen.eventually(lambda: any("/events?after=" in url for url in asked), True)
