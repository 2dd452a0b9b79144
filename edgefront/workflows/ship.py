"""From a finished search to a trained model: train the best of a frontier, and download the better one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgefront.client import Client
from edgefront.core.errors import Conflict, EdgefrontError, InvalidInput, NotFound
from edgefront.core.pareto.ratio import Figure
from edgefront.core.recipes.default import DEFAULTS
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.states import ProbeState, TrainingState
from edgefront.core.validation import one_of
from edgefront.core.wire.candidates import CandidateView, FrontierView
from edgefront.core.wire.laws import AgreementRow
from edgefront.core.wire.probes import ProbePlan, ProbeView
from edgefront.core.wire.trainings import TrainingBudget, TrainingView
from edgefront.show.output import NONE, duration, megabytes, millions, milliseconds, table
from edgefront.show.quality import predicted_quality
from edgefront.show.training_tables import best_perplexity

if TYPE_CHECKING:
    from edgefront.show.fitting import FittingTable


PROBES = 3
PROBE_SHARE = 1 / 3
"""Share of the time for all trainings that probes may take."""


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


def probed(
    client: Client, job_id: str, request: Mapping[str, Any], seconds: float | None, note: Callable[[str], None]
) -> ProbeView:
    """The probe that the job has, or a new one of as many trainings as `seconds` allow; nothing waits for it.

    Raises `InvalidInput` where no law is about the job's models, `Conflict` where there is nothing to choose, or no
    time.
    """
    try:
        former = client.jobs.last_probe(job_id)
    except NotFound:
        former = None
    if former is not None and former.state != ProbeState.FAILED:
        return former
    plan = client.jobs.probe(job_id, {**request, "dry_run": True})
    count = _affordable(plan, seconds)
    if count == 0:
        raise Conflict(
            f"the first would take about {duration(plan.trainings[0].seconds)}, which --hours has no room for"
        )
    if count < len(plan.trainings):
        note(f"{count} instead of {len(plan.trainings)} probes: more would take too much of --hours")
    return client.jobs.probe(job_id, {**request, "trainings": count})


def _affordable(plan: ProbePlan, seconds: float | None) -> int:
    """How many of the trainings take `PROBE_SHARE` of the time at most; all where that is not known."""
    if seconds is None:
        return len(plan.trainings)
    took = accumulate(training.seconds or 0.0 for training in plan.trainings)
    return sum(total <= PROBE_SHARE * seconds for total in took)


def trained_before(
    client: Client, probe: ProbeView, points: Sequence[CandidateView], how: Mapping[str, Any]
) -> dict[str, TrainingView]:
    """Candidate id → its training in the probe, where that was made exactly so and is done."""
    recipes = {view.name: view for view in client.catalogue.recipes()}
    made: dict[str, TrainingView] = {}
    for item in probe.trainings:
        if item.training_id is None or item.candidate_id not in {point.id for point in points}:
            continue
        training = client.trainings.get(item.training_id)
        if training.recipe is None:
            continue
        name = training.recipe["name"]
        asked = Recipe.parse(recipes[name].recipe).overridden(how["overrides"]).model_dump(mode="json")
        alike = (
            training.recipe == asked and how["recipe"] in (None, name) and how["dataset"] in (None, training.dataset)
        )
        same = training.budget == TrainingBudget(**how["budget"]) and training.seed == how["seed"]
        if alike and same and training.state == TrainingState.DONE:
            made[item.candidate_id] = training
    return made


@dataclass(frozen=True)
class Outcome:
    """What was predicted of the model that was kept, and what its training came to."""

    sentence: str
    row: AgreementRow | None = None
    """Where the job's law is about models that were trained so: its prediction without this training."""


def outcome(client: Client, job_id: str, shipped: Sequence[Shipped]) -> Outcome:
    """`predicted 31.0 ± 0.9, trained 31.4`; where the law has learnt from no training of this kind, what is known."""
    kept = next(model for model in shipped if model.kept)
    view = client.jobs.law(job_id)
    agreement = view.agreement
    if agreement is not None and agreement.alike:
        row = next((row for row in agreement.rows if row.candidate_id == kept.candidate.id), None)
        if row is not None:
            of = view.law.label if view.law is not None and view.law.label else agreement.dataset
            split = "validation" if agreement.split == "valid" else agreement.split
            return Outcome(f"{in_words(row)} ({of}; {split} split)", row)
    return Outcome(_without_probes(kept, [model for model in shipped if not model.kept]))


def in_words(row: AgreementRow) -> str:
    """`predicted 31.0 ± 0.9, trained 31.4`."""
    return f"predicted {Figure.between(row.predicted, row.low, row.high)}, trained {row.trained:.1f}"


def _without_probes(kept: Shipped, others: Sequence[Shipped]) -> str:
    """The same where no training has told the law what perplexities are on these data."""
    predicted, training = kept.candidate.predicted, kept.training
    trained = f"trained {NONE if kept.perplexity is None else f'{kept.perplexity:.1f}'} ({training.dataset})"
    if predicted is None or predicted.perplexity is None:
        return f"{trained}; no quality law is about such models, so nothing was predicted"
    of = predicted.label or predicted.law
    if predicted.relative_to is None:
        before = f"predicted {predicted_quality(predicted)} ({of})"
        return f"{before}, {trained}: not comparable, since the law is about other trainings"
    sentence = f"predicted {predicted_quality(predicted)} {predicted.relative_to}'s perplexity ({of}), {trained}"
    for other in others:
        second = other.candidate.predicted
        if second is None or second.perplexity is None or not other.perplexity or kept.perplexity is None:
            continue
        ratios = f"predicted {predicted.perplexity / second.perplexity:.2f}×, trained "
        sentence += f"; against {other.candidate.id} {ratios}{kept.perplexity / other.perplexity:.2f}×"
    return f"{sentence}; probes would tell the perplexity before (--probes)"


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
    client: Client,
    points: Sequence[CandidateView],
    how: dict[str, Any],
    again: bool = False,
    before: Mapping[str, TrainingView] = MappingProxyType({}),
) -> list[TrainingView]:
    """Submits a training of each point that has none in `before`. The same points and `how` return the same trainings,
    unless `again` requests new ones.
    """
    made: list[TrainingView] = []
    for point in points:
        if point.id in before and not again:
            made.append(before[point.id])
            continue
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
