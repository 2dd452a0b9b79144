"""Pages show rows that this release cannot read among the others, and say so."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect
from sqlalchemy import select, update
from watched_page import Watch
from worked_trainings import Pool

from edgefront.core.services.jobs import job_views
from edgefront.core.store.tables import Base

OWN_SERVICE = True

BROKEN = {"of": "another release"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("candidate.architecture", "unknown"),
        ("training.architecture", "cannot be read"),
    ],
)
def test_a_row_that_cannot_be_read_is_shown(
    document: str,
    words: str,
    watch: Watch,
    member: BrowserContext,
    finished: dict[str, Any],
    pool: Pool,
) -> None:
    job, training = finished["id"], pool.submit(name="a small one")
    name, column = document.split(".")
    table = Base.metadata.tables[name]
    with pool.database.write() as session:
        before = session.execute(select(table.c.id, table.c[column])).all()
        session.execute(update(table).values({column: BROKEN}))
    job_views._kept.clear()
    texts = []
    try:
        for path, shown in (
            ("/jobs", f"a[href$='{job}']"),
            (f"/jobs/{job}", "#candidates tbody tr"),
            ("/trainings", f"a[href$='{training}']"),
            (f"/trainings/{training}", "main h1"),
            ("/devices", "main tbody tr"),
        ):
            seen = watch(member, path)
            expect(seen.page.locator(shown).first).to_be_visible()
            texts.append(seen.page.locator("body").inner_text())
    finally:
        with pool.database.write() as session:
            for id_, stored in before:
                session.execute(update(table).where(table.c.id == id_).values({column: stored}))
        job_views._kept.clear()
    assert any(words in text for text in texts), texts
