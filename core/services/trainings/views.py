"""Converts database rows of trainings to the API's views."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import partial
from typing import cast

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.states import LIVE_TRAININGS, TrainingCommand, TrainingState
from edgefront.core.common.units import GIB
from edgefront.core.schemas.trainings import (
    Device,
    EvaluationView,
    MeasuredCandidateView,
    MetricView,
    Requirements,
    TrainingBudget,
    TrainingView,
)
from edgefront.core.services.stored import PROTOCOL, RowReader, described
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.downloads import formats_of_trained
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate, Evaluation, Target, Training

_COMPUTED = {"state", "note", "architecture", "trained", "recipe", "budget", "queue", "last_metric", "result"}
_COLUMNS = sorted(TrainingView.model_fields.keys() & set(Training.__table__.columns.keys()) - _COMPUTED)
_DOCUMENT: TypeAdapter[Document | None] = TypeAdapter(Document | None)


def training_views(session: Session, trainings: Sequence[Training]) -> list[TrainingView]:
    """Returns views of trainings with their scores and the measurements of their candidates."""
    scores = training_queries.evaluations_of(session, [training.id for training in trainings])
    candidates = training_queries.measured(
        session, {training.candidate_id for training in trainings if training.candidate_id}
    )
    return [
        _view(session, training, scores[training.id], candidates.get(training.candidate_id or ""))
        for training in trainings
    ]


def training_view(session: Session, training: Training) -> TrainingView:
    return training_views(session, [training])[0]


def start_of(training: Training) -> str | None:
    """Id of the training whose weights initialise this training; None for random weights."""
    return training.request.get("start")


def inherits(training: Training) -> bool:
    """Whether the model is a submodel that inherits its initial weights from the model of `start_of`."""
    return bool(training.request.get("inherit", False))


def vocabulary_of_start(session: Session, training: Training) -> int | None:
    """Vocabulary size of the model whose weights initialise the training; None for random weights."""
    start = start_of(training)
    row = None if start is None else training_queries.find(session, start)
    if row is None or row.trained is None:
        return None
    return Architecture.parse(row.trained).embedding.vocab_size


def licence_of(training: Training) -> str | None:
    """Licence of the weights, as the request states it; None if not stated."""
    return training.request.get("licence")


def requested_dataset(training: Training) -> str | None:
    """Name of the requested data set; None for the recipe's default."""
    return training.request.get("dataset")


def card_facts(session: Session, training: Training, digest: str | None) -> Document:
    """Returns entries for the model card that the run itself does not know: names, licence and measurements.

    `digest` is the digest of the trained architecture, with the vocabulary of its data. The measurements are those of
    this architecture in all of the owner's jobs or, if there are none, those of the training's candidate.
    """
    origin: Document = {"name": training.name, "training": training.id}
    if (start := start_of(training)) is not None:
        origin["start"] = {"training": start}
        parent = session.get(Training, start)
        named = origin["start"] if parent is None else {**origin["start"], "name": parent.name}
        if (training.recipe or {}).get("distil") is not None:
            origin["teacher"] = named
        if inherits(training):
            parent_licence = None if parent is None else licence_of(parent)
            origin["parent"] = named if parent_licence is None else {**named, "licence": parent_licence}
    if (licence := licence_of(training)) is not None:
        origin["licence"] = licence
    pairs = [] if digest is None else training_queries.measured_as(session, training.owner, digest)
    if training.candidate_id is not None and not pairs:
        pairs = list(training_queries.measured(session, [training.candidate_id]).values())
    measured = [_measurement(candidate, target) for candidate, target in pairs]
    if views := [item for item in measured if item is not None]:
        origin["measurements"] = views
    return origin


def _measurement(candidate: Candidate, target: Target) -> Document | None:
    protocol = PROTOCOL.read_or(target.protocol, None)
    if candidate.latency_ms is None or protocol is None:
        return None
    return {
        "device": target.name,
        "protocol": protocol.setup,
        "latency_ms": candidate.latency_ms,
        "latency_half_width_ms": candidate.latency_half_width_ms,
        "peak_bytes": candidate.memory_bytes,
        "digest": candidate.digest,
        "vocab_size": candidate.architecture["embedding"]["vocab_size"],
    }


def evaluation_view(row: Evaluation) -> EvaluationView:
    names = EvaluationView.model_fields
    return EvaluationView(**{name: getattr(row, name) for name in names})


