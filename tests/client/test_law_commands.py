"""`edgefront job law` and laws that trainings taught in `edgefront quality`, against the running service."""

from __future__ import annotations

import json

import numpy as np
from command_line import edgefront
from running_client import SMALL, Running

from edgefront import exits
from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.scaling_law import own_trainings
from edgefront.core.quality.shipped import own_data_law
from edgefront.core.services.quality.learning import row_of
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.spaces.architecture import Architecture
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


def test_laws_of_jobs_and_owners_are_shown(running: Running) -> None:
    learn(running)
    listed = edgefront("quality", "list", "--refined", home=running.home)
    assert listed.returncode == exits.OK, listed.stderr
    assert NAME in listed.stdout
    shown = edgefront("quality", "show", NAME, home=running.home)
    assert shown.returncode == exits.OK, shown.stderr
    for words in (f"{NAME}: taught", "data: letters", "models: 5", f"prior: {BASE}", "log_d_model"):
        assert words in shown.stdout
    assert edgefront("quality", "show", f"{NAME}-no", home=running.home).returncode == exits.NOT_FOUND

    by_name = SMALL | {"seed": 31, "proxy_settings": {"law": NAME}}
    job = running.client.jobs.wait(running.client.jobs.create(by_name).id, timeout_s=60)
    told = edgefront("job", "law", job.id, home=running.home)
    assert told.returncode == exits.OK, told.stderr
    assert told.stdout.startswith(f"law {NAME}: letters; 5 models, perplexity on letters")
    assert "No trained perplexity can be compared" in told.stdout
    view = json.loads(edgefront("job", "law", job.id, "--json", home=running.home).stdout)
    assert (view["law"]["law"], view["answers"]["law"]) == (NAME, NAME)
