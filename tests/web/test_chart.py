"""The 3-D chart of a job's page: really drawn, turned by mouse and keyboard, and tied to the table."""

from __future__ import annotations

import math
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from watched_page import EYE, POINTS, Watch, WatchedPage

from edgefront.api.web.pages import own_address
from edgefront.core.measurement.statistics import standing

ROWS = "document.querySelectorAll('#candidates tbody tr').length"


def test_chart_is_really_drawn_and_turns_by_mouse_and_keyboard(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}#chart=3d")
    seen.until("document.querySelectorAll('#chart canvas').length > 0")
    _wait_for_frontier(seen, finished)
    chart = seen.page.locator("#chart")
    chart.scroll_into_view_if_needed()
    # Points in the frontier's colour, the baseline's, axes: not an empty canvas.
    seen.until(f"({COLOURS})().then((count) => count > 3)")
    start = seen.eye()
    chart.focus()
    seen.page.keyboard.press("ArrowLeft")
    seen.until(f"String({EYE}) !== '{_text(start)}'")
    by_keys = seen.eye()
    seen.page.locator("button.pick").first.click()  # a redraw keeps the view
    seen.until("document.getElementById('chart').data.at(-1).x.length", 1)
    assert seen.eye() == by_keys
    chart.scroll_into_view_if_needed()

    def turned_by_mouse() -> bool:
        _drag(seen.page, chart)
        return seen.eye() != by_keys

    # Again and again: the scene takes the mouse up with its next frame, which may be late on a busy machine.
    seen.eventually(turned_by_mouse, True)
    chart.focus()
    seen.page.keyboard.press("0")
    seen.until(EYE, start)


STANDS = """async ([path, cases]) => {
  const { isBeyond } = await import(path);
  return cases.map(([token_ms, token_half_width_ms, limit]) =>
    isBeyond({ token_ms, token_half_width_ms, memory_bytes: 1 }, { token_ms: limit }));
}"""


def test_the_chart_calls_beyond_the_limits_what_the_answers_do(watch: Watch, member: BrowserContext) -> None:
    cases = [(61.4, 28.7, 60.0), (46.5, 16.1, 40.0), (69.3, 3.3, 60.0), (24.5, 1.9, 40.0), (60.0, 0.0, 60.0)]
    seen = watch(member, "/trainings")
    beyond = seen.page.evaluate(STANDS, [own_address("js/job/flat.js"), cases])
    rule = [standing(value, math.asinh(half / value), limit) == "beyond" for value, half, limit in cases]
    assert beyond == rule == [False, False, True, False, False]


def test_the_wheel_scrolls_the_page_until_the_chart_has_the_focus(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}#chart=3d")
    _wait_for_frontier(seen, finished)
    chart = seen.page.locator("#chart")
    chart.scroll_into_view_if_needed()
    start, before = seen.eye(), seen.page.evaluate("scrollY")
    _wheel(seen.page, chart, -120)
    seen.until(f"scrollY < {before}")
    assert seen.eye() == start
    chart.focus()
    chart.scroll_into_view_if_needed()
    before = seen.page.evaluate("scrollY")

    def is_nearer() -> bool:
        _wheel(seen.page, chart, -120)
        return seen.eye() != start

    seen.eventually(is_nearer, True)
    assert seen.page.evaluate("scrollY") == before


def _wheel(page: Page, chart: Locator, by: int) -> None:
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, by)
    page.wait_for_timeout(300)


@pytest.mark.parametrize("kind", ["", "#chart=3d"])
def test_a_phone_shows_the_whole_chart(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], kind: str
) -> None:
    seen = watch(member, "/")
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.page.goto(f"/jobs/{finished['id']}{kind}")
    _wait_for_frontier(seen, finished)
    width, height, left, top, right, bottom = seen.page.evaluate(INK)
    assert 0 < left < right < width - 1  # no axis, word or point is cut off at an edge
    assert 0 < top < bottom < height - 1
    assert right - left > width / 2


