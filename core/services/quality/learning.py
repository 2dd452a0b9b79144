"""Refines scaling laws by an owner's trainings: one posterior for each owner and kind of training, replaced in place.

1. The transaction that stores the perplexity of an ended training also requests the work `LEARN` for the training's
   owner and kind (recipe and data, `recipe_key`).
2. `learn` reads all ended trainings of this owner and kind, and groups them by the scaling law of the models' family
   (base law).
   Trainings that are too short to rank models (`trainings.views.too_short`) teach nothing.
3. The data of a training are the loss and tokens of the best checkpoint, and earlier points of the learning curve.
   Later points are ignored.
4. The new posterior and the new leave-one-out predictions replace the stored ones.

Fits take seconds and hold no transaction. The same trainings give the same document, byte by byte.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict

import numpy as np
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.states import TrainingKind, TrainingState
from edgefront.core.quality.features import rounded_features
from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.scaling_law import ScalingLaw, own_trainings
from edgefront.core.quality.shipped import law_for
from edgefront.core.quality.stored import summary, to_text
from edgefront.core.services.quality.queries import data_in_words
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document, any_of, lock_name, typed
from edgefront.core.store.tables import Evaluation, OwnerLaw, Training, TrainingMetric

SPLIT = "valid"
"""Split of the predicted perplexity, as in the training tables of the shipped laws."""
CURVE_SHARE = 0.5
"""Points of a learning curve count from this share of the best checkpoint's tokens on, after the warm-up."""
CURVE_POINTS = 4
ATTEMPTS = 5
"""Maximum number of fits in one task. A training that ends during a fit makes the task repeat the fit."""

_log = logging.getLogger(__name__)


class LeftOut(TypedDict):
    """Prediction for a trained model from a fit without trainings of its shape; None if that fit cannot predict it."""

    training_id: str
    digest: str
    trained: float
    predicted: float | None
    low: float | None
    high: float | None


class TrainedModel(NamedTuple):
    """A training that ended with a perplexity."""

    evaluation_id: str
    training_id: str
    digest: str
    architecture: Document
    perplexity: float
    details: Document
    """Details of the evaluation."""
    dataset: str
    dataset_digest: str | None
    recipe: Document
    tokens: int
    """Training tokens of the model."""
    steps: int
    """Steps of the training, 0 if unknown."""

    @property
    def length(self) -> str:
        """Key that is equal for trainings of the same length."""
        return str(self.details.get("comparability_key", ""))


class CurvePoint(NamedTuple):
    """An evaluation on the validation split during a training."""

    tokens: int
    loss: float


def learn(database: Database, subject: str) -> None:
    """Replaces the stored posteriors of an owner for a kind of training. `subject` is `KIND OWNER`. Thread-safe."""
    recipe_key, _, owner = subject.partition(" ")
    for _ in range(ATTEMPTS):
        with database.read() as session:
            trained = _trained(session, owner, recipe_key)
            curves = _curves(session, [model.training_id for model in trained])
        fitted = [_fitted(*group, curves, recipe_key) for group in _groups(trained)]
        with database.write() as session:
            lock_name(session, "law", subject)
            if _outcomes(_trained(session, owner, recipe_key)) == _outcomes(trained):
                now, names = database.now(session), [law.origin.name for law, _, _ in fitted]
                former = OwnerLaw.name.endswith(f"-{recipe_key[:10]}") & OwnerLaw.name.not_in(names)
                session.execute(delete(OwnerLaw).where(OwnerLaw.owner == owner, OwnerLaw.base != "", former))
                for law, base, left_out in fitted:
                    session.merge(row_of(owner, law, base, left_out, now))
                return
    _log.warning("trainings %s end faster than they are learnt from; the end of the next one repeats the fit", subject)


