"""A job of thousands of candidates: the service sorts, filters and pages the table, and thins the chart's points."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from large_job import fill
from playwright.sync_api import BrowserContext, expect
from watched_page import Watch

from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService

MANY = 4000
CHART = "document.getElementById('chart')"
ROWS = "#candidates tbody tr"
DRAWN = f"{CHART}.data.find(({{uid}}) => uid === 'dominated').x"
IDS = f"Array.from(document.querySelectorAll('{ROWS}'), (row) => row.dataset.id)"


@pytest.fixture(scope="module")
def large(service: EmbeddedService) -> str:
    """The job's id."""
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.key}"}) as client:
        owner = client.get("/v1/me").raise_for_status().json()["owner"]
    database = Database(f"sqlite:///{service.home / 'edgefront.db'}")
    try:
        return fill(database, MANY, owner, models=40)
    finally:
        database.dispose()


def ids(api: httpx.Client, job: str, **query: Any) -> list[str]:
    page = api.get(f"/v1/jobs/{job}/candidates", params={"limit": 50, **query}).raise_for_status().json()
    return [item["id"] for item in page["items"]]


def test_the_table_sorts_filters_and_pages_by_the_service(
    watch: Watch, member: BrowserContext, large: str, api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{large}")
    seen.until(IDS, ids(api, large, group="frontier", sort="decoder_parameters"))
    seen.page.locator("#filter").select_option("dominated")
    seen.until(IDS, ids(api, large, group="dominated", sort="decoder_parameters"))
    for _ in range(2):
        seen.page.get_by_role("columnheader", name="Speed-up").get_by_role("button").click()
    seen.until(IDS, ids(api, large, group="dominated", sort="-speedup"))
    seen.page.get_by_role("button", name="Next").click()
    seen.until(IDS, ids(api, large, group="dominated", sort="-speedup", offset=50))
    expect(seen.page.locator("#page-label")).to_have_text(re.compile("^Page 2 of "))
    seen.page.get_by_label("Find").fill("#1234")
    seen.until(f"document.querySelectorAll('{ROWS}').length", 1)
    (candidate_id,) = ids(api, large, text="#1234", group="dominated")
    expect(seen.page.locator(ROWS)).to_have_attribute("data-id", candidate_id)
    expect(seen.page).to_have_url(re.compile("sort=-speedup&show=dominated&find=%231234$"))
    seen.page.get_by_label("Find").fill("no such candidate")
    expect(seen.page.locator("#table-empty")).to_have_text("No candidate matches.")


def test_a_link_to_a_candidate_turns_to_its_page(
    watch: Watch, member: BrowserContext, large: str, api: httpx.Client
) -> None:
    candidate_id = ids(api, large, group="dominated", sort="-latency_ms", offset=1000)[7]
    seen = watch(member, f"/jobs/{large}#sort=-latency&candidate={candidate_id}")
    row = seen.page.locator(f"#candidates tr.selected[data-id='{candidate_id}']")
    expect(row).to_be_visible()
    expect(seen.page.locator("#filter")).to_have_value("all")
    seen.until(f"{CHART}.data.at(-1).customdata[0]", candidate_id)
    number = api.get(f"/v1/candidates/{candidate_id}").json()["number"]
    expect(seen.page.locator("#chosen-title")).to_have_text(f"Candidate {number:,}")


def test_points_are_thinned_and_a_zoom_shows_all_there(
    watch: Watch, member: BrowserContext, large: str, api: httpx.Client
) -> None:
    requests: list[str] = []
    seen = watch(member, "/")
    seen.page.on("request", lambda request: requests.append(request.url.partition("/v1/")[2]))
    seen.page.goto(f"/jobs/{large}")
    seen.until(f"{DRAWN}.length > 500")
    expect(seen.page.locator("#legend")).to_contain_text(re.compile(r"Dominated \(3.\d\d\d, \d\d\d drawn\)"))
    assert seen.page.evaluate(f"{DRAWN}.length") < 1500
    dominated = api.get(
        f"/v1/jobs/{large}/candidates", params={"group": "dominated", "sort": "latency_ms", "limit": 500}
    ).json()["items"]
    quick, slow = dominated[50]["latency_ms"], dominated[450]["latency_ms"]
    assert seen.page.evaluate(f"{CHART}._fullLayout.xaxis.type") == "log"  # from 2 to 200 ms
    seen.page.evaluate(f"Plotly.relayout({CHART}, {{'xaxis.range': [Math.log10({quick}), Math.log10({slow})]}})")
    seen.until(f"{DRAWN}.filter((x) => x >= {quick} && x <= {slow}).length", 401)
    before = seen.page.evaluate(f"{DRAWN}.length")
    seen.page.evaluate(f"Plotly.relayout({CHART}, {{'xaxis.autorange': true, 'yaxis.autorange': 'reversed'}})")
    seen.until(f"{DRAWN}.length < {before}")
    asked = [path for path in requests if path.startswith(f"jobs/{large}/candidates")]
    assert len(asked) < 4  # one page of the table, and no other candidates


def test_a_chart_that_is_turned_in_software_draws_less_until_it_stands_still(
    watch: Watch, member: BrowserContext, large: str
) -> None:
    seen = watch(member, f"/jobs/{large}#chart=3d")
    canvas = "document.querySelector('#chart canvas')"
    plot = f"{CHART}._fullLayout.scene._scene.traces.dominated.scatterPlot"
    seen.until(f"{CHART}._fullLayout?.scene?._scene?.traces.dominated?.scatterPlot.pointCount > 500")
    expect(seen.page.locator("#answer-sentence")).not_to_be_empty()  # nothing above moves from here on
    seen.page.evaluate(f"window.drawn = 0; {plot}.vao.draw = (_, count) => (window.drawn = count); 0")
    seen.page.locator("#chart").scroll_into_view_if_needed()
    box = seen.page.locator("#chart").bounding_box()
    assert box is not None
    full, vertices = seen.page.evaluate(f"[{canvas}.width, {plot}.vertexCount]")
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] / 2 + 40, box["y"] + box["height"] / 2, steps=3)
    seen.until(f"Math.abs({canvas}.width - {full / 2}) <= 1")
    seen.until(f"window.drawn > 0 && window.drawn < {vertices / 2}")
    seen.page.mouse.up()
    seen.until(f"{canvas}.width", full)
    seen.until("window.drawn", vertices)


