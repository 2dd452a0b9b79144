"""The 2-D chart of a job's page, and the view that the page's address holds: who opens a link sees the same."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect
from watched_page import Watch, WatchedPage

from edgefront.core.measurement.statistics import standing
from edgefront.core.search.pareto.options import MEMORY_SPREAD
from edgefront.embedded.service import EmbeddedService

PREDICTED = "predicted perplexity, gpt2-small = 1<br>ratio, own data"
CHART = "document.getElementById('chart')"
FRONTIER = f"{CHART}.data?.find(({{uid}}) => uid === 'frontier')"
SELECTED = f"{CHART}.data?.at(-1).customdata[0]"


@pytest.fixture
def frontier(predicted: dict[str, Any], api: httpx.Client) -> list[dict[str, Any]]:
    """The candidates on the frontier, by rising latency."""
    points = api.get(f"/v1/jobs/{predicted['id']}/frontier").raise_for_status().json()["points"]
    return sorted(points, key=lambda point: point["latency_ms"])


def drawn(seen: WatchedPage, points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the chart draws of each candidate of the frontier, once it draws all of them: id → x, y, size, bars."""
    seen.until(f"{FRONTIER}?.x.length", len(points))
    expect(seen.page.locator("#answer")).to_be_visible()
    reader = (
        "({customdata, x, y, marker, error_x, error_y}) => customdata.map((id, at) => [id, {x: x[at], y: y[at], "
        "size: marker.size[at], half: error_x.array[at], up: error_y.array[at], down: error_y.arrayminus[at]}])"
    )
    return dict(seen.page.evaluate(f"({reader})({FRONTIER})"))


def test_quality_stands_against_latency_with_intervals_and_memory_as_size(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], frontier: list[dict[str, Any]]
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    drawn_points = drawn(seen, frontier)
    for point in frontier:
        drawn_point, view = drawn_points[point["id"]], point["predicted"]
        assert (drawn_point["x"], drawn_point["y"]) == (point["latency_ms"], view["perplexity"])
        spread = math.asinh((point["latency_half_width_ms"] or 0) / point["latency_ms"])
        assert drawn_point["half"] == pytest.approx(point["latency_ms"] * math.expm1(spread))
        assert drawn_point["up"] == pytest.approx(view["perplexity_high"] - view["perplexity"])
        assert drawn_point["down"] == pytest.approx(view["perplexity"] - view["perplexity_low"])
    by_memory = sorted(frontier, key=lambda point: point["memory_bytes"])
    sizes = [drawn_points[point["id"]]["size"] for point in by_memory]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    seen.until(f"{CHART}.layout.yaxis.title.text", PREDICTED)
    low, high = seen.page.evaluate(f"{CHART}._fullLayout.yaxis.range")
    assert low > high  # better is up
    expect(seen.page.locator("#legend")).to_contain_text("Peak memory")
    seen.page.get_by_label("Quality", exact=True).select_option("proxy")
    seen.until(f"{CHART}.layout.yaxis.title.text", "quality_law")
    expect(seen.page).to_have_url(re.compile("#quality=proxy$"))


def test_limits_are_drawn(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], frontier: list[dict[str, Any]]
) -> None:
    memory = sorted(point["memory_bytes"] / 1e6 for point in frontier)
    limit = f"{memory[len(memory) // 2]:.4f}"
    seen = watch(member, f"/jobs/{predicted['id']}?max_latency_ms=7.5&max_memory_mb={limit}")
    drawn(seen, frontier)
    seen.until(f"{CHART}.layout.shapes.map(({{x0, x1}}) => [x0, x1]).join()", "7.5,7.5")
    assert seen.page.evaluate(f"{CHART}.layout.annotations[0].text") == "at most 7.50 ms"
    hollow = f"{FRONTIER}.marker.symbol.filter((symbol) => symbol.endsWith('-open')).length"
    large = float(limit) * math.exp(MEMORY_SPREAD)
    seen.until(hollow, sum(value > large for value in memory))
    expect(seen.page.locator("#legend")).to_contain_text("Above the memory limit")
    beyond = [
        standing(ms := point["latency_ms"], math.asinh(point["latency_half_width_ms"] / ms), 7.5) == "beyond"
        or point["memory_bytes"] / 1e6 > large
        for point in frontier
    ]
    faint = f"{FRONTIER}.marker.opacity.filter((opacity) => opacity < 0.5).length"
    assert any(beyond)
    seen.until(faint, sum(beyond))
    expect(seen.page.locator("#legend")).to_contain_text("Faint: outside the limits")
    seen.page.locator("#limits-reset").click()
    seen.until(f"{CHART}.layout.shapes.length", 0)
    seen.until(faint, 0)


