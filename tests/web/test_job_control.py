"""Pausing, resuming, cancelling; and what the page says when something is not as it should be."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch

from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

STATE = "document.getElementById('job-state').textContent"
LIVE = "document.getElementById('live').textContent"


def test_pause_resume_and_cancel(
    watch: Watch, member: BrowserContext, submit: Submit, api: httpx.Client, agent: RemoteAgent
) -> None:
    job = submit(agent.name, seed=31)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(LIVE, "live")
    seen.page.get_by_role("button", name="Pause").click()
    seen.until(STATE, "paused")
    assert api.get(f"/v1/jobs/{job['id']}").json()["state"] == "paused"
    expect(seen.page.locator("#notice")).to_contain_text("Paused")
    seen.page.get_by_role("button", name="Resume").click()
    seen.until(STATE, "running")
    seen.page.get_by_role("button", name="Cancel…").click()
    seen.page.keyboard.press("Escape")  # thought better of it
    expect(seen.page.locator("#confirm")).not_to_be_visible()
    assert api.get(f"/v1/jobs/{job['id']}").json()["state"] == "running"
    seen.page.get_by_role("button", name="Cancel…").click()
    seen.page.get_by_role("button", name="Cancel the job").click()
    seen.until(STATE, "cancelled")
    assert api.get(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    for name in ("Pause", "Resume", "Cancel…"):
        expect(seen.page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_without_an_agent_the_page_says_that_the_job_waits(
    watch: Watch, member: BrowserContext, submit: Submit, service: EmbeddedService
) -> None:
    away = RemoteAgent(service.url, service.key, name="bench-away", device_class="away-board")
    away.close()
    with closing(sqlite3.connect(service.home / "edgefront.db", timeout=60)) as rows, rows:
        rows.execute("UPDATE device SET last_seen_at = '2020-01-01 00:00:00.000000' WHERE id = ?", (away.device_id,))
    job = submit("bench-away", seed=33)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until("document.getElementById('devices-online').textContent", "0")
    expect(seen.page.locator("#target-note")).to_be_visible()
    expect(seen.page.locator("#target-note")).to_contain_class("warn")
    seen.page.get_by_text("No candidate").wait_for()
    seen.page.get_by_role("button", name="Cancel…").click()
    seen.page.get_by_role("button", name="Cancel the job").click()
    seen.until(STATE, "cancelled")


def test_a_job_that_is_not_there(watch: Watch, member: BrowserContext) -> None:
    seen = watch(member, "/jobs/job_nothing")
    seen.page.get_by_text("This job does not exist").wait_for()
    seen.forgive(404)


def test_a_copy_of_a_job_takes_over_what_the_form_does_not_show(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.page.get_by_role("link", name="Duplicate…").click()
    expect(seen.page.locator("#origin")).to_contain_text("so is the other target")
    expect(seen.page.get_by_label("Name")).to_have_value("copy of two targets")
    expect(seen.page.get_by_label("Candidates at most")).to_have_value("20")
    seen.page.get_by_label("Candidates at most").fill("3")
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    submit.click()
    seen.page.wait_for_url(re.compile("/jobs/job_"))
    copy = api.get(f"/v1/jobs/{seen.page.url.rpartition('/')[2]}").json()
    assert copy["id"] != finished["id"]
    expected = {**finished["request"], "name": "copy of two targets"}
    expected["budget"] = {**expected["budget"], "candidates": 3}
    assert copy["request"] == expected
    seen.page.goto("/new?from=job_nothing")
    expect(seen.page.locator("#notice")).to_contain_text("The job to begin from does not exist")
    expect(submit).to_be_enabled()
    seen.forgive(404)


def test_a_job_is_deleted_once_that_is_confirmed(
    watch: Watch, member: BrowserContext, submit: Submit, api: httpx.Client, agent: RemoteAgent
) -> None:
    job = submit(agent.name, candidates=4, seed=36)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.page.get_by_role("button", name="Delete…").click()
    seen.page.get_by_role("button", name="Keep it").click()
    assert api.get(f"/v1/jobs/{job['id']}").status_code == 200
    seen.page.get_by_role("button", name="Delete…").click()
    seen.page.get_by_role("button", name="Delete the job").click()
    seen.page.wait_for_url(f"{seen.origin}/jobs")
    assert api.get(f"/v1/jobs/{job['id']}").status_code == 404