def test_of_many_points_those_near_the_pointer_show_their_intervals(
    watch: Watch, member: BrowserContext, large: str, finished: dict[str, Any]
) -> None:
    bars = "document.querySelectorAll('.near-bars line').length"
    seen = watch(member, f"/jobs/{large}")
    seen.until(f"{DRAWN}.length > 500")
    expect(seen.page.locator("#answer-sentence")).not_to_be_empty()
    assert not seen.page.evaluate(f"{CHART}.data.some((trace) => trace.error_x)")
    assert seen.page.evaluate(bars) == 0
    place = f"""(() => {{
      const {{xaxis, yaxis}} = {CHART}._fullLayout;
      const box = {CHART}.getBoundingClientRect();
      const trace = {CHART}.data.find(({{uid}}) => uid === 'frontier');
      const at = trace.x.findIndex((x, place) => trace.marker.opacity[place] > 0.5);
      const [x, y] = [xaxis._offset + xaxis.d2p(trace.x[at]), yaxis._offset + yaxis.d2p(trace.y[at])];
      return [trace.customdata[at], box.x + x, box.y + y];
    }})()"""
    seen.hover_over(place)
    seen.until(f"{bars} >= 2")
    assert seen.page.evaluate(bars) < 2 * seen.page.evaluate(
        f"{CHART}.data.find(({{uid}}) => uid === 'frontier').x.length"
    )
    seen.page.mouse.move(5, 5)
    seen.until(bars, 0)
    few = watch(member, f"/jobs/{finished['id']}")
    few.until(f"{CHART}.data?.find(({{uid}}) => uid === 'frontier').error_x.array.length > 0")
    assert few.page.evaluate("document.querySelector('.near-bars')") is None
