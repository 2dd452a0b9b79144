"""`edgefront job law` and refined laws of `edgefront quality` against the running service."""

from __future__ import annotations

import json

import numpy as np
from command_line import edgefront
from running_client import SMALL, Running

from edgefront import exits
from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.law import Origin
from edgefront.core.quality.shipped import law_named
from edgefront.core.quality.stored import to_text
from edgefront.core.quality.table_law import TableLaw
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.store.tables import LawVersion

BASE = "lts-gpt2-wikitext103"
NAME = f"{BASE}-0123456789"


def learn(running: Running, versions: int) -> None:
    """Stores versions of a law of the running job's candidates."""
    views = {candidate.digest: candidate for candidate in running.client.candidates.list(running.job.id)}
    models = [Architecture.model_validate(view.architecture) for view in views.values()][: 5 + versions]
    database = Database(Settings(home=running.home, database=DatabaseSettings()).database_url)
    origin = Origin(NAME, "refined", family="gpt2", data="letters", split="validation", trained="recipe quick, 4 steps")
    try:
        with database.write() as session:
            for version in range(1, versions + 1):
                shapes = Shapes.of(models[: 4 + version])
                logs = 0.5 + law_named(BASE).predict(shapes).log_perplexity + 0.01 * np.arange(4 + version)
                law = TableLaw.fit(shapes, logs, origin, prior=law_named(BASE))
                session.add(
                    LawVersion(
                        name=NAME, version=version, base=BASE, comparability_key="0123456789abcdef", dataset="letters",
                        recipe="quick", models=law.models, rows_digest=str(version), law=to_text(law),
                        created_at=database.now(session),
                    )
                )  # fmt: skip
    finally:
        database.dispose()


def test_a_job_is_moved_and_refined_laws_are_shown(running: Running) -> None:
    learn(running, 2)
    listed = edgefront("quality", "list", "--refined", home=running.home)
    assert listed.returncode == exits.OK, listed.stderr
    assert f"{NAME}@2" in listed.stdout
    assert f"{NAME}@1" not in listed.stdout
    shown = edgefront("quality", "show", f"{NAME}@1", home=running.home)
    assert shown.returncode == exits.OK, shown.stderr
    for words in (f"{NAME}@1: refined", "data: letters", "models: 5", f"prior: {BASE}", "log_d_model"):
        assert words in shown.stdout
    assert edgefront("quality", "show", f"{NAME}@9", home=running.home).returncode == exits.NOT_FOUND

    asked = SMALL | {"seed": 31, "proxy_settings": {"law": BASE}}
    job = running.client.jobs.wait(running.client.jobs.create(asked).id, timeout_s=60)
    told = edgefront("job", "law", job.id, home=running.home)
    assert told.returncode == exits.OK, told.stderr
    assert told.stdout.startswith(f"law {BASE}: WikiText-103, 40,000 steps; 200 models, perplexity on WikiText-103")
    assert "None of the job's candidates has been trained" in told.stdout
    assert f"edgefront job law {job.id} --move-to {NAME}@2" in told.stdout
    moved = edgefront("job", "law", job.id, "--move-to", f"{NAME}@1", "--json", home=running.home)
    assert moved.returncode == exits.OK, moved.stderr
    view = json.loads(moved.stdout)
    assert (view["law"]["law"], view["moving_to"]) == (f"{NAME}@1", None)
    assert [law["version"] for law in view["newer"]] == [2]
    assert {candidate.predicted.law for candidate in running.client.candidates.list(job.id) if candidate.predicted} == {
        f"{NAME}@1"
    }
    assert [event.data["law"] for event in running.client.jobs.events(job.id, kinds=["law"], follow=False)] == [
        f"{NAME}@1"
    ]
    newest = edgefront("job", "law", job.id, "--move-to", NAME, home=running.home)
    assert newest.stdout.startswith(f"law {NAME}@2"), newest.stderr
    refused = edgefront("job", "law", job.id, "--move-to", "nothing", home=running.home)
    assert refused.returncode == exits.REFUSED
    assert "there are own-data-gpt2" in refused.stderr
