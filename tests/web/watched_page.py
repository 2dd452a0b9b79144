"""A page in the browser, watched for what must not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Page, expect

WAIT_MS = 60_000  # what never comes fails a test by this; what comes late on a busy machine does not
expect.set_options(timeout=WAIT_MS)

# Points in each trace of the chart, by its name in the code; empty before the first drawing.
POINTS = """Object.fromEntries((document.getElementById('chart').data ?? [])
  .filter(({mode}) => mode !== 'lines').map((trace) => [trace.uid, trace.x.length]))"""
EYE = """(() => {
  const {x, y, z} = document.getElementById('chart')._fullLayout.scene._scene.getCamera().eye;
  return [x, y, z].map((part) => Math.round(1000 * part) / 1000);
})()"""
CELLS = """(rows) => rows.filter((row) => row.checkVisibility())
  .map((row) => Array.from(row.cells, (cell) => cell.textContent))"""


class WatchedPage:
    """A page, with everything on it that should not happen."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._look_at(request.url, origin))

    def account(self) -> str:
        """What the page says of itself, for the message of a failed test."""
        page = self.page
        told = "[document.visibilityState, document.readyState, document.body.innerText.slice(0, 400)]"
        shown = _tried(lambda: page.evaluate(told))
        return f"{page.url} {shown} console: {self.complaints}"

    def sign_in(self, key: str, path: str) -> None:
        self.page.goto(f"{self.origin}/login#key={key}&next={path}")
        self.page.wait_for_url(lambda url: urlsplit(url).path == path)

    def forgive(self, status: int) -> None:
        """Lets go of what the browser itself writes to its console of a refused request, and of nothing else."""
        self.eventually(lambda: len(self.complaints) > 0, True, "a complaint")
        assert all(str(status) in text for text in self.complaints), self.complaints
        self.complaints.clear()

    def points(self) -> dict[str, int]:
        """`POINTS`, as they are now; out of bounds is also what is not beyond a limit for sure."""
        found = {str(name): int(count) for name, count in self.page.evaluate(POINTS).items()}
        if "bound" in found:
            found["outside"] += found.pop("bound")
        return found

    def cells(self, rows: str) -> list[list[str]]:
        """The text in each cell of the table rows that are in sight, as they are now: without tabs and line breaks."""
        texts: list[list[str]] = self.page.locator(rows).evaluate_all(CELLS)
        return texts

    def eye(self) -> list[float]:
        """Where the chart's camera really stands, once there is one."""
        self.until(f"{EYE}.length", 3)
        return [float(part) for part in self.page.evaluate(EYE)]

    def hover_over(self, place: str) -> tuple[str, float, float]:
        """Moves the mouse onto a point of the chart until the chart tells about it: on a busy machine the layout may
        still move, and a scene takes the mouse up with its next frame.

        `place` is JavaScript for the point's candidate, x and y; returned as they are now.
        """

        def hovered() -> bool:
            _, x, y = self.page.evaluate(place)
            self.page.mouse.move(x - 30, y - 30)
            self.page.mouse.move(x, y, steps=3)
            self.page.locator("#chart .hovertext").first.wait_for(timeout=1000)
            return True

        self.page.locator("#chart").scroll_into_view_if_needed()
        self.eventually(hovered, True, "the text beside the mouse")
        candidate, x, y = self.page.evaluate(place)
        return str(candidate), float(x), float(y)

    def _look_at(self, url: str, origin: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob") and not url.startswith(f"{origin}/"):
            self.strangers.append(url)

    def until(self, expression: str, expected: Any = True) -> None:
        """Waits until a JavaScript expression has a value. Playwright's own wait needs eval, which the page forbids."""
        self.eventually(lambda: self.page.evaluate(expression), expected, expression)

    def eventually(self, read: Callable[[], Any], expected: Any, what: str = "what was read") -> None:
        """Waits until `read` gives a value: for what Playwright's `expect` has no word for."""
        end = time.monotonic() + WAIT_MS / 1000
        while (actual := _tried(read)) != expected:
            assert time.monotonic() < end, f"{what} is {actual!r}, not {expected!r}; {self.account()}"
            self.page.wait_for_timeout(50)


def _tried(read: Callable[[], Any]) -> Any:
    """What it gives; or the browser's error, as long as there is nothing to read yet."""
    try:
        return read()
    except Error as error:
        return error


Watch = Callable[..., WatchedPage]
"""Opens a page: `watch(member, path)`."""
Submit = Callable[..., dict[str, Any]]
"""Submits a small job on a device: `submit(device, name=…)` → the job."""


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def inspect(seen: WatchedPage) -> None:
    """Fails with axe-core's report, in either scheme."""
    for scheme in SCHEMES:
        seen.page.emulate_media(color_scheme=scheme)
        seen.page.wait_for_timeout(300)  # charts are drawn again in the scheme's colours
        results = Axe().run(seen.page)
        assert results.violations_count == 0, f"{scheme}: {results.generate_report()}"
