"""The page that starts a search: what it would take or be refused for, and the job."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import WatchedPage

Watch = Callable[..., WatchedPage]


def test_a_search_is_estimated_then_submitted(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, predicted: dict[str, Any], api: httpx.Client
) -> None:
    before = len(api.get("/v1/jobs").json()["items"])
    seen = watch(member, "/")
    seen.page.get_by_role("link", name="New search").click()
    expect(seen.page.locator("#device option")).to_have_text([agent.name, "any bench-board (1 device)"])
    expect(seen.page.locator("#runtime option")).to_have_text(["onnxruntime on cpu", "pytorch on cpu"])
    launches = seen.page.locator("#estimate-launches")
    expect(launches).to_have_text(re.compile(r"^\d+ to \d+$"))
    first = launches.text_content()
    seen.page.get_by_label("Peak memory at most (MiB)").fill("400")
    seen.page.get_by_label("Candidates at most").fill("7")
    seen.page.get_by_label("Name").fill("from the page")
    expect(launches).not_to_have_text(str(first))
    expect(seen.page.locator("#estimate-says")).to_contain_text("The time is")
    expect(seen.page.locator("#estimate-time")).not_to_have_text("")
    assert len(api.get("/v1/jobs").json()["items"]) == before  # nothing is stored
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    submit.click()
    seen.page.wait_for_url(re.compile("/jobs/job_"))
    expect(seen.page.locator("#job-name")).to_have_text("from the page")
    job = api.get(f"/v1/jobs/{seen.page.url.rpartition('/')[2]}").json()
    assert job["request"]["goal"] == "best_within_limits"
    assert job["request"]["space"]["narrow"] == {"div": [1, 2, 4], "d_embed": ["d_model", 128, 256, 512]}
    assert job["targets"][0]["limits"] == {"latency_ms": None, "memory_mb": 400}
    assert job["request"]["budget"]["candidates"] == 7
    assert len(api.get("/v1/jobs").json()["items"]) == before + 1
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()


def test_what_would_be_refused_is_said_at_its_field(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any]
) -> None:
    seen = watch(member, "/new")
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    memory = seen.page.get_by_label("Peak memory at most (MiB)")
    memory.fill("0.5")
    expect(seen.page.locator("#memory-problem")).to_contain_text("no architecture of lts-gpt2 was found")
    expect(memory).to_have_attribute("aria-invalid", "true")
    expect(submit).to_be_disabled()
    memory.fill("-3")
    expect(seen.page.locator("#memory-problem")).to_have_text("Must be a number above 0, or empty.")
    memory.fill("")
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Latency at most (ms)").fill("0.0001")
    expect(seen.page.locator("#latency-problem")).to_have_text(
        re.compile(r"^0\.0001 is below every model of lts-gpt2: .* \(allowed: at least [\d.]+ ms\)$")
    )
    seen.page.get_by_label("Latency at most (ms)").fill("")
    expect(submit).to_be_enabled()
    expect(seen.page.locator("#memory-problem")).to_have_text("")
    seen.page.get_by_label("Threads").fill("99")
    expect(seen.page.locator("#threads-problem")).not_to_have_text("")
    expect(submit).to_be_disabled()
