"""Refines quality laws by the service's own trainings.

A refit belongs to a base law, that of the family, and a comparability key: data, recipe and budget. From the first
training on, every one that ends makes a new version: the shared law learns the shift of these data, and what of shape
differs on them, from whole learning curves. From `PROCESS_MODELS` architectures on, they have a law of their own.
Fitting takes seconds and holds no transaction; the same trainings give the same version, byte by byte, and are not
fitted twice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeGuard

from sqlalchemy.orm import Session

from edgefront.core.canonical import digest
from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.quality.law import Origin, QualityLaw
from edgefront.core.quality.shared_law import SharedLaw, own_trainings
from edgefront.core.quality.shipped import law_for
from edgefront.core.quality.stored import to_text
from edgefront.core.quality.table_law import TableLaw
from edgefront.core.services import tasks
from edgefront.core.services.quality import law_queries as rows
from edgefront.core.services.quality.law_queries import CurvePoint, TrainedModel
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import LawVersion

ATTEMPTS = 5
"""Attempts of one task: it fits again if a training ends meanwhile."""
PROCESS_MODELS = 80
"""Architectures from which on a process of their own ranks better than the shared law (docs/quality.md)."""
CURVE_SHARE = 0.5
"""Points of a learning curve count from this share of its tokens on: before, it tells about the warm-up."""
CURVE_POINTS = 4
LOST_AFTER = timedelta(minutes=1)
"""After this time the task of a refit is assumed lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Group:
    """Comparable trainings (of one key) whose architectures have the same base law."""

    base: QualityLaw
    models: tuple[TrainedModel, ...]
    architectures: tuple[Architecture, ...]

    @property
    def rows_digest(self) -> str:
        """Perplexities are compared as the law has them: ln to 6 decimals."""
        return digest(sorted([model.digest, f"{math.log(model.perplexity):.6f}"] for model in self.models))

    def name(self, key: str) -> str:
        return f"{self.base.origin.name}-{key[:10]}"


def refit(database: Database, key: str) -> None:
    """Fits the wanted laws of a comparability key, and stores those that are new. May run twice at once."""
    for _ in range(ATTEMPTS):
        with database.read() as session:
            trained = rows.trained_alike(session, key)
            stored = rows.rows_digests(session, key)
            curves = rows.curves(session, [model.training_id for model in trained])
        fitted = [
            version
            for group in _groups(trained)
            if (group.name(key), group.rows_digest) not in stored and (version := _fit(group, curves, key)) is not None
        ]
        with database.write() as session:
            if _stored(session, key, trained, fitted, database.now(session)):
                return
    _log.warning("comparable trainings %s end faster than laws are fitted; the sweep requests it again", key)


def give_up(database: Database, key: str) -> None:
    """No law is fitted to the comparable trainings of now: the next training that ends requests it again."""
    with database.write() as session:
        rows.no_longer_wanted(session, key)


def resend(session: Session, now: datetime) -> None:
    """Sends the task again for refits that no worker makes; called by the sweep."""
    for key in rows.wanted_before(session, now - LOST_AFTER):
        enqueue(session, tasks.REFIT, comparability_key=key)


def _groups(trained: Sequence[TrainedModel]) -> list[_Group]:
    """Groups the models by base law, in the order of names; leaves out those without a usable perplexity or a law."""
    by_law: dict[str, tuple[QualityLaw, list[TrainedModel], list[Architecture]]] = {}
    for model in trained:
        if not (math.isfinite(model.perplexity) and model.perplexity > 0):
            continue
        architecture = Architecture.model_validate(model.architecture)
        base = law_for(architecture)
        if base is not None:
            _, models, architectures = by_law.setdefault(base.origin.name, (base, [], []))
            models.append(model)
            architectures.append(architecture)
    return [
        _Group(base, tuple(models), tuple(architectures)) for _, (base, models, architectures) in sorted(by_law.items())
    ]


