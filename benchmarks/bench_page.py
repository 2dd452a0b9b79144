"""The job's page with many candidates: the real service, a real Chromium that draws in software.

For each size a job is written into a database that is made for it (`tests/large_job.py`), the API is started, and a
browser with an empty cache opens the job's page:

- seconds from the click to the first rows of the table and to the drawn chart, requests and bytes until the page rests,
  megabytes of heap of JavaScript after a collection;
- frames a second while a mouse turns the 3-D chart, drags a zoom box in the 2-D chart, and drags a brush of the
  parallel coordinates: those that the browser really drew, each while the mouse moves on every frame.

    python benchmarks/bench_page.py [--sizes 50000 100000] [--server postgresql://postgres@127.0.0.1:5432/postgres]
        [--seconds 4] [--keep pictures/] [--filled sqlite:///... ...]

`--filled` names databases that hold such a job already (the latest one is opened), instead of making any. Without
`--server` the database is SQLite, as `edgefront up` has it. `--keep` keeps a picture of each step in a folder. Filling
takes about a minute for 50,000 candidates, the page about 40 s for each size.
"""

from __future__ import annotations

import argparse
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fleet_database import temporary_database
from from_tests import from_tests
from playwright.sync_api import Browser, Page, sync_playwright
from record import append, table
from sqlalchemy import func, select

from edgefront.core.services.access.keys import create_key
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Job

fill = from_tests("large_job").fill
ROOT = Path(__file__).resolve().parents[1]
VIEWPORT = {"width": 1440, "height": 900}
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--enable-precise-memory-info")
GOAL_S, GOAL_HEAP_MB, GOAL_FRAMES = 2.0, 150.0, 20.0

# Marks when first rows and chart are there, from inside the page: nothing is asked of it meanwhile.
WATCH = """
const seen = window.seen = {};
const look = () => {
  if (!seen.rows && document.querySelector('#candidates tbody tr')) seen.rows = performance.now();
  const chart = document.getElementById('chart');
  if (!seen.chart && chart?.querySelectorAll('.scatterlayer .point').length > 100) seen.chart = performance.now();
  if (!seen.rows || !seen.chart) requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
# Frames that were drawn in so many milliseconds, while the mouse moves.
FRAMES = """(ms) => new Promise((done) => {
  const began = performance.now();
  let frames = 0;
  const next = () => {
    frames += 1;
    const passed = performance.now() - began;
    if (passed < ms) requestAnimationFrame(next);
    else done(1000 * frames / passed);
  };
  requestAnimationFrame(next);
})"""


@contextmanager
def api(url: str) -> Iterator[str]:
    """The API in a process of its own; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "EDGEFRONT_DATABASE__URL": url,
            "EDGEFRONT_BROKER__URL": "memory://localhost/",
            "EDGEFRONT_HTTP__PORT": str(port),
            "EDGEFRONT_HOME": home,
        }
        command = [sys.executable, "-m", "edgefront.api"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address, process)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the API has ended"
        try:
            with urllib.request.urlopen(f"{address}/login"):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the API does not answer")