def _view(
    session: Session, training: Training, scores: Sequence[Evaluation], measured: tuple[Candidate, Target] | None
) -> TrainingView:
    reader = RowReader()
    last, budget = training.last_metric, training.budget
    start, inherit, licence = reader.read(lambda: (start_of(training), inherits(training), licence_of(training))) or (
        None,
        False,
        None,
    )
    view = TrainingView(
        **{name: getattr(training, name) for name in _COLUMNS},
        state=TrainingState(training.state),
        note="",
        architecture=reader.read(lambda: training.architecture and described(training.architecture)) or {},
        trained=reader.read(lambda: None if training.trained is None else described(training.trained)),
        measured=None
        if measured is None
        else MeasuredCandidateView(
            target=measured[1].name,
            latency_ms=measured[0].latency_ms,
            latency_half_width_ms=measured[0].latency_half_width_ms,
            memory_bytes=measured[0].memory_bytes,
            on_frontier=measured[0].on_frontier,
        ),
        recipe=reader.read(lambda: _DOCUMENT.validate_python(training.recipe)),
        start=start,
        inherit=inherit,
        licence=licence,
        budget=None if budget is None else reader.read(lambda: TrainingBudget(**budget)),
        requires=_requirements(training),
        queue=None if training.queue is None else f"train-{training.queue}",
        last_metric=None if last is None else reader.read(lambda: MetricView(**last)),
        result=reader.read(lambda: _DOCUMENT.validate_python(training.result)),
        formats=reader.read(lambda: formats_of_trained(training)) or (),
        evaluations=tuple(view for row in scores if (view := reader.read(partial(evaluation_view, row))) is not None),
    )
    notes = [text for text in (_note(session, training), reader.read(lambda: _too_short_to_compare(training))) if text]
    return view.model_copy(update={"note": reader.note("; ".join(notes)) or ""})


def alike_options(training: Training) -> str:
    """Options of `edgefront train submit` by which another model is trained like this one."""
    request, budget = training.request, training.budget or {}
    options = {"data": training.dataset, "recipe": training.recipe_name, "start": start_of(training)}
    options |= {name: budget.get(name) for name in ("steps", "tokens", "hours")}
    words = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
    for name, value in request.get("overrides", {}).items():
        fields = {f"{name}.{part}": of for part, of in value.items()} if isinstance(value, dict) else {name: value}
        words += [("--set", f"{path}={of if isinstance(of, str) else json.dumps(of)}") for path, of in fields.items()]
    return shlex.join(word for pair in words for word in pair)


def too_short(training: Training) -> int:
    """Tokens of a training from random weights that reads fewer tokens than the model has parameters; else 0. Such a
    training ranks no models and teaches no scaling law.
    """
    recipe = training.recipe if isinstance(training.recipe, dict) else {}
    tokens: int = training.steps * recipe.get("rows", 0) * recipe.get("segment", 0)
    return tokens if start_of(training) is None and tokens < (training.decoder_parameters or 0) else 0


def _too_short_to_compare(training: Training) -> str:
    tokens = too_short(training) if training.state in (*LIVE_TRAININGS, TrainingState.DONE) else 0
    if not tokens:
        return ""
    return (
        f"too short to compare models: {training.steps:,} steps read {tokens:,} tokens, fewer than the model has "
        "parameters"
    )


def _requirements(training: Training) -> Requirements | None:
    if training.gpus is None:
        return None
    return Requirements(
        device=cast(Device, training.device),
        gpus=max(1, training.gpus),
        memory_gb=None if training.memory_bytes is None else training.memory_bytes / GIB,
    )


def _note(session: Session, training: Training) -> str:
    """Returns a text: the stored note, and the reason why the training waits or stops."""
    parts = [training.note] if training.note else []
    if training.state == TrainingState.QUEUED:
        ahead = training_queries.count_ahead(session, training)
        parts.append(
            f"trainings ahead in the queue train-{training.queue}: {ahead}"
            if ahead
            else f"waits for a worker that serves train-{training.queue} and has a free slot"
        )
        if training.memory_bytes is not None:  # the queue's name does not contain it
            parts.append(
                f"needs a worker with {training.memory_bytes / GIB:g} GiB{' on each GPU' * bool(training.gpus)}"
            )
    elif training.state in LIVE_TRAININGS and training.wanted != TrainingCommand.RUN:
        parts.append("stops after the current step" if training.wanted == TrainingCommand.PAUSE else "ends")
    return "; ".join(parts)
