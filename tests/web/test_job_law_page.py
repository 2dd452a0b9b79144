"""Predicted and trained perplexity on a job's page, and the button that moves the job to a refined law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect
from simulated_pool import Pool, prepare
from simulated_trainings import BASE, Trainings
from watched_page import WatchedPage

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.dispatch import sender
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService

FACTS = "document.getElementById('law-facts').textContent"


@pytest.fixture
def trainings(service: EmbeddedService) -> Iterator[Trainings]:
    settings = Settings(home=service.home, database=DatabaseSettings())
    database = Database(settings.database_url, send=sender(settings))
    prepare(service.home / "data")
    pool = Pool(database, settings)
    pool.user = Principal("key_test", "test", "local", "admin")
    try:
        yield Trainings(pool)
    finally:
        database.dispose()


def test_trained_candidates_are_listed_and_the_job_is_moved(
    watch: Callable[..., WatchedPage],
    member: BrowserContext,
    finished: dict[str, Any],
    trainings: Trainings,
    api: httpx.Client,
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.until(f"{FACTS}.startsWith('law {BASE} ')", True)
    expect(seen.page.locator("#law-scroll")).to_be_hidden()
    trainings.end_all(trainings.candidates(finished["id"], 5))
    # The service's worker fits a version whenever one ends.
    trainings.pool.until(lambda: [version.models for version in trainings.versions()][-1:] == [5])
    row = trainings.versions()[-1]
    launches = sum(target["launches_done"] for target in finished["targets"])

    seen.page.reload()
    card = seen.page.get_by_role("region", name="Predicted and trained perplexity", exact=True)
    seen.eventually(lambda: len(seen.cells("#law-table tbody tr")), 5)
    expect(card.get_by_text("Not comparable: these models were trained on letters (validation)")).to_be_visible()
    seen.eventually(
        lambda: {(cells[2], cells[3], cells[5]) for cells in seen.cells("#law-table tbody tr")},
        {("–", "–", "not comparable")},
    )
    card.get_by_role("button", name=f"Move to {row.name}@{row.version}").click()
    seen.until(f"{FACTS}.startsWith('law {row.name}@{row.version} ')", True)
    expect(
        card.get_by_text("5 intervals contain the trained perplexity (letters, validation, recipe quick).")
    ).to_be_visible()
    seen.eventually(lambda: {cells[-1] for cells in seen.cells("#law-table tbody tr")}, {"holds, predicted without it"})
    assert card.get_by_role("button").count() == 1

    card.get_by_role("button", name="Probe with 5 small trainings").click()
    expect(card.get_by_text("5 trainings started. Expected after them: a predicted perplexity of")).to_be_visible()
    probe = api.get(f"/v1/jobs/{finished['id']}/probe").json()
    assert probe["state"] == "training"
    for training in probe["trainings"]:
        assert api.delete(f"/v1/trainings/{training['training_id']}").status_code == 204
    job = api.get(f"/v1/jobs/{finished['id']}").json()
    assert job["request"]["proxy_settings"] == {"law": f"{row.name}@{row.version}"}
    assert sum(target["launches_done"] for target in job["targets"]) == launches
