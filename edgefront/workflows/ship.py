"""From a finished search to a trained model: train the best of a frontier, and download the better one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.client import Client
from edgefront.core.errors import EdgefrontError, InvalidInput
from edgefront.core.recipes.default import DEFAULTS
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.states import TrainingState
from edgefront.core.validation import one_of
from edgefront.core.wire.jobs import CandidateView, FrontierView
from edgefront.core.wire.trainings import TrainingView
from edgefront.show.output import NONE, megabytes, millions, milliseconds, table
from edgefront.show.training_tables import best_perplexity

if TYPE_CHECKING:
    from edgefront.show.fitting import FittingTable


@dataclass(frozen=True)
class Shipped:
    """A candidate with its training; `perplexity` is that of the test split, or of the validation split without one."""

    candidate: CandidateView
    training: TrainingView
    perplexity: float | None
    kept: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON of one training in `edgefront ship --json`."""
        return {
            "candidate": self.candidate.id,
            "training": self.training.id,
            "state": self.training.state,
            "reason": self.training.reason,
            "decoder_parameters": self.candidate.decoder_parameters,
            "latency_ms": self.candidate.latency_ms,
            "memory_bytes": self.candidate.memory_bytes,
            "perplexity": self.perplexity,
            "kept": self.kept,
        }


def check_recipe(client: Client, name: str | None, overrides: Mapping[str, Any]) -> None:
    """Checks the recipe before the search, so that the trainings are not refused after it. Raises `InvalidInput`.

    Without a name every recipe that a training without one may take.
    """
    recipes = {view.name: view for view in client.catalogue.recipes()}
    for candidate in DEFAULTS if name is None else (one_of("recipe", name, tuple(recipes)),):
        Recipe.parse(recipes[candidate].recipe).overridden(overrides)


def best_points(frontier: FrontierView, count: int) -> list[CandidateView]:
    """The `count` points with the highest proxy, the fastest first among equals. `InvalidInput` if there is none."""
    if not frontier.points:
        raise InvalidInput(
            f"the frontier of {frontier.target} is empty: no measured model is within the limits",
            field="job",
            value=frontier.job_id,
            allowed="a job with a frontier: wider limits, or a space with smaller models",
        )
    return sorted(frontier.points, key=lambda point: (-point.proxy, point.latency_ms or 0.0))[:count]


def submit(
    client: Client, points: Sequence[CandidateView], how: dict[str, Any], again: bool = False
) -> list[TrainingView]:
    """Submits a training of each point. The same points and `how` return the same trainings, unless `again` requests
    new ones.
    """
    made: list[TrainingView] = []
    for point in points:
        request = {"candidate": point.id, **how}
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]
        made += client.trainings.create(request, idempotency_key=None if again else f"ship-{digest}")
    return made


def chosen(points: Sequence[CandidateView], trainings: Sequence[TrainingView]) -> list[Shipped]:
    """Every point with its training; the one with the lowest perplexity is chosen. Raises `EdgefrontError` with all
    reasons if no training finished.
    """
    scores = [
        Shipped(point, training, best_perplexity(training) if training.state == TrainingState.DONE else None)
        for point, training in zip(points, trainings, strict=True)
    ]
    scored = [(score.perplexity, score.candidate.latency_ms or 0.0, index) for index, score in enumerate(scores)]
    done = [(perplexity, latency, index) for perplexity, latency, index in scored if perplexity is not None]
    if not done:
        reasons = "; ".join(
            f"{score.training.id} {score.training.state}: {score.training.reason or NONE}" for score in scores
        )
        raise EdgefrontError(
            f"no training finished: {reasons}. Resume one by `edgefront train resume`, or start again by "
            "`edgefront ship --job` with --again"
        )
    best = min(done)[2]
    return [
        Shipped(score.candidate, score.training, score.perplexity, kept=index == best)
        for index, score in enumerate(scores)
    ]


def shipped_table(shipped: Sequence[Shipped]) -> FittingTable:
    """A table of measurements on the device and scores on held-out text."""
    numbers = ("parameters", "latency ms", "memory MB", "perplexity")
    shown = table(
        *("", "model", "training", "state", *numbers),
        right=numbers,
        less=("state", "parameters", "memory MB", "training"),
    )
    for model in shipped:
        shown.add_row(
            "kept" if model.kept else "",
            model.candidate.id,
            model.training.id,
            model.training.state,
            millions(model.candidate.decoder_parameters),
            milliseconds(model.candidate.latency_ms),
            megabytes(model.candidate.memory_bytes),
            NONE if model.perplexity is None else f"{model.perplexity:.4g}",
            style="bold" if model.kept else None,
        )
    return shown


def fetch(
    client: Client, shipped: Sequence[Shipped], folder: Path, note: Callable[[str], None], *, force: bool
) -> tuple[Path, ...]:
    """Downloads the chosen model."""
    kept = next(model for model in shipped if model.kept)
    note(f"downloading {kept.training.id} into {folder}")
    return client.trainings.download(kept.training.id, folder, replace=force)
