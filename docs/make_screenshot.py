"""Makes docs/images/job-page.png from a real job: `python docs/make_screenshot.py [JOB]`.

Takes the newest job of the service that runs here (or of EDGEFRONT_URL with EDGEFRONT_KEY) unless one is named, opens
its page in Chromium, waits until every measured candidate is drawn, and takes the picture.
"""

from __future__ import annotations

import argparse
import os
import runpy
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from edgefront import Client
from edgefront.local import default_home, read_key

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "job-page.png"
# WebGL without a GPU.
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
DRAWN = "(document.getElementById('chart').data ?? []).reduce((sum, trace) => sum + trace.x.length, 0)"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("job", nargs="?", help="id of the job; the newest one if absent")
    arguments.add_argument("--output", type=Path, default=PICTURE)
    arguments.add_argument("--width", type=int, default=1280)
    arguments.add_argument("--height", type=int, default=1500)
    given = arguments.parse_args()
    browser = runpy.run_path(str(ROOT / "scripts" / "find_browser.py"))["find_browser"]()
    key = os.environ.get("EDGEFRONT_KEY") or read_key(default_home())
    with Client() as client, sync_playwright() as playwright:
        job = client.jobs.get(given.job) if given.job else next(iter(client.jobs.list(limit=1)))
        first = job.targets[0].id
        points = sum(1 for each in client.candidates.list(job.id, target=first) if each.latency_ms is not None)
        page = playwright.chromium.launch(executable_path=browser, args=list(FLAGS)).new_page(
            viewport={"width": given.width, "height": given.height}, device_scale_factor=1
        )
        page.goto(f"{client.url}/login#key={key}&next=/jobs/{job.id}")
        page.wait_for_url(lambda url: "/jobs/" in url and "/login" not in url)
        _wait(page, points)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=given.output)
    print(f"{given.output}: {job.name}, {points} points")  # noqa: T201


def _wait(page: Page, points: int) -> None:
    end = time.monotonic() + 30
    while page.evaluate(DRAWN) < points:
        if time.monotonic() > end:
            raise SystemExit(f"the page draws {page.evaluate(DRAWN)} of {points} points")
        page.wait_for_timeout(200)
    page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
