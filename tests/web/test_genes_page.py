"""Parallel coordinates on a job's page: brushes that all views follow, and the importance of genes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Locator, expect
from simulated_agent import RemoteAgent
from watched_page import WatchedPage

Watch = Callable[..., WatchedPage]
ROWS = "document.querySelectorAll('#candidates tbody tr').length"
FADED = "document.getElementById('chart').data?.find(({uid}) => uid === 'faded')?.x.length ?? 0"


@pytest.fixture
def genes(api: httpx.Client, finished: dict[str, Any]) -> dict[str, Any]:
    return dict(api.get(f"/v1/jobs/{finished['id']}/genes").raise_for_status().json())


def column(genes: dict[str, Any], name: str) -> list[float]:
    """The values of an axis, in the order of its ids."""
    return next(gene["values"] for gene in (*genes["objectives"], *genes["genes"]) if gene["name"] == name)


def opened(watch: Watch, member: BrowserContext, job: dict[str, Any], brush: str = "") -> WatchedPage:
    seen = watch(member, f"/jobs/{job['id']}#show=all{brush}")
    seen.page.set_viewport_size({"width": 1280, "height": 900})
    expect(seen.page.locator("#genes")).to_be_visible()
    seen.page.locator("#genes").scroll_into_view_if_needed()
    expect(seen.page.get_by_role("slider", name="d_model: at least")).to_have_count(1)
    return seen


def middle(grip: Locator) -> tuple[float, float]:
    box = grip.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_brush_by_keyboard_keeps_a_range_in_every_view_and_a_link_shows_it(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], genes: dict[str, Any]
) -> None:
    seen = opened(watch, member, finished)
    widths = column(genes, "d_model")
    distinct = sorted(set(widths))
    outside = sum(width == distinct[0] for width in widths)
    within = len(widths) - outside
    least = seen.page.get_by_role("slider", name="d_model: at least")
    expect(least).to_have_attribute("aria-valuetext", "no brush")
    least.focus()
    seen.page.keyboard.press("ArrowUp")
    expect(least).to_have_attribute("aria-valuetext", f"{distinct[1]:g}")
    say = seen.page.locator("#brushes-say")
    expect(say).to_have_text(f"{within} of {len(widths)} candidates are within the brushes.")
    seen.until(FADED, outside)
    expect(seen.page.locator("#legend")).to_contain_text(f"Outside the brushes ({outside})")
    seen.until(ROWS, within)
    link = f"brush=d_model%3A{distinct[1]:g}..{distinct[-1]:g}"
    expect(seen.page).to_have_url(re.compile(re.escape(link)))
    other = opened(watch, member, finished, f"&{link}")
    other.until(FADED, outside)
    other.until(ROWS, within)
    seen.page.bring_to_front()
    least.focus()
    seen.page.keyboard.press("ArrowRight")  # the other end of the same brush
    expect(seen.page.get_by_role("slider", name="d_model: at most")).to_be_focused()
    seen.page.keyboard.press("Delete")
    seen.until(ROWS, finished["targets"][0]["candidates"])
    expect(say).not_to_be_visible()
    seen.until("location.hash", "#show=all")


def test_a_brush_by_mouse_is_drawn_moved_and_taken_away(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], genes: dict[str, Any]
) -> None:
    seen = opened(watch, member, finished)
    most, least = (seen.page.get_by_role("slider", name=f"latency: at {end}") for end in ("most", "least"))
    (x, low), (_, high) = middle(most), middle(least)  # less latency is further up
    assert high < low
    seen.page.mouse.move(x, high - 4)
    seen.page.mouse.down()
    seen.page.mouse.move(x, (low + high) / 2, steps=4)
    seen.page.mouse.up()
    expect(least).to_have_attribute("aria-valuetext", re.compile(r"^[\d.]+$"))
    limit = float(str(most.get_attribute("aria-valuenow")))
    times = column(genes, "latency")
    assert limit == pytest.approx((min(times) + max(times)) / 2, rel=0.03)
    outside = sum(time > limit for time in times)
    seen.until(FADED, outside)
    seen.page.mouse.move(*middle(most))  # its end is taken further down
    seen.page.mouse.down()
    seen.page.mouse.move(x, low - (low - high) / 4, steps=4)
    seen.page.mouse.up()
    wider = float(str(most.get_attribute("aria-valuenow")))
    assert wider > limit
    seen.until(FADED, sum(time > wider for time in times))
    seen.page.mouse.click(x, (low + high) / 2)
    seen.until(FADED, 0)
    expect(most).to_have_attribute("aria-valuetext", "no brush")


def test_a_line_that_is_clicked_is_selected_in_all_views(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], genes: dict[str, Any]
) -> None:
    seen = opened(watch, member, finished)
    times = column(genes, "latency")
    slowest = times.index(max(times))  # alone at the foot of its axis
    says = seen.page.locator("#parallel-says")

    def is_named() -> bool:
        """What is above may still grow, and push the line away from under the pointer."""
        at = middle(seen.page.get_by_role("slider", name="latency: at most"))
        seen.page.mouse.move(at[0] + 16, at[1])
        seen.page.mouse.move(at[0] + 17, at[1])
        return bool(re.match(r"Candidate \d+: ", says.text_content() or ""))

    seen.eventually(is_named, True, "the candidate of the line")
    said = str(says.text_content())
    seen.page.mouse.down()
    seen.page.mouse.up()
    number = int(re.findall(r"Candidate ([\d,]+)", said)[0].replace(",", ""))
    assert times[genes["numbers"].index(number)] >= 0.95 * times[slowest]
    expect(seen.page.locator("#chosen-title")).to_have_text(f"Candidate {number}")
    expect(seen.page.locator("#candidates tr.selected button.pick")).to_have_text(str(number))


def test_importance_is_a_table_with_the_most_decisive_gene_first(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, submit: Callable[..., dict[str, Any]], api: httpx.Client
) -> None:
    job = agent.finish(api, submit(agent.name, candidates=30, seed=12)["id"])
    view = api.get(f"/v1/jobs/{job['id']}/genes").json()
    seen = opened(watch, member, job)
    expect(seen.page.locator("#genes-note")).to_have_text(view["note"])
    most = {gene["title"]: max(each["share"] for each in gene["importance"]) for gene in view["genes"]}
    rows = seen.page.locator("#importance tbody tr")
    expect(rows.locator("th")).to_have_text(sorted(most, key=lambda title: -most[title]))
    expect(rows.first).to_contain_text(f"{100 * max(most.values()):.0f} %")
    expect(seen.page.locator("#importance thead th")).to_have_count(1 + len(view["objectives"]))


def test_each_target_has_its_own(watch: Watch, member: BrowserContext, finished: dict[str, Any]) -> None:
    seen = opened(watch, member, finished, "&brush=d_model:1..100,nothing:1..2,wrong")
    expect(seen.page.locator("#brushes")).to_be_visible()
    seen.page.get_by_role("tab").nth(1).click()
    expect(seen.page.locator("#brushes")).not_to_be_visible()
    expect(seen.page).not_to_have_url(re.compile("brush="))
    seen.until(FADED, 0)
