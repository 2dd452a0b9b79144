"""Workers claim trainings by leases, report on these trainings, and release them.

A claim raises the training's fencing token (`fence`). A report with an older token, or for a released training, raises
`Conflict`; a report for a deleted training raises `NotFound`. In both cases the worker ends its run, and the report is
not stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, NotFound
from edgefront.core.common.states import (
    LIVE_TRAININGS,
    RunOutcome,
    TrainingCommand,
    TrainingEventKind,
    TrainingKind,
    TrainingState,
    WorkKind,
)
from edgefront.core.services import event_log, tasks, work
from edgefront.core.services.event_log import Entry
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.transitions import change_state
from edgefront.core.services.trainings.views import alike_options, inherits, start_of, too_short
from edgefront.core.store.database import enqueue
from edgefront.core.store.sql import Document, lock_name
from edgefront.core.store.tables import Training
from edgefront.core.training.recipes.recipe import Recipe

TRAINING_ATTEMPTS = 3

LOST = "the worker was lost during this training"


@dataclass(frozen=True)
class Machine:
    """A worker's resources for trainings. `gpus`: number of the GPU on the machine → bytes of its memory."""

    worker: str
    slots: int
    memory_bytes: int
    gpus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingClaim:
    training_id: str
    fence: int


@dataclass(frozen=True)
class RunReport:
    """Data that a run has written since the previous report.

    `metrics` are the new metric lines of the run, ordered by step. With `whole` they are all lines of the run, and
    stored lines that are not among them are removed.
    """

    state: TrainingState | None = None
    step: int = 0
    steps: int = 0
    seconds_left: float | None = None
    note: str = ""
    checkpoint: int | None = None
    metrics: Sequence[Document] = ()
    whole: bool = False


@dataclass(frozen=True)
class ReportedScore:
    """One evaluation of a trained model."""

    split: str
    metric: str
    value: float
    details: Document = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedRun:
    """Final report of a run, with result and scores if the run is done."""

    outcome: RunOutcome
    reason: str = ""
    result: Document | None = None
    scores: Sequence[ReportedScore] = ()


def claim(session: Session, machine: Machine, queue: str, now: datetime, ttl_s: float) -> TrainingClaim | None:
    """Claims the next training of the queue, by turns of the owners, among those that fit the worker's free resources.
    Returns None if no training fits.
    """
    lock_name(session, "worker", machine.worker)  # concurrent claims of one worker count its slots one after another
    claimed = training_queries.claimed_by(session, machine.worker)
    free: dict[int, int] = {}
    if queue == "cpu":
        on_cpu = [training.memory_bytes or 0 for training in claimed if training.device == "cpu"]
        if len(on_cpu) >= machine.slots:
            return None
        memory = {0: machine.memory_bytes - sum(on_cpu)}
    else:
        taken = {number for training in claimed for number in training.gpu_numbers}
        free = {number: size for number, size in machine.gpus.items() if number not in taken}
        # Number of GPUs → memory of the smallest GPU among that many largest ones.
        memory = dict(enumerate(sorted(free.values(), reverse=True), start=1))
    training = training_queries.claimable(session, queue, memory)
    if training is None:
        return None
    training.fence += 1
    training.worker, training.gpu_numbers = machine.worker, _gpus_for(training, free)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    training.running_since = None
    training.started_at = training.started_at or now
    change_state(session, training, TrainingState.STARTING, now)
    return TrainingClaim(training.id, training.fence)


def _gpus_for(training: Training, free: Mapping[int, int]) -> list[int]:
    """Returns the numbers of the GPUs for a training, chosen from `free` (GPU number → bytes): the smallest GPUs with
    enough memory, because larger GPUs stay free for larger trainings, or the first GPUs if the training states no
    memory.
    """
    count, memory_bytes = training.gpus or 0, training.memory_bytes
    if memory_bytes is None:
        return sorted(free)[:count]
    fitting = [number for number, size in free.items() if size >= memory_bytes]
    return sorted(sorted(fitting, key=lambda number: (free[number], number))[:count])


def lock_claimed(session: Session, training_id: str, fence: int) -> Training:
    """Locks and returns the training claimed with this fencing token.

    Raises:
        NotFound: the training was deleted.
        Conflict: the training was released, or claimed by another worker.
    """
    return _checked(training_queries.lock(session, training_id), training_id, fence)


def _checked(training: Training | None, training_id: str, fence: int) -> Training:
    if training is None:
        raise NotFound(f"training {training_id!r} does not exist any more: it was deleted")
    if training.fence != fence or training.state not in LIVE_TRAININGS:
        raise Conflict(f"training {training.id} is no longer leased with fencing token {fence}", state=training.state)
    return training


def start(
    session: Session,
    training_id: str,
    fence: int,
    trained: Document | None,
    dataset_digest: str,
    now: datetime,
    ttl_s: float,
    note: str = "",
) -> None:
    """Marks the run as started: a later crash is charged as an attempt. `trained`: the trained architecture."""
    training = lock_claimed(session, training_id, fence)
    training.dataset_digest = dataset_digest
    training.note = note  # the former note said what the training waited for
    if note:
        event_log.append(session, training.id, [Entry(TrainingEventKind.NOTE, {"note": note})], now)
    training.running_since = now
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    training.trained = None if trained is None else dict(trained)
    training.updated_at = now


