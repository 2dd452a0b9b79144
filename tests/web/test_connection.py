"""The page outlives the server: it says that the connection is lost, and goes on by itself when it is back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser
from synthetic_agent import SyntheticAgent
from watched_page import WatchedPage

from edgefront.embedded.service import EmbeddedService

LIVE = "document.getElementById('live').textContent"


def test_page_recovers_when_the_server_restarts(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with EmbeddedService(home, port=0, agent=False, isolated=True) as service:
        url, key, port = service.url, service.key, urlsplit(service.url).port
        agent = SyntheticAgent(url, key, name="bench-r")
        request = {
            "space": {"narrow": {"n_layer": [2], "d_model": {"min": 64, "max": 192, "step": 64}}},
            "targets": [{"device": "bench-r"}],
            "algorithm": {"name": "random"},
            "budget": {"candidates": 6, "refinement": 0},
        }
        answer = httpx.post(f"{url}/v1/jobs", json=request, headers={"Authorization": f"Bearer {key}"})
        job_id = answer.raise_for_status().json()["id"]
        context = browser.new_context(base_url=url, viewport={"width": 900, "height": 700})
        seen = WatchedPage(context.new_page(), url)
        seen.sign_in(key, f"/jobs/{job_id}")
        seen.until(LIVE, "live")
        agent.measure(3)
        seen.until("Number(document.getElementById('progress').value) > 0")
        before = sum(seen.points().values())
        seen.page.evaluate("window.neverReloaded = true")
    seen.until(f"{LIVE}.includes('trying again')")
    with EmbeddedService(home, port=port, agent=False, isolated=True):
        seen.until(LIVE, "live", within_s=30)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as api:
            agent.finish(api, job_id)
        seen.until("document.getElementById('job-state').textContent", "finished")
        assert sum(seen.points().values()) > before
        assert seen.page.evaluate("window.neverReloaded")
        context.close()
        agent.close()
    assert seen.strangers == []
