"""A training that reads fewer tokens than the model has parameters says that it cannot compare models."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_pool import pool_of

from edgefront.core.services.trainings import claims
from edgefront.core.services.trainings.claims import RunReport
from edgefront.core.store.database import Database


@pytest.mark.parametrize(("steps", "ranks"), [(3, False), (3000, True)])
def test_a_short_training_is_too_short_to_compare_models(
    database: Database, tmp_path: Path, steps: int, ranks: bool
) -> None:
    pool = pool_of(database, tmp_path)
    training = pool.submit(steps=steps)
    assert "too short to compare models" not in pool.get(training).note, "it waits"
    claim = pool.claim()
    assert claim is not None
    with database.write() as session:
        report = RunReport(state="training", step=1, steps=steps)
        claims.report(session, claim.training_id, claim.fence, report, database.now(session), 60)
    note = pool.get(training).note
    assert ("too short to compare models" in note) != ranks
    assert ranks or f"{steps} steps read" in note
