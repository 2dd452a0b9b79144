"""Trainings: create, get, list, pause, resume, cancel, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, NotFound
from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    ENDED_TRAININGS,
    LIVE_TRAININGS,
    KeyRole,
    TrainingCommand,
    TrainingKind,
    TrainingState,
)
from edgefront.core.schemas.trainings import (
    MetricPage,
    MetricView,
    ProbabilitiesView,
    ProbabilityRecord,
    Requirements,
    SearchProgress,
    TrainingEstimate,
    TrainingPage,
    TrainingRequest,
    TrainingView,
)
from edgefront.core.search.supernet_settings import BLOCK_TYPES
from edgefront.core.services import tasks
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.cursor import newest_page
from edgefront.core.services.idempotency import add_once, check_key, check_same, request_digest
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import RowReader
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.folder import check_stored
from edgefront.core.services.trainings.plan import (
    Resources,
    check_selection,
    evenly,
    plan_for,
    read_selection,
    resolved_recipe,
    resources_for,
)
from edgefront.core.services.trainings.transitions import (
    change_state,
    check_trains,
    log_state,
    pause,
    request_command,
    resume,
)
from edgefront.core.services.trainings.views import licence_of, training_view, training_views
from edgefront.core.store.database import Database, enqueue
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate, Target, Training
from edgefront.core.training.recipes.recipe import Recipe

MAX_PAGE = 200
MAX_METRICS = 10_000
MAX_RECORDS = 1000


def submit_trainings(
    database: Database,
    principal: Principal,
    request: TrainingRequest,
    settings: Settings,
    idempotency_key: str | None = None,
) -> tuple[TrainingView, ...]:
    """Stores a training for each architecture of the request, and notifies the workers.

    The request is resolved outside a transaction. A repeated request with the same `idempotency_key` returns the
    trainings of the first request.

    Raises:
        InvalidInput: architecture, recipe, overrides, data set or limits are invalid; the error names the field.
        NotFound: the model, candidate, job or target does not exist.
        Conflict: the key was used with another request.
        BoundReached: the owner's files have reached their limit.
    """
    principal.require(KeyRole.USER)
    stored = request.model_dump(mode="json", exclude_defaults=True)
    digest = request_digest(stored)
    with database.read() as session:
        if idempotency_key is not None:
            check_key(idempotency_key)
            if earlier := training_queries.find_by_key(session, principal.owner, idempotency_key):
                return _same(session, earlier, digest)
        selection = read_selection(session, principal, request)
    plan = plan_for(request, selection, settings)
    check_stored(database, principal.owner, settings)
    if selection.start is not None:
        stored["start"] = selection.start.id
        if request.licence is None and (licence := licence_of(selection.start)) is not None:
            stored["licence"] = licence
    with database.write() as session:
        check_selection(session, selection)
        now = database.now(session)
        trainings = [
            _queued(
                plan.recipe,
                plan.resources,
                now,
                owner=principal.owner,
                name=subject.name,
                kind=TrainingKind.TRAINING,
                position=position,
                architecture=subject.architecture.canonical,
                digest=subject.architecture.digest,
                decoder_parameters=subject.decoder_parameters,
                **_origin(subject.candidate),
                dataset=plan.dataset,
                dataset_digest=plan.dataset_digest,
                budget=request.budget.model_dump(mode="json", exclude_none=True),
                seed=request.seed,
                request=stored,
                request_digest=digest,
                idempotency_key=idempotency_key,
            )
            for position, subject in enumerate(plan.subjects)
        ]
        former = add_once(
            session,
            trainings,
            lambda: training_queries.find_by_key(session, principal.owner, idempotency_key or ""),
        )
        if former is not None:
            return _same(session, former, digest)
        for training in trainings:
            _begin(session, training, now)
        return tuple(training_views(session, trainings))


def estimate_trainings(
    database: Database, principal: Principal, request: TrainingRequest, settings: Settings
) -> TrainingEstimate:
    """Estimates the trainings of a request. Same errors as `submit_trainings` except `BoundReached`."""
    principal.require(KeyRole.USER)
    with database.read() as session:
        selection = read_selection(session, principal, request)
    plan = plan_for(request, selection, settings)
    tokens = plan.recipe.tokens_within(request.budget.steps, request.budget.tokens)
    return TrainingEstimate(trainings=len(plan.subjects), recipe=plan.recipe.name, dataset=plan.dataset, tokens=tokens)


@dataclass(frozen=True)
class SupernetRequest:
    """Request of a search to train its supernet."""

    owner: str
    name: str
    dataset: str
    recipe: str
    """Name of the recipe."""
    seed: int
    dataset_digest: str | None = None
    overrides: Document = field(default_factory=dict)
    """Fields of the recipe with replaced values."""
    supernet: Document = field(default_factory=dict)
    """Settings of the supernet: `core.search.supernet_settings`."""
    budget: Document = field(default_factory=dict)
    """Steps or hours: `core.schemas.trainings.TrainingBudget`."""
    job_id: str | None = None
    target_id: str | None = None
    """The target that waits for the supernet."""
    requires: Requirements = field(default_factory=Requirements)


def create_supernet(session: Session, request: SupernetRequest, settings: Settings, now: datetime) -> Training:
    """Queues the training of a search's supernet. When this training ends, the search continues."""
    training = _queued(
        resolved_recipe(request.recipe, dict(request.overrides)),
        resources_for(request.requires, settings),
        now,
        owner=request.owner,
        name=request.name[:100],
        kind=TrainingKind.SUPERNET,
        request={},
        request_digest="",
        architecture={},
        job_id=request.job_id,
        target_id=request.target_id,
        dataset=request.dataset,
        dataset_digest=request.dataset_digest,
        budget=dict(request.budget),
        supernet=dict(request.supernet),
        seed=request.seed,
    )
    session.add(training)
    session.flush()
    _begin(session, training, now)
    return training


