"""Makes pictures of pages: `python docs/make_screenshot.py [JOB]`, or with `--training [TRAINING]`.

Takes the newest job, or the newest training that is done, of the service that runs here (or of EDGEFRONT_URL with
EDGEFRONT_KEY) unless one is named, opens its page in Chromium, waits until everything is drawn, and takes the picture.
"""

from __future__ import annotations

import argparse
import os
import runpy
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from edgefront import Client
from edgefront.client.local import default_home, read_key

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "images"
# WebGL without a GPU.
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
DRAWN = "(document.getElementById('{}').data ?? []).reduce((sum, trace) => sum + trace.x.length, 0)"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("id", nargs="?", help="of the job or training; the newest one if absent")
    arguments.add_argument("--training", action="store_true", help="take a training's page, not a job's")
    arguments.add_argument("--output", type=Path, help=f"default: job-page.png or training-page.png in {PICTURES}")
    arguments.add_argument("--width", type=int, default=1280)
    arguments.add_argument("--height", type=int, default=1500)
    given = arguments.parse_args()
    browser = runpy.run_path(str(ROOT / "tests" / "tools.py"))["CHROMIUM"].path()
    key = os.environ.get("EDGEFRONT_KEY") or read_key(default_home())
    kind = "training" if given.training else "job"
    output = given.output or PICTURES / f"{kind}-page.png"
    with Client() as client, sync_playwright() as playwright:
        path, chart, points = _training(client, given.id) if given.training else _job(client, given.id)
        page = playwright.chromium.launch(executable_path=browser, args=list(FLAGS)).new_page(
            viewport={"width": given.width, "height": given.height}, device_scale_factor=1
        )
        page.goto(f"{client.url}/login#key={key}&next={path}")
        page.wait_for_url(lambda url: f"/{kind}s/" in url and "/login" not in url)
        _wait(page, DRAWN.format(chart), points)
        output.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=output)
    print(f"{output}: {path}, {points} points")  # noqa: T201


def _job(client: Client, job_id: str | None) -> tuple[str, str, int]:
    """Path of the page, id of its chart, and how many points that has, the mark of the recommended one among them."""
    job = client.jobs.get(job_id) if job_id else next(iter(client.jobs.list(limit=1)))
    candidates = client.candidates.list(job.id, target=job.targets[0].id)
    marked = client.jobs.recommendation(job.id).recommended is not None
    drawn = [each for each in candidates if each.role == "baseline" or each.state in ("measured", "out_of_bounds")]
    return f"/jobs/{job.id}", "chart", sum(each.latency_ms is not None for each in drawn) + marked


def _training(client: Client, training_id: str | None) -> tuple[str, str, int]:
    training = (
        client.trainings.get(training_id) if training_id else next(iter(client.trainings.list(state="done", limit=1)))
    )
    names = ("lr", "loss", "valid_loss")
    metrics = list(client.trainings.metrics(training.id))
    points = sum(getattr(metric, name) is not None for metric in metrics for name in names)
    return f"/trainings/{training.id}", "curves", points


def _wait(page: Page, drawn: str, points: int) -> None:
    end = time.monotonic() + 30
    while page.evaluate(drawn) < points:
        if time.monotonic() > end:
            raise SystemExit(f"the page draws {page.evaluate(drawn)} of {points} points")
        page.wait_for_timeout(200)
    page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