def read_command(session: Session, training_id: str, fence: int) -> TrainingCommand:
    """Reads the owner's command (run, pause or cancel) without a lock. Same errors as `lock_claimed`."""
    return _checked(training_queries.find(session, training_id), training_id, fence).wanted


def heartbeat(
    session: Session, training_id: str, fence: int, note: str, now: datetime, ttl_s: float
) -> TrainingCommand:
    """Extends the lease before the run starts, and stores a note on why the run waits. Returns the owner's command."""
    training = lock_claimed(session, training_id, fence)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    if note != training.note:
        change_state(session, training, training.state, now, note=note)
    return training.wanted


def report(
    session: Session, training_id: str, fence: int, report: RunReport, now: datetime, ttl_s: float
) -> TrainingCommand:
    """Stores a report of a run and extends the lease. Returns the owner's command."""
    training = lock_claimed(session, training_id, fence)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    _store_report(session, training, report, now)
    return training.wanted


def finish(session: Session, training_id: str, fence: int, report: RunReport, run: FinishedRun, now: datetime) -> str:
    """Stores the final report of a run that has ended, and returns the training's new state.

    A done run ends the training. Otherwise the owner's command to pause or cancel takes effect. A stopped run waits in
    its queue, and no attempt is charged. A failed run waits for another attempt, up to `TRAINING_ATTEMPTS` in a row
    without a new checkpoint.
    """
    training = lock_claimed(session, training_id, fence)
    _store_report(session, training, report, now)
    training.running_since = None
    training.seconds_left = None
    if run.outcome == RunOutcome.DONE:
        training.result = None if run.result is None else dict(run.result)
        training.wanted, training.reason = TrainingCommand.RUN, None
        training.attempts, training.failed_at_checkpoint = 0, None
        _store_scores(session, training, run.scores, now)
        _end(session, training, TrainingState.DONE, now, note=training.note)
    elif run.outcome == RunOutcome.INVALID:
        training.reason = run.reason
        _end(session, training, TrainingState.FAILED, now)
    elif training.wanted == TrainingCommand.CANCEL:
        _end(session, training, TrainingState.CANCELLED, now)
    elif run.outcome in (RunOutcome.SMALLER, RunOutcome.STOPPED):
        _release(session, training, now, run.reason)
    else:
        _count_attempt(session, training, run.reason or "the run ended", now)
    enqueue(session, tasks.TRAIN, queue=training.queue)  # the worker's slot is free again
    return training.state


def release(session: Session, training_id: str, fence: int, note: str, now: datetime) -> None:
    """Releases a training whose run has not started, without charging an attempt."""
    training = lock_claimed(session, training_id, fence)
    _release(session, training, now, note)
    enqueue(session, tasks.TRAIN, queue=training.queue)


def return_expired(session: Session, now: datetime) -> None:
    """Releases trainings whose lease has expired, and charges an attempt if the run had started. Locked rows are left
    for the next sweep.
    """
    for training in training_queries.expired(session, now):
        if training.wanted == TrainingCommand.CANCEL:
            _end(session, training, TrainingState.CANCELLED, now)
        elif training.running_since is None:
            _release(session, training, now, "")
        else:
            _count_attempt(session, training, LOST, now)
        training.running_since = None
        enqueue(session, tasks.TRAIN, queue=training.queue)


def _release(session: Session, training: Training, now: datetime, note: str) -> None:
    if training.wanted == TrainingCommand.CANCEL:
        _end(session, training, TrainingState.CANCELLED, now)
        return
    training.lease_expires_at = None
    training.seconds_left = None
    change_state(
        session,
        training,
        TrainingState.PAUSED if training.wanted == TrainingCommand.PAUSE else TrainingState.QUEUED,
        now,
        note=note,
    )


def _count_attempt(session: Session, training: Training, reason: str, now: datetime) -> None:
    """Charges a failed attempt. The third consecutive failure without a new checkpoint fails the training."""
    checkpoint = -1 if training.checkpoint is None else training.checkpoint
    is_further = training.failed_at_checkpoint is None or checkpoint > training.failed_at_checkpoint
    training.attempts = 1 if is_further else training.attempts + 1
    training.failed_at_checkpoint = checkpoint
    if training.attempts >= TRAINING_ATTEMPTS:
        training.reason = f"{TRAINING_ATTEMPTS} attempts; the last: {reason}"
        _end(session, training, TrainingState.FAILED, now)
    else:
        where = "from the beginning" if training.checkpoint is None else f"from step {training.checkpoint}"
        note = f"attempt {training.attempts} of {TRAINING_ATTEMPTS} failed: {reason}; it resumes {where}"
        _release(session, training, now, note)