def get_training(session: Session, principal: Principal, training_id: str) -> TrainingView:
    """Returns the training. `NotFound` for an unknown training or another owner's training."""
    return training_view(session, training_of(session, principal, training_id))


def list_trainings(
    session: Session,
    principal: Principal,
    *,
    state: TrainingState | None = None,
    job_id: str | None = None,
    digest: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> TrainingPage:
    """Lists trainings, newest first: the caller's own trainings, or all trainings for an admin or a viewer. `state`,
    `job_id` and `digest` filter the list.
    """
    principal.require(KeyRole.USER, KeyRole.VIEWER)
    filters = {"owner": None if principal.reads_all else principal.owner, "state": state, "job_id": job_id}
    trainings, following = newest_page(
        session, Training, cursor, max(1, min(limit, MAX_PAGE)), digest=digest, **filters
    )
    return TrainingPage(items=tuple(training_views(session, trainings)), next_cursor=following)


def list_metrics(
    session: Session, principal: Principal, training_id: str, *, after: int = -1, limit: int = 1000
) -> MetricPage:
    """Lists the metrics of a training at steps above `after`, ordered by step."""
    training = training_of(session, principal, training_id)
    limit = max(1, min(limit, MAX_METRICS))
    metrics = training_queries.metrics(session, training.id, after=min(after, (1 << 63) - 1), limit=limit + 1)
    items = tuple(_metric_view(step, metric) for step, metric in metrics[:limit])
    return MetricPage(items=items, next_step=items[-1].step if len(metrics) > limit else None)


def _metric_view(step: int, stored: Document) -> MetricView:
    reader = RowReader()
    view = reader.read(lambda: MetricView(**stored))
    return view or MetricView(step=step, tokens=0, seconds=0.0, extra={"note": reader.note()})


def read_probabilities(
    session: Session, principal: Principal, training_id: str, records: int = 100
) -> ProbabilitiesView:
    """Returns, per seed of a supernet, up to `records` records of block probabilities, evenly spread over the steps.

    `NotFound` if the training does not exist, belongs to another owner, or is not a supernet's.
    """
    training = training_of(session, principal, training_id)
    if training.kind != TrainingKind.SUPERNET:
        raise NotFound(f"training {training.id} trains one model: only a supernet has probabilities")
    by_seed: dict[int, list[Document]] = {}
    for _, metric in training_queries.metrics(session, training.id):
        if "probabilities" in metric.get("extra", {}):
            by_seed.setdefault(metric["extra"]["seed"], []).append(metric)
    live = None if training.state in ENDED_TRAININGS else max(by_seed, default=None)
    searches = tuple(_progress(seed, metrics, records, seed != live) for seed, metrics in by_seed.items())
    return ProbabilitiesView(training_id=training.id, choices=BLOCK_TYPES, searches=searches)


def _progress(seed: int, metrics: Sequence[Document], records: int, has_ended: bool) -> SearchProgress:
    last = metrics[-1]["extra"]
    return SearchProgress(
        seed=seed,
        phase="ended" if has_ended else last["phase"],
        pattern=last["pattern"],
        expected_ms=last.get("expected_ms"),
        records=tuple(
            ProbabilityRecord(
                step=metric["step"],
                temperature=metric["extra"]["temperature"],
                probabilities=tuple(tuple(row) for row in metric["extra"]["probabilities"]),
            )
            for metric in evenly(metrics, records)
        ),
    )


def pause_training(session: Session, principal: Principal, training_id: str, now: datetime) -> TrainingView:
    """Pauses the training after its current step, with a checkpoint. Idempotent."""
    training = _locked(session, principal, training_id)
    pause(session, training, now)
    return training_view(session, training)


def resume_training(session: Session, principal: Principal, training_id: str, now: datetime) -> TrainingView:
    """Resumes a paused or failed training from its latest checkpoint, and resets the count of failed attempts."""
    training = _locked(session, principal, training_id)
    resume(session, training, now)
    return training_view(session, training)


def cancel_training(session: Session, principal: Principal, training_id: str, now: datetime) -> TrainingView:
    """Ends the training permanently. Its checkpoints stay. Idempotent."""
    training = _locked(session, principal, training_id)
    check_trains(training, "cancelled")
    if training.state in LIVE_TRAININGS:
        request_command(session, training, TrainingCommand.CANCEL, now)
    elif training.state in (TrainingState.QUEUED, TrainingState.PAUSED):
        training.wanted, training.finished_at = TrainingCommand.CANCEL, now
        change_state(session, training, TrainingState.CANCELLED, now)
    elif training.state != TrainingState.CANCELLED:
        raise Conflict(f"training {training.id} is {training.state} and cannot be cancelled")
    return training_view(session, training)


def delete_training(session: Session, principal: Principal, training_id: str) -> bool:
    """Deletes the training, its log and metrics. The model's scores stay, under the architecture's digest.

    Returns whether the training's folder can be removed at once. Otherwise the worker notices the deletion, ends the
    run and removes the folder. Raises `Conflict` for the supernet of a running search, because the search would request
    a new supernet.
    """
    training = _locked(session, principal, training_id)
    is_supernet = training.kind == TrainingKind.SUPERNET and training.target_id is not None
    target = session.get(Target, training.target_id) if is_supernet else None
    if target is not None and target.state in ACTIVE_TARGETS:
        raise Conflict(f"training {training.id} is the supernet of job {training.job_id}: end the job first")
    has_no_run = training.state not in LIVE_TRAININGS
    training_queries.remove(session, training.id)
    return has_no_run


def _queued(recipe: Recipe, resources: Resources, now: datetime, **values: Any) -> Training:
    return Training(
        recipe_name=recipe.name,
        recipe=recipe.model_dump(mode="json"),
        **resources._asdict(),
        state=TrainingState.QUEUED,
        wanted=TrainingCommand.RUN,
        created_at=now,
        updated_at=now,
        **values,
    )


def _origin(candidate: Candidate | None) -> dict[str, str]:
    if candidate is None:
        return {}
    return {"job_id": candidate.job_id, "target_id": candidate.target_id, "candidate_id": candidate.id}


def _begin(session: Session, training: Training, now: datetime) -> None:
    training_queries.take_turn(session, training)
    log_state(session, training, now)
    enqueue(session, tasks.TRAIN, queue=training.queue)


def _locked(session: Session, principal: Principal, training_id: str) -> Training:
    """Locks and returns the training, for a change by its owner."""
    principal.require(KeyRole.USER)
    training = training_of(session, principal, training_id)
    locked = training_queries.lock(session, training.id)
    if locked is None:  # deleted meanwhile
        session.expire_all()
        return training_of(session, principal, training_id)
    return locked


def _same(session: Session, former: list[Training], digest: str) -> tuple[TrainingView, ...]:
    check_same(former[0].request_digest, digest, f"training {former[0].id}")
    return tuple(training_views(session, former))
