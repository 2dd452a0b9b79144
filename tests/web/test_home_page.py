"""The home page: from the first steps to answers, devices and trainings."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch
from worked_trainings import Pool, metric, serving

from edgefront.embedded.service import EmbeddedService

STEPS = ["Add a device", "Start a search", "Download the model of the answer"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """One without any job or device."""
    with serving(tmp_path_factory.mktemp("service") / "home") as service:
        yield service


def test_from_the_first_steps_to_answers_devices_and_trainings(
    watch: Watch, member: BrowserContext, service: EmbeddedService, api: httpx.Client, submit: Submit, pool: Pool
) -> None:
    seen = watch(member, "/")
    page = seen.page
    steps = page.locator("#empty li")
    expect(steps).to_have_count(3)
    for step, words in enumerate(STEPS):
        expect(steps.nth(step)).to_contain_text(words)
    for panel in ("#jobs", "#devices-card", "#trainings-card"):
        expect(page.locator(panel)).to_be_hidden()
    agent = RemoteAgent(service.url, service.key, name="board-home")
    agent.measure(1, wait_s=0.1)
    expect(page.locator("#devices tbody tr")).to_contain_text("board-homehealthy")
    expect(steps.first).to_be_visible()
    job = submit(agent.name, name="the first", candidates=6)
    expect(page.locator("#jobs tbody tr")).to_contain_text("0 models measured of at most 9")
    expect(page.locator("#trainings-empty")).to_have_text(
        "No trainings yet: the page of an answer has the button Train…"
    )
    finished = agent.finish(api, job["id"])
    expect(page.locator("#jobs tbody tr")).to_contain_text(finished["targets"][0]["answer"])
    expect(page.locator("#jobs tbody .badge")).to_have_text("finished")
    pool.submit(name="a small one")
    expect(page.locator("#trainings tbody tr")).to_contain_text("queued")
    pool.report(pool.claim(), step=10, metrics=[metric(10, valid_loss=3.0, valid_perplexity=20.1)])
    expect(page.locator("#trainings tbody tr")).to_contain_text("training")
    expect(page.locator("#trainings td.number")).to_have_text("20.1")
    page.get_by_role("link", name="All jobs").click()
    expect(page).to_have_url(f"{service.url}/jobs")
    agent.close()


def test_a_job_that_waits_says_for_what(
    watch: Watch, member: BrowserContext, api: httpx.Client, service: EmbeddedService, submit: Submit
) -> None:
    agent = RemoteAgent(service.url, service.key, name="board-waits")
    agent.measure(1, wait_s=0.1)
    job = submit(agent.name, name="waits")
    seen = watch(member, f"/jobs/{job['id']}")
    words = "The first launches are under way: the baseline comes first."
    expect(seen.page.locator("#chart")).to_have_text(words)
    expect(seen.page.locator("#answer-sentence")).to_have_text("No answer yet.")
    expect(seen.page.locator("#table-empty")).to_have_text(
        "No candidate is on the frontier yet: it begins with the first searched model within the limits."
    )
    api.post(f"/v1/jobs/{job['id']}/pause").raise_for_status()
    expect(seen.page.locator("#chart")).to_have_text("Nothing is measured yet.")
    expect(seen.page.locator("#notice")).to_have_text("Paused. Nothing is measured until it is resumed.")
    api.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
    expect(seen.page.locator("#chart")).to_have_text("Nothing was measured.")
    expect(seen.page.locator("#answer-sentence")).to_have_text("No answer.")
    agent.close()
