"""The page outlives the server: it says that the connection is lost, and goes on by itself when it is back."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser
from simulated_agent import RemoteAgent
from watched_page import WatchedPage

from edgefront.embedded.service import EmbeddedService

REQUEST = {
    "space": {"narrow": {"n_layer": [2], "d_model": {"min": 64, "max": 192, "step": 64}}},
    "targets": [{"device": "bench-r"}],
    "algorithm": {"name": "random"},
    "budget": {"candidates": 6, "refinement": 0},
}
LIVE = "document.getElementById('live').textContent"


def test_page_recovers_when_the_server_restarts(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ExitStack() as opened:
        with EmbeddedService(home, port=0, agent=False, isolated=True) as service:
            url, key, port = service.url, service.key, urlsplit(service.url).port
            api = opened.enter_context(
                httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
            )
            agent = opened.enter_context(closing(RemoteAgent(url, key, name="bench-r")))
            context = opened.enter_context(closing(browser.new_context(viewport={"width": 900, "height": 700})))
            job_id = api.post("/v1/jobs", json=REQUEST).raise_for_status().json()["id"]
            seen = WatchedPage(context.new_page(), url)
            seen.sign_in(key, f"/jobs/{job_id}")
            seen.until(LIVE, "live")
            assert agent.measure(3) == 3
            seen.until("Number(document.getElementById('progress').value) > 0")
            seen.page.evaluate("window.neverReloaded = true")
        seen.until(f"{LIVE}.includes('reconnecting')")
        with EmbeddedService(home, port=port, agent=False, isolated=True):
            seen.until(LIVE, "live")
            job = agent.finish(api, job_id)
            seen.until("document.getElementById('job-state').textContent", "finished")
            measured = job["targets"][0]["candidates"]
            seen.eventually(lambda: sum(seen.points().values()) - seen.points().get("recommended", 0), measured)
            assert seen.page.evaluate("window.neverReloaded")
            assert seen.strangers == []