def store_pruning_predictor(session: Session, owner: str, law: PruningPredictor, now: datetime) -> str:
    """Stores an owner's pruning predictor, unless stored already. Returns the name: a hash of the content."""
    content = hashlib.sha256(to_text(law.renamed("cuts")).encode()).hexdigest()
    named = law.renamed(f"cuts-{content[:16]}")
    if session.get(OwnerLaw, (owner, named.origin.name)) is None:
        session.merge(row_of(owner, named, "", [], now))
        session.flush()
    return named.origin.name


def row_of(
    owner: str, law: ScalingLaw | PruningPredictor, base: str, left_out: Sequence[LeftOut], now: datetime
) -> OwnerLaw:
    """Returns the database row of an owner's predictor."""
    document = to_text(law)
    return OwnerLaw(
        owner=owner,
        name=law.origin.name,
        base=base,
        document=document,
        digest=hashlib.sha256(document.encode()).hexdigest(),
        summary=summary(law) | {"updated_at": now.isoformat()},
        left_out=[dict(each) for each in left_out],
        updated_at=now,
    )


def data_of_training(model: TrainedModel, curve: Sequence[CurvePoint]) -> tuple[int, tuple[CurvePoint, ...]]:
    """Returns a pair: the training tokens of the best checkpoint (the first with the least loss), and the earlier
    points of the learning curve with losses relative to the best checkpoint.
    """
    usable = [point for point in curve if math.isfinite(point.loss)]
    if not usable:
        return max(model.tokens, 1), ()
    best = min(usable, key=lambda point: point.loss)
    before = [point for point in usable if CURVE_SHARE * best.tokens <= point.tokens < best.tokens]
    # Evaluations during a training may use only a share of the split, so only differences of losses count.
    apart = tuple(CurvePoint(point.tokens, point.loss - best.loss) for point in before[-CURVE_POINTS:])
    return max(best.tokens, 1), apart


# Reading -------------------------------------------------------------------------------------------------------------


def _trained(session: Session, owner: str, recipe_key: str) -> list[TrainedModel]:
    """Returns the ended trainings of an owner and kind, ordered by digest."""
    columns = (
        Evaluation.id.label("evaluation_id"),
        Training.id.label("training_id"),
        Training.digest,
        Training.architecture,
        Evaluation.value.label("perplexity"),
        Evaluation.details,
        Training.dataset,
        Training.dataset_digest,
        Training.recipe,
        Training.tokens,
        Training.steps,
    )
    query = (
        select(*columns)
        .join(Training, Training.id == Evaluation.training_id)
        .where(
            Evaluation.owner == owner,
            Evaluation.recipe_key == recipe_key,
            Evaluation.metric == "perplexity",
            Evaluation.split == SPLIT,
            Training.kind == TrainingKind.TRAINING,
            Training.state == TrainingState.DONE,
            Training.digest.is_not(None),
        )
        .order_by(Training.digest, Evaluation.value, Evaluation.id)
    )
    return typed(TrainedModel, session.execute(query))


def _outcomes(trained: Sequence[TrainedModel]) -> list[tuple[str, str]]:
    return [(model.evaluation_id, repr(model.perplexity)) for model in trained]  # repr, because NaN != NaN


def _curves(session: Session, trainings: Collection[str]) -> dict[str, list[CurvePoint]]:
    """Returns training id → learning curve, ordered by step."""
    query = (
        select(TrainingMetric.training_id, TrainingMetric.data)
        .where(any_of(TrainingMetric.training_id, trainings))
        .order_by(TrainingMetric.training_id, TrainingMetric.step)
    )
    by_training: dict[str, list[CurvePoint]] = {}
    for training_id, data in session.execute(query):
        if data.get("valid_loss") is not None:
            by_training.setdefault(training_id, []).append(CurvePoint(data["tokens"], data["valid_loss"]))
    return by_training


