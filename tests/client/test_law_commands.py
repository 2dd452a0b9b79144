"""Laws that trainings taught in `edgefront quality`, against the running service."""

from __future__ import annotations

import numpy as np
from running_client import Running

from edgefront.cli import exits
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.scaling_law import own_trainings
from edgefront.core.quality.shipped import own_data_law
from edgefront.core.services.quality.learning import row_of
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.store.database import Database

BASE = "own-data-gpt2"
NAME = f"{BASE}-0123456789"


def learn(running: Running) -> None:
    """Stores a law of the running job's candidates."""
    views = {candidate.digest: candidate for candidate in running.client.candidates.list(running.job.id)}
    models = [Architecture.model_validate(view.architecture) for view in views.values()][:5]
    base = own_data_law("gpt2")
    assert base is not None
    origin = Origin(NAME, "taught", family="gpt2", data="letters", split="validation", trained="recipe quick, 4 steps")
    shapes = Shapes.of(models)
    own = own_trainings(base, shapes, np.ones(5), 4.0 + 0.1 * base.expected(shapes), [model.digest for model in models])
    database = Database(Settings(home=running.home, database=DatabaseSettings()).database_url)
    try:
        with database.write() as session:
            session.add(row_of("local", base.refined(own, origin), BASE, [], database.now(session)))
    finally:
        database.dispose()


def test_laws_of_owners_are_shown(running: Running) -> None:
    learn(running)
    listed = running.command("quality list --refined", code=exits.OK)
    assert NAME in listed.stdout
    shown = running.command("quality show", NAME, code=exits.OK)
    for words in (f"{NAME}: taught", "data: letters", "models: 5", f"prior: {BASE}", "log_d_model"):
        assert words in shown.stdout
    assert running.command("quality show", f"{NAME}-no").returncode == exits.NOT_FOUND
