"""Predicted and trained perplexity on a job's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect
from simulated_pool import Pool, prepare
from simulated_trainings import BASE, Trainings
from watched_page import Watch

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.dispatch import sender
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

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


def test_trained_candidates_are_listed_beside_what_the_law_predicts_without_them(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], trainings: Trainings
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.until(f"{FACTS}.startsWith('law {BASE} ')", True)
    expect(seen.page.locator("#law-scroll")).to_be_hidden()
    trainings.end_all(trainings.candidates(finished["id"], 5))
    # The service's worker learns whenever one ends.
    trainings.pool.until(lambda: [row.summary["table_models"] for row in trainings.laws()] == [5])
    (row,) = trainings.laws()

    seen.page.reload()
    seen.until(f"{FACTS}.startsWith('law {row.name} ')", True)
    card = seen.page.get_by_role("region", name="Predicted and trained perplexity", exact=True)
    seen.eventually(lambda: len(seen.cells("#law-table tbody tr")), 5)
    expect(
        card.get_by_text("intervals contain the trained perplexity (letters, validation, recipe quick).")
    ).to_be_visible()
    seen.eventually(lambda: {cells[-1] for cells in seen.cells("#law-table tbody tr")}, {"holds, predicted without it"})
    expect(card.get_by_text(f"the search ranked by {BASE}")).to_be_visible()
