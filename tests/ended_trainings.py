"""Rows of trainings that have ended on a worker, so that its pace is known: nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.states import TrainingCommand, TrainingKind, TrainingState
from edgefront.core.quality.predictor import Pace, flops_per_token
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.recipes.catalogue import recipe

PACE = Pace(seconds_per_token=2e-6, seconds_per_flop=1e-13, segment=recipe("modern").segment)
MODELS = ("smollm2-135m", "smollm2-360m")


def end_trainings(
    database: Database,
    worker: str,
    pace: Pace = PACE,
    *,
    gpus: int = 1,
    overrides: Mapping[str, Any] | None = None,
    owner: str = "bob",
) -> None:
    """One training of each of `MODELS` has ended on the worker, at exactly this pace; `overrides` of its recipe."""
    how, tokens = recipe("modern").overridden(overrides or {}), 10**6
    with database.write() as session:
        now = database.now(session)
        for name in MODELS:
            architecture = named_model(name).architecture
            flops = float(flops_per_token(Shapes.of([architecture]), how.segment)[0])
            session.add(
                Training(
                    owner=owner,
                    name=name,
                    kind=TrainingKind.TRAINING,
                    request={},
                    request_digest="",
                    architecture=architecture.canonical,
                    trained=architecture.canonical,
                    digest=architecture.digest,
                    dataset="python",
                    recipe_name=how.name,
                    recipe=how.model_dump(mode="json"),
                    budget={},
                    seed=0,
                    device="cuda" if gpus else "cpu",
                    gpus=gpus,
                    queue="gpu" if gpus else "cpu",
                    state=TrainingState.DONE,
                    wanted=TrainingCommand.RUN,
                    worker=worker,
                    tokens=tokens,
                    seconds=tokens * (pace.seconds_per_token + pace.seconds_per_flop * flops),
                    created_at=now,
                    updated_at=now,
                    finished_at=now,
                )
            )


def end_trainings_in(home: Path, worker: str) -> None:
    """The same in the database of an embedded service."""
    database = Database(f"sqlite:///{home / 'edgefront.db'}")
    try:
        end_trainings(database, worker, owner="local")
    finally:
        database.dispose()
