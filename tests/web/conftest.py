"""A real service with a real database, a real Chromium, and a synthetic agent that measures when told to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ViewportSize, sync_playwright
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch, WatchedPage
from worked_trainings import Pool, serving

import tools
from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService

VIEWPORT: ViewportSize = {"width": 900, "height": 700}  # small: the chart is drawn without a GPU
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # WebGL without a GPU: the 3-D chart must really be drawn.
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    # All else by the processor itself: SwiftShader would take an eighth more processor time.
    "--disable-gpu-compositing",
    "--disable-gpu-rasterization",
)


BOARD = "bench-1"
SEARCHES: dict[str, dict[str, Any]] = {
    "finished": {
        "name": "two targets",
        "space": {"narrow": {"n_layer": [2, 3, 4], "d_model": {"min": 64, "max": 256, "step": 64}}},
        "targets": [
            {"name": "free", "device": BOARD},
            {"name": "bounded", "device": BOARD, "limits": {"latency_ms": 9.0}},
        ],
        "algorithm": {"name": "random"},
        "budget": {"candidates": 20, "refinement": 0},
        "seed": 5,
    },
    "predicted": {
        "name": "by prediction",
        "space": {"narrow": {"n_layer": [2, 3], "d_model": {"min": 64, "max": 192, "step": 64}}},
        "targets": [{"device": BOARD}],
        "algorithm": {"settings": {"initial": 6, "batch": 4, "population": 200, "steps": 3}},
        "budget": {"candidates": 22, "refinement": 0},
        "seed": 3,
    },
    "by_tokens": {
        "name": "for a budget",
        "space": {"name": "llama", "narrow": {"n_layer": {"min": 2, "max": 3}, "d_model": [128, 192, 256]}},
        "targets": [{"device": BOARD}],
        "algorithm": {"name": "random"},
        "proxy_settings": {"law": "llama-dolma-cooled"},
        "train_tokens": 10**10,
        "budget": {"candidates": 14, "refinement": 0},
        "seed": 3,
    },
    "generation": {
        "name": "answers",
        "space": {"narrow": {"n_layer": [2, 3], "d_model": {"min": 64, "max": 192, "step": 64}}},
        "targets": [
            {
                "device": BOARD,
                "protocol": {"mode": "generate", "sequence_length": 64, "new_tokens": 16},
                "limits": {"first_token_ms": 5.0},
            }
        ],
        "algorithm": {"name": "random"},
        "budget": {"candidates": 12, "refinement": 0},
        "seed": 4,
    },
}
"""The requests of the finished jobs, by the name of their fixture."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tools.CHROMIUM.path(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def finished_searches(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A data folder with a device and the finished jobs of `SEARCHES`."""

    def make(home: Path) -> None:
        with serving(home) as service, closing(RemoteAgent(service.url, service.key, name=BOARD)) as agent:
            headers = {"Authorization": f"Bearer {service.key}"}
            with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
                for name, request in SEARCHES.items():
                    made = client.post("/v1/jobs", json=request).raise_for_status().json()
                    job = agent.finish(client, made["id"])
                    (home / f"{name}.json").write_text(json.dumps(job), encoding="utf-8")
            agent.save(home / "board.json")

    return made_once("finished-searches", make)


@pytest.fixture(scope="session")
def shared_service(finished_searches: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    home = shutil.copytree(finished_searches, tmp_path_factory.mktemp("shared") / "home")
    with serving(home) as service:
        yield service


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """With the finished searches. Files share one; `OWN_SERVICE` is for those that change more than what they make."""
    if not getattr(request.module, "OWN_SERVICE", False):
        yield request.getfixturevalue("shared_service")
        return
    finished_searches: Path = request.getfixturevalue("finished_searches")
    with serving(shutil.copytree(finished_searches, tmp_path_factory.mktemp("service") / "home")) as service:
        yield service


@pytest.fixture(scope="module")
def agent(service: EmbeddedService) -> Iterator[RemoteAgent]:
    """The board of the finished searches, or a new one where there are none."""
    saved = service.home / "board.json"
    if saved.exists():
        agent = RemoteAgent.saved(service.url, saved)
        agent.measure(1, wait_s=0)  # it is seen
    else:
        agent = RemoteAgent(service.url, service.key, name=BOARD)
    yield agent
    agent.close()


def job_of(service: EmbeddedService, name: str) -> dict[str, Any]:
    return dict(json.loads((service.home / f"{name}.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def finished(service: EmbeddedService) -> dict[str, Any]:
    """A finished job of two targets on the same board, one of them with limits."""
    return job_of(service, "finished")


@pytest.fixture(scope="module")
def predicted(service: EmbeddedService) -> dict[str, Any]:
    """A finished job that searched by prediction, on one target without limits."""
    return job_of(service, "predicted")


@pytest.fixture(scope="module")
def by_tokens(service: EmbeddedService) -> dict[str, Any]:
    """A finished job of Llama's blocks, whose law knows the training budget."""
    return job_of(service, "by_tokens")


@pytest.fixture(scope="module")
def generation(service: EmbeddedService) -> dict[str, Any]:
    """A finished job whose passes are generations."""
    return job_of(service, "generation")


@pytest.fixture
def api(service: EmbeddedService) -> Iterator[httpx.Client]:
    """The service, asked with the admin's key."""
    headers = {"Authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
        yield client


@pytest.fixture
def pool(service: EmbeddedService, api: httpx.Client) -> Iterator[Pool]:
    """Whoever works on its trainings."""
    database = Database(f"sqlite:///{service.home / 'edgefront.db'}")
    try:
        yield Pool(service, database, api)
    finally:
        database.dispose()


@pytest.fixture
def submit(api: httpx.Client) -> Submit:
    """Submits a small job on a device: `submit(device, name=…)` → the job. Each seed searches elsewhere."""

    def submit(*devices: str, name: str = "a search", candidates: int = 12, seed: int = 1) -> dict[str, Any]:
        request = {
            "name": name,
            "space": {"narrow": {"n_layer": [2, 3], "d_model": {"min": 64, "max": 192, "step": 64}}},
            "targets": [{"name": f"on {device}", "device": device} for device in devices],
            "algorithm": {"name": "random"},
            "budget": {"candidates": candidates, "refinement": 0},
            "seed": seed,
        }
        return dict(api.post("/v1/jobs", json=request).raise_for_status().json())

    return submit


@pytest.fixture(scope="module")
def member(browser: Browser, service: EmbeddedService) -> Iterator[BrowserContext]:
    """A browser profile that has signed in."""
    context = browser.new_context(base_url=service.url, viewport=VIEWPORT)
    page = context.new_page()
    WatchedPage(page, service.url).sign_in(service.key, "/")
    page.close()
    yield context
    context.close()


@pytest.fixture
def visitor(browser: Browser, service: EmbeddedService) -> Iterator[BrowserContext]:
    """A browser profile that has not."""
    context = browser.new_context(base_url=service.url, viewport=VIEWPORT)
    yield context
    context.close()


@pytest.fixture
def watch(service: EmbeddedService) -> Iterator[Watch]:
    """Opens pages: `watch(member, path)`. At the end none may have complained or asked another origin for anything."""
    opened: list[WatchedPage] = []

    def open_page(context: BrowserContext, path: str) -> WatchedPage:
        seen = WatchedPage(context.new_page(), service.url)
        opened.append(seen)
        seen.page.goto(path)
        return seen

    yield open_page
    for seen in opened:
        seen.page.close()
    assert [seen.complaints for seen in opened if seen.complaints] == []
    assert [seen.strangers for seen in opened if seen.strangers] == []