def measure(browser: Browser, address: str, key: str, job_id: str, seconds: float, keep: Path | None) -> dict[str, Any]:
    """Figures of one visit."""
    context = browser.new_context(base_url=address, viewport=VIEWPORT)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(240_000)
    page.goto(f"/login#key={key}&next=/trainings")
    page.wait_for_url(lambda url: "/login" not in url)
    page.close()
    page = context.new_page()
    page.set_default_timeout(240_000)
    page.add_init_script(WATCH)
    protocol = context.new_cdp_session(page)
    protocol.send("Network.enable")
    received = {"requests": 0, "bytes": 0}
    protocol.on("Network.loadingFinished", lambda event: _count(received, event))
    page.goto(f"/jobs/{job_id}")
    page.wait_for_selector("#answer-sentence:visible")
    page.wait_for_timeout(3000)
    seen = page.evaluate("window.seen")
    loaded = dict(received)
    protocol.send("HeapProfiler.collectGarbage")
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    picture(page, keep, "2d")
    bottom = page.locator("#chart").bounding_box()
    assert bottom is not None
    zoom_box = dragged(page, "#chart", seconds)  # ends where it began, so nothing is zoomed
    page.locator("#genes").scroll_into_view_if_needed()
    page.wait_for_selector("#parallel svg, #parallel canvas")
    page.wait_for_timeout(1500)
    parallel = dragged(page, "#parallel", seconds, vertical=True)
    picture(page, keep, "parallel")
    page.locator("#chart-kinds [data-kind=solid]").click()
    page.wait_for_selector("#chart canvas")
    page.wait_for_timeout(3000)
    page.locator("#chart").scroll_into_view_if_needed()
    turned = dragged(page, "#chart", seconds)
    picture(page, keep, "3d")
    context.close()
    return {
        "first rows s": seen["rows"] / 1000,
        "chart s": seen["chart"] / 1000,
        "requests": loaded["requests"],
        "MB received": loaded["bytes"] / 1e6,
        "heap MB": heap,
        "turning 3-D, frames/s": turned,
        "zoom box, frames/s": zoom_box,
        "brush of an axis, frames/s": parallel,
        "chart ends at px": bottom["y"] + bottom["height"],
    }


def _count(received: dict[str, int], event: dict[str, Any]) -> None:
    received["requests"] += 1
    received["bytes"] += int(event["encodedDataLength"])


def dragged(page: Page, selector: str, seconds: float, *, vertical: bool = False) -> float:
    """Frames a second while the mouse, pressed in the middle of an element, moves to and fro on it."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    if vertical:
        axis = page.locator(f"{selector} [role=slider]").first.bounding_box()
        x = x if axis is None else axis["x"] + axis["width"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(f"window.frames_ = ({FRAMES})({1000 * seconds}); 0")
    end, step = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        step += 1
        away = 60 * ((step % 40) / 20 - 1)
        page.mouse.move(x + (0 if vertical else away), y + (away if vertical else away / 3))
        time.sleep(0.01)
    frames = float(page.evaluate("window.frames_"))
    page.mouse.move(x, y)
    page.mouse.up()
    return frames


def picture(page: Page, folder: Path | None, name: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")


@contextmanager
def filled(size: int, server: str | None) -> Iterator[str]:
    """A database with a job of so many candidates; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"sqlite:///{folder}/edgefront.db"
        with temporary_database(server) if server else nullcontext(file) as url:
            database = Database(url)
            database.migrate()
            fill(database, size, "bench")
            database.dispose()
            yield url


def visit(browser: Browser, url: str, seconds: float, keep: Path | None) -> dict[str, Any]:
    """Figures of the latest job of a database."""
    database = Database(url)
    now = datetime.now(timezone.utc)
    with database.write() as session:
        _, key = create_key(session, name=f"bench {now.isoformat()}", owner="bench", role="admin", now=now)
        job_id = str(session.scalar(select(Job.id).order_by(Job.created_at.desc()).limit(1)))
        size = session.scalar(select(func.count()).where(Candidate.job_id == job_id))
    kind = "SQLite" if database.sqlite else "Postgres"
    database.dispose()
    with api(url) as address:
        found = measure(browser, address, key, job_id, seconds, keep)
    return {"candidates": size, "database": kind, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50_000, 100_000])
    parser.add_argument("--server")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--filled", nargs="+")
    asked = parser.parse_args()
    executable = runpy.run_path(str(ROOT / "tests" / "tools.py"))["CHROMIUM"].path()
    rows = []
    with sync_playwright() as playwright, ExitStack() as stack:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        for url in asked.filled or (stack.enter_context(filled(size, asked.server)) for size in asked.sizes):
            rows.append(visit(browser, url, asked.seconds, asked.keep))
            print(rows[-1], flush=True)
        browser.close()
    table(f"Goals: {GOAL_S:g} s, {GOAL_HEAP_MB:g} MB of heap, {GOAL_FRAMES:g} frames a second at 50,000", rows)
    append("page", {"rows": rows})


if __name__ == "__main__":
    main()