def _end(session: Session, training: Training, state: TrainingState, now: datetime, *, note: str = "") -> None:
    training.lease_expires_at = None
    training.finished_at = now
    training.seconds_left = None
    change_state(session, training, state, now, note=note)
    if training.kind == TrainingKind.SUPERNET and training.target_id is not None:
        enqueue(session, tasks.ADVANCE, target_id=training.target_id)


def _store_report(session: Session, training: Training, report: RunReport, now: datetime) -> None:
    entries: list[Entry] = []
    metrics, rewound = _changed_metrics(session, training.id, report)
    if rewound is not None:
        entries.append(Entry(TrainingEventKind.REWOUND, {"step": rewound}))
    entries += [Entry(TrainingEventKind.METRIC, dict(metric)) for metric in metrics]
    training_queries.put_metrics(session, training.id, metrics)
    if report.metrics:
        last = report.metrics[-1]
        training.last_metric = _last_metric({} if report.whole else training.last_metric or {}, report.metrics)
        training.tokens, training.seconds = int(last["tokens"]), float(last["seconds"])
    elif report.whole:
        training.last_metric, training.tokens, training.seconds = None, 0, 0.0
    if report.state:
        training.step, training.steps, training.seconds_left = report.step, report.steps, report.seconds_left
    if report.checkpoint != training.checkpoint and (report.checkpoint is not None or report.whole):
        training.checkpoint = report.checkpoint
        if report.checkpoint is not None:
            entries.append(Entry(TrainingEventKind.CHECKPOINT, {"step": report.checkpoint}))
    if report.note and report.note != training.note:
        training.note = report.note
        entries.append(Entry(TrainingEventKind.NOTE, {"note": report.note}))
    training.updated_at = now
    event_log.append(session, training.id, entries, now)
    if report.state in LIVE_TRAININGS and report.state != training.state:
        change_state(session, training, report.state, now, note=training.note)


def _last_metric(before: Document, metrics: Sequence[Document]) -> Document:
    """Returns the latest value of each figure over all metric lines, because few lines contain a validation."""
    figures = {name: value for name, value in before.items() if name != "extra"}
    for metric in metrics:
        figures.update({name: value for name, value in metric.items() if name != "extra"})
    return figures | {name: value for name, value in metrics[-1].items() if name == "extra"}


def _changed_metrics(session: Session, training_id: str, report: RunReport) -> tuple[list[Document], int | None]:
    """Returns a pair: new and changed metrics, merged by step, and the step after which stored metrics were removed."""
    merged: dict[int, Document] = {}
    for metric in report.metrics:  # a step may have one line with its loss and another line with its validation
        merged[metric["step"]] = merged.get(metric["step"], {}) | dict(metric)
    if not report.whole:
        stored = training_queries.metrics_at(session, training_id, merged)
        return [stored.get(step, {}) | metric for step, metric in sorted(merged.items())], None
    stored = dict(training_queries.metrics(session, training_id))
    removed = sorted(set(stored) - set(merged))
    training_queries.remove_metrics(session, training_id, removed)
    changed = [metric for step, metric in sorted(merged.items()) if stored.get(step) != metric]
    if not removed:
        return changed, None
    return changed, max((step for step in stored if step < removed[0]), default=0)


def _key(recipe: Recipe, *values: object) -> str:
    described = [recipe.effective(), recipe.evaluation.model_dump(mode="json"), *values]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _store_scores(session: Session, training: Training, scores: Sequence[ReportedScore], now: datetime) -> None:
    if training.digest is None or training.recipe is None or training.budget is None or not scores:
        return
    recipe = Recipe.parse(training.recipe)
    start = start_of(training)
    initial_weights = f"{start}, a part" if inherits(training) else start
    budget = {name: value for name, value in training.budget.items() if value is not None}
    # The key is equal for comparable scores: equal length, recipe, data and evaluation.
    key = _key(recipe, budget, training.dataset_digest, initial_weights)
    # Scaling laws cover only models without inherited weights.
    recipe_key = None if inherits(training) else _key(recipe, training.dataset_digest, initial_weights)
    evaluations = [
        {
            "owner": training.owner,
            "digest": training.digest,
            "training_id": training.id,
            "recipe_key": recipe_key,
            "dataset": training.dataset,
            "split": score.split,
            "metric": score.metric,
            "value": score.value,
            "details": {
                "recipe": training.recipe_name,
                "comparability_key": key,
                "seed": training.seed,
                "dataset_digest": training.dataset_digest,
                "options": alike_options(training),
                "too_short": bool(too_short(training)),
                **score.details,
            },
            "created_at": now,
        }
        for score in scores
    ]
    training_queries.save_evaluations(session, evaluations)
    if recipe_key is not None:
        work.request(session, WorkKind.LEARN, {f"{recipe_key} {training.owner}": training.owner}, now)
        work.wake(session, work.SEARCH)
    columns = ("dataset", "split", "metric", "value")
    entries = [Entry(TrainingEventKind.EVALUATION, {name: row[name] for name in columns}) for row in evaluations]
    event_log.append(session, training.id, entries, now)