def _wait_for_frontier(seen: WatchedPage, job: dict[str, Any]) -> None:
    """Waits until the chart shows the first target's frontier and the table below it is there, so nothing moves."""
    size = job["targets"][0]["frontier_size"]
    seen.until(f"{POINTS}.frontier", size)
    seen.until(ROWS, size)
    expect(seen.page.locator("#answer")).to_be_visible()


def _drag(page: Page, chart: Locator) -> None:
    """Drags from the middle of the chart to the right, as slowly as a hand."""
    box = chart.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.wait_for_timeout(200)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x + 10 * step, y + step)
        page.wait_for_timeout(50)
    page.mouse.up()
    page.wait_for_timeout(200)


def test_a_point_that_is_clicked_is_marked_in_the_table(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}#chart=3d")
    _wait_for_frontier(seen, finished)
    seen.until("Boolean(document.getElementById('chart')._fullLayout?.scene?._scene?.glplot?.cameraParams)")
    candidate, x, y = seen.hover_over(FIRST_FRONTIER_POINT)
    seen.page.mouse.click(x, y)
    row = seen.page.locator(f"#candidates tr.selected[data-id='{candidate}']")
    row.wait_for()
    expect(row.locator("button.pick")).to_have_attribute("aria-pressed", "true")
    seen.until("document.getElementById('chart').data.at(-1).customdata[0]", candidate)


# The frontier point that is farthest from the others, and where it is on the screen: by the chart's own projection.
FIRST_FRONTIER_POINT = """() => {
  const chart = document.getElementById('chart');
  const scene = chart._fullLayout.scene._scene;
  const {model, view, projection} = scene.glplot.cameraParams;
  const by = (m, v) => [0, 1, 2, 3].map((i) => m[i] * v[0] + m[i + 4] * v[1] + m[i + 8] * v[2] + m[i + 12] * v[3]);
  const box = scene.container.getBoundingClientRect();
  const points = chart.data.flatMap((trace) => trace.x.map((x, i) => {
    const data = [x, trace.y[i], trace.z[i]].map((value, axis) => value * scene.dataScale[axis]);
    const at = by(projection, by(view, by(model, [...data, 1])));
    const place = [(1 + at[0] / at[3]) * box.width / 2 + box.left, (1 - at[1] / at[3]) * box.height / 2 + box.top];
    return {frontier: trace.uid === 'frontier', id: trace.customdata[i], place};
  }));
  const apart = (a, b) => Math.hypot(a.place[0] - b.place[0], a.place[1] - b.place[1]);
  const free = (each) => Math.min(...points.filter((other) => other !== each).map((other) => apart(each, other)));
  const point = points.filter(({frontier}) => frontier).sort((a, b) => free(b) - free(a))[0];
  return [point.id, ...point.place];
}"""


def _text(eye: list[float]) -> str:
    """As JavaScript writes it."""
    return ",".join(f"{part:g}" for part in eye)


# The chart's size, and the box around what is drawn in it.
INK = """async () => {
  const node = document.getElementById('chart');
  const [width, height] = [node.clientWidth, node.clientHeight];
  const image = new Image();
  image.src = await Plotly.toImage(node, {format: 'png', width, height});
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer);
  const box = [width, height, 0, 0];
  pixels.forEach((pixel, at) => {
    if (pixel === pixels[0]) return;
    const [x, y] = [at % width, Math.floor(at / width)];
    [box[0], box[1]] = [Math.min(box[0], x), Math.min(box[1], y)];
    [box[2], box[3]] = [Math.max(box[2], x), Math.max(box[3], y)];
  });
  return [width, height, ...box];
}"""


# Different colours among the pixels of the drawn chart.
COLOURS = """async () => {
  const picture = await Plotly.toImage(document.getElementById('chart'), {format: 'png', width: 400, height: 300});
  const image = new Image();
  image.src = picture;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [400, 300];
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, 400, 300).data.buffer);
  return new Set(pixels).size;
}"""