def test_selecting_in_one_view_selects_in_all(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], frontier: list[dict[str, Any]]
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    seen.page.set_viewport_size({"width": 1440, "height": 900})
    drawn(seen, frontier)
    seen.page.locator("#chart").focus()
    seen.page.keyboard.press("ArrowRight")  # the quickest
    seen.until(SELECTED, frontier[0]["id"])
    seen.page.keyboard.press("ArrowRight")
    seen.until(SELECTED, frontier[1]["id"])
    expect(seen.page.locator(f"#candidates tr.selected[data-id='{frontier[1]['id']}']")).to_be_visible()
    expect(seen.page.locator("#chosen-title")).to_have_text(f"Candidate {frontier[1]['number']}")
    expect(seen.page).to_have_url(re.compile(f"#candidate={frontier[1]['id']}$"))
    other = seen.page.locator("#answer-table tbody tr").last
    other.locator("button.pick").click()
    picked = str(other.get_attribute("data-id"))
    expect(other).to_have_class("selected")
    seen.until(SELECTED, picked)
    # The point of the frontier that lies farthest from all others is clicked in the chart.
    candidate, x, y = seen.hover_over(LONELY)
    seen.page.mouse.click(x, y)
    seen.until(SELECTED, candidate)
    expect(seen.page.locator("#candidates tr.selected")).to_have_attribute("data-id", candidate)


LONELY = """() => {
  const chart = document.getElementById('chart');
  const {xaxis, yaxis} = chart._fullLayout;
  const box = chart.getBoundingClientRect();
  const place = (x, y) => [box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(y)];
  const all = chart.data.filter(({uid}) => uid !== 'selected' && uid !== 'recommended')
    .flatMap(({uid, customdata, x, y}) => customdata.map((id, at) => ({uid, id, place: place(x[at], y[at])})));
  const away = (a) => Math.min(...all.filter((b) => b.id !== a.id)
    .map((b) => Math.hypot(a.place[0] - b.place[0], a.place[1] - b.place[1])));
  const [best] = all.filter(({uid}) => uid === 'frontier').sort((a, b) => away(b) - away(a));
  return [best.id, ...best.place];
}"""


def test_a_link_shows_somebody_else_the_same_view(
    watch: Watch,
    visitor: BrowserContext,
    service: EmbeddedService,
    finished: dict[str, Any],
    api: httpx.Client,
) -> None:
    target = finished["targets"][1]["id"]
    page = api.get(f"/v1/jobs/{finished['id']}/candidates", params={"target": target, "limit": 500}).json()
    outside = next(item for item in page["items"] if (item["role"], item["state"]) == ("search", "out_of_bounds"))
    seen = watch(visitor, f"/jobs/{finished['id']}")
    seen.page.get_by_label("API key").fill(service.key)
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("tab").nth(1).click()
    seen.page.get_by_role("button", name="3-D").click()
    seen.page.get_by_label("Quality", exact=True).select_option("proxy")
    seen.page.get_by_role("button", name="Latency").click()
    seen.page.get_by_role("button", name="Latency").click()
    seen.page.locator("#filter").select_option("outside")
    seen.page.locator(f"#candidates tr[data-id='{outside['id']}'] button.pick").click()
    seen.page.get_by_role("spinbutton", name="Latency at most").fill("8")
    seen.until("location.search", "?max_latency_ms=8")
    link = seen.page.url

    def is_the_same(other: WatchedPage) -> None:
        seen_hash = "#" + link.partition("#")[2]
        other.until(SELECTED, outside["id"])
        other.until(f"{CHART}.layout.scene.zaxis.title.text", "quality_law")
        expect(other.page.locator(f"#tab-{target}")).to_have_attribute("aria-selected", "true")
        expect(other.page.get_by_role("button", name="3-D")).to_have_attribute("aria-pressed", "true")
        expect(other.page.locator("th[aria-sort=descending]")).to_have_text(re.compile("^Latency"))
        expect(other.page.locator("#filter")).to_have_value("outside")
        expect(other.page.locator("#latency-limit")).to_have_value("8")
        other.until("location.hash", seen_hash)

    is_the_same(seen)
    seen.page.close()  # each page that is open draws a scene without a GPU
    path = link.removeprefix(service.url)
    is_the_same(watch(visitor, path))
    for opened in visitor.pages:
        opened.close()  # without a cookie they would ask in vain
    visitor.clear_cookies()  # a colleague signs in first
    other = watch(visitor, path)
    expect(other.page).to_have_url(re.compile(f"/login\\?next={quote('/jobs/', safe='')}"))
    other.page.get_by_label("API key").fill(service.key)
    other.page.keyboard.press("Enter")
    is_the_same(other)
    other.page.evaluate(f"location.hash = '#candidate={page['items'][0]['id']}&target={target}'")
    other.until(SELECTED, page["items"][0]["id"])
    expect(other.page.get_by_role("button", name="2-D")).to_have_attribute("aria-pressed", "true")


def test_a_link_to_what_is_gone_shows_the_rest(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], frontier: list[dict[str, Any]]
) -> None:
    nothing = "target=no&chart=no&quality=no&sort=no&show=no&candidate=no"
    seen = watch(member, f"/jobs/{predicted['id']}#{nothing}")
    drawn(seen, frontier)
    seen.until(f"{CHART}.layout.yaxis.title.text", PREDICTED)
    expect(seen.page.locator("#filter")).to_have_value("frontier")