def _fit(group: _Group, curves: Mapping[str, Sequence[CurvePoint]], key: str) -> Document | None:
    """A version without its number, as columns of `LawVersion`; None if nothing can be learnt."""
    models = len({model.digest for model in group.models})
    first = group.models[0]
    origin = Origin(
        name=group.name(key),
        title=f"{group.base.origin.name}, refined by trainings of this service on {first.dataset}"[:500],
        family=group.base.origin.family,
        data=f"{first.dataset} (data set {(first.dataset_digest or '')[:12]})",
        split="validation",
        tokens="token of the data set as it is prepared here",
        trained=_trained(first),
        how=_in_short(first, with_length=not _knows_budgets(group.base, models)),
        source="trainings of this service",
    )
    try:
        law = _law(group, curves, models, origin)
    except InvalidInput as error:  # all of one perplexity
        _log.info("no law of %d comparable trainings %s: %s", len(group.models), key, error.detail)
        return None
    return {
        "name": origin.name,
        "base": group.base.origin.name,
        "comparability_key": key,
        "dataset": first.dataset,
        "dataset_digest": first.dataset_digest,
        "recipe": str(first.recipe.get("name", "")),
        "models": models,
        "rows_digest": group.rows_digest,
        "law": to_text(law),
    }


def _is_shared(base: QualityLaw, models: int) -> TypeGuard[SharedLaw]:
    """Whether so many trainings refine the base law, instead of making a law of their own."""
    return models < PROCESS_MODELS and isinstance(base, SharedLaw)


def _knows_budgets(base: QualityLaw, models: int) -> bool:
    return _is_shared(base, models) and base.study.budgets


def _law(group: _Group, curves: Mapping[str, Sequence[CurvePoint]], models: int, origin: Origin) -> QualityLaw:
    """The base law refined by the group's trainings; `curves` are by training."""
    logs = [math.log(model.perplexity) for model in group.models]
    if not _is_shared(group.base, models):
        return TableLaw.fit(Shapes.of(group.architectures), logs, origin)
    chosen = []  # of each point of a curve: the place of its model, its tokens, ln perplexity
    # The order is by what they are and came to: ids change nothing in what is stored.
    for place in sorted(range(len(logs)), key=lambda place: (group.models[place].digest, logs[place])):
        model, end = group.models[place], logs[place]
        curve = [point for point in curves.get(model.training_id, ()) if math.isfinite(point.loss)]
        late = [point for point in curve if CURVE_SHARE * model.tokens <= point.tokens < model.tokens]
        # Evaluations during a training may be on a part of the split: what they tell is how the loss falls.
        if group.base.study.budgets:
            chosen += [(place, point.tokens, end + point.loss - curve[-1].loss) for point in late[-CURVE_POINTS:]]
        chosen.append((place, max(model.tokens, 1), end))
    places = [place for place, _, _ in chosen]
    own = own_trainings(
        group.base,
        Shapes.of([group.architectures[place] for place in places]),
        [math.log(tokens) for _, tokens, _ in chosen],
        [log for _, _, log in chosen],
        [f"{places.index(place):09}" for place in places],
    )
    tokens = sorted(model.tokens for model in group.models)[len(group.models) // 2]
    law = group.base.refined(own, origin)
    return law.at_tokens(float(max(tokens, 1))) if law.study.budgets else law


def _trained(model: TrainedModel) -> str:
    """Recipe and length, in words."""
    budget = {name: value for name, value in model.budget.items() if value is not None and name != "steps"}
    words = [f"with {_in_short(model, with_length=True)}"]
    words += [f"at most {value:,} {name}" for name, value in sorted(budget.items())]
    return ", ".join(words)


def _in_short(model: TrainedModel, *, with_length: bool) -> str:
    """`recipe quick, 300 steps`, or the recipe alone."""
    recipe = f"recipe {model.recipe.get('name', '')}"
    steps = model.recipe.get("steps", 0)
    return f"{recipe}, {min(steps, model.budget.get('steps') or steps):,} steps" if with_length else recipe


def _stored(
    session: Session, key: str, trained: Sequence[TrainedModel], fitted: Sequence[Document], now: datetime
) -> bool:
    """Stores new versions under the lock of the request; False if a training has ended since they were read."""
    if rows.lock_wanted(session, key) is None:
        return True  # another worker has stored them
    if repr(rows.scores_alike(session, key)) != repr([(model.evaluation_id, model.perplexity) for model in trained]):
        return False  # as text: a NaN is not equal to itself
    stored = rows.rows_digests(session, key)
    for values in fitted:
        name = values["name"]
        if (name, values["rows_digest"]) not in stored:
            version = rows.newest_version(session, name) + 1
            session.add(LawVersion(**values, version=version, created_at=now))
            session.flush()
    rows.no_longer_wanted(session, key)
    return True