def _groups(trained: Sequence[TrainedModel]) -> list[tuple[ScalingLaw, list[TrainedModel], list[Architecture]]]:
    """Groups the models by the scaling law of their family (base law), in the order of the laws' names. Leaves out
    models without a usable perplexity or a base law, and trainings that are too short to rank models. The order within
    a group does not depend on ids.

    If a base law has only one training budget, its group has only the models with the most frequent training length; of
    equally frequent lengths, the longest.
    """
    by_law: dict[str, tuple[ScalingLaw, list[TrainedModel], list[Architecture]]] = {}
    for model in trained:
        if model.details.get("too_short") or not (math.isfinite(model.perplexity) and model.perplexity > 0):
            continue
        architecture = Architecture.model_validate(model.architecture)
        base = law_for(architecture)
        if isinstance(base, ScalingLaw):
            _, models, architectures = by_law.setdefault(base.origin.name, (base, [], []))
            models.append(model)
            architectures.append(architecture)
    groups = []
    for _, (base, models, architectures) in sorted(by_law.items()):
        lengths = Counter(model.length for model in models)
        longest = {model.length: model.steps for model in models}
        usual = max(lengths, key=lambda length: (lengths[length], longest[length], length))
        kept = [place for place, model in enumerate(models) if base.study.budgets or model.length == usual]
        groups.append((base, [models[place] for place in kept], [architectures[place] for place in kept]))
    return groups


# Fitting -------------------------------------------------------------------------------------------------------------


def _fitted(
    base: ScalingLaw,
    models: Sequence[TrainedModel],
    architectures: Sequence[Architecture],
    curves: Mapping[str, Sequence[CurvePoint]],
    recipe_key: str,
) -> tuple[ScalingLaw, str, list[LeftOut]]:
    """Returns the refined law, the name of the base law, and the leave-one-out prediction of each training."""
    first = models[0]
    best = [data_of_training(model, curves.get(model.training_id, ())) for model in models]
    logs = [math.log(model.perplexity) for model in models]
    ends = [(place, tokens, end) for place, ((tokens, _), end) in enumerate(zip(best, logs, strict=True))]
    points = [
        (place, point.tokens, logs[place] + point.loss)
        for place, (_, curve) in enumerate(best)
        for point in (curve if base.study.budgets else ())
    ]
    chosen = [*ends, *points]  # final losses first, because excess rows at the end are dropped
    shapes = Shapes.of(architectures)
    own = own_trainings(
        base,
        shapes.take(np.array([place for place, _, _ in chosen])),
        [math.log(tokens) for _, tokens, _ in chosen],
        [log for _, _, log in chosen],
        [f"{place:09}" for place, _, _ in chosen],
    )
    short = f"recipe {first.recipe.get('name', '')}"
    length = "" if base.study.budgets else f", {first.steps or first.recipe.get('steps', 0):,} steps at most"
    origin = Origin(
        name=f"{base.origin.name}-{recipe_key[:10]}",
        title=f"{base.origin.name} after trainings on {first.dataset}"[:500],
        family=base.origin.family,
        data=data_in_words(first.dataset, first.dataset_digest),
        split="validation",
        tokens="token of the data set as it is prepared here",
        trained=f"with {short}{length}",
        how=short + length,
        source="trainings of this service",
    )
    law = base.refined(own, origin)
    if base.study.budgets:
        law = law.at_tokens(float(sorted(tokens for tokens, _ in best)[len(best) // 2]))
    log_tokens = np.log([tokens for tokens, _ in best]) if base.study.budgets else law.log_tokens(shapes)
    inputs = rounded_features(shapes)
    found: dict[int, LeftOut] = {}
    for row in np.unique(inputs, axis=0):
        places = np.flatnonzero((inputs == row).all(1))
        others = law.without(row)
        predicted = None if others.relative_to is not None else others.at(shapes.take(places), log_tokens[places])
        for index, place in enumerate(places.tolist()):
            model = models[place]
            found[place] = LeftOut(
                training_id=model.training_id,
                digest=model.digest,
                trained=model.perplexity,
                predicted=None if predicted is None else float(predicted.perplexity[index]),
                low=None if predicted is None else float(predicted.low[index]),
                high=None if predicted is None else float(predicted.high[index]),
            )
    return law, base.origin.name, [found[place] for place in sorted(found)]
