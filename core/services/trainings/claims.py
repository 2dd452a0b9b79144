"""Workers claim trainings by leases, report on them, and release them.

A claim raises the training's fence. A report under an older fence, or for a training that was released, gets
`Conflict`; for a deleted training it gets `NotFound`. The run of the sender must end, and its report is ignored.
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
    TrainingCommand,
    TrainingEnding,
    TrainingEventKind,
    TrainingKind,
    TrainingState,
    WorkKind,
)
from edgefront.core.services import event_log, tasks, work
from edgefront.core.services.event_log import Entry
from edgefront.core.services.trainings.queries import log as training_log
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.services.trainings.transitions import change_state
from edgefront.core.services.trainings.views import inherits, start_of
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.sql import Document, lock_name
from edgefront.core.store.tables import Training
from edgefront.core.training.recipes.recipe import Recipe

MAX_ATTEMPTS = 3

LOST = "the worker was lost while it trained this"


@dataclass(frozen=True)
class Machine:
    """A worker's resources for trainings. GPUs: number on the machine → bytes of memory."""

    worker: str
    slots: int
    memory_bytes: int
    gpus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingClaim:
    training_id: str
    fence: int


@dataclass(frozen=True)
class Report:
    """What a run has written since the previous report.

    `metrics` are new lines of its metrics by rising step; with `whole` they are complete, and stored metrics that are
    not among them are removed.
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
class Score:
    """One evaluation of a trained model."""

    split: str
    metric: str
    value: float
    details: Document = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    ending: TrainingEnding
    reason: str = ""
    result: Document | None = None
    scores: Sequence[Score] = ()


def claim(session: Session, machine: Machine, queue: str, now: datetime, ttl_s: float) -> TrainingClaim | None:
    """Claims the next waiting training of the queue that fits the worker's free resources, owners in turn; None if
    there is none.
    """
    lock_name(session, "worker", machine.worker)  # its claims count its slots one after another
    held = rows.held_by(session, machine.worker)
    free: dict[int, int] = {}
    if queue == "cpu":
        on_cpu = [training.memory_bytes or 0 for training in held if training.device == "cpu"]
        if len(on_cpu) >= machine.slots:
            return None
        memory = {0: machine.memory_bytes - sum(on_cpu)}
    else:
        taken = {number for training in held for number in training.gpu_numbers}
        free = {number: size for number, size in machine.gpus.items() if number not in taken}
        # Number of GPUs → memory that each of them has at least, if they are the largest.
        memory = dict(enumerate(sorted(free.values(), reverse=True), start=1))
    training = rows.claimable(session, queue, memory)
    if training is None:
        return None
    training.fence += 1
    training.worker, training.gpu_numbers = machine.worker, _chosen(free, training.gpus or 0, training.memory_bytes)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    training.running_since = None
    training.started_at = training.started_at or now
    change_state(session, training, TrainingState.STARTING, now)
    return TrainingClaim(training.id, training.fence)


def _chosen(free: Mapping[int, int], count: int, memory_bytes: int | None) -> list[int]:
    """The GPUs (number → bytes) of a training: the smallest that have what each needs, so that the larger are left to
    those that need them; the first if it does not say.
    """
    if memory_bytes is None:
        return sorted(free)[:count]
    fitting = [number for number, size in free.items() if size >= memory_bytes]
    return sorted(sorted(fitting, key=lambda number: (free[number], number))[:count])


def held(session: Session, training_id: str, fence: int) -> Training:
    """The training that was claimed under this fence, locked.

    Raises:
        NotFound: it was deleted.
        Conflict: it was claimed by another worker or released in the meantime.
    """
    training = rows.lock(session, training_id)
    if training is None:
        raise NotFound(f"no training {training_id!r}: it was deleted")
    return _under(training, fence)


def _under(training: Training, fence: int) -> Training:
    if training.fence != fence or training.state not in LIVE_TRAININGS:
        raise Conflict(f"training {training.id} is no longer leased under fence {fence}", state=training.state)
    return training


def start(
    session: Session,
    training_id: str,
    fence: int,
    trained: Document | None,
    dataset_digest: str,
    now: datetime,
    ttl_s: float,
) -> None:
    """Marks the run as started: if it is lost from here on, that counts as an attempt. `trained` is the
    architecture.
    """
    training = held(session, training_id, fence)
    training.dataset_digest = dataset_digest
    training.note = ""  # the note that said what it waited for
    training.running_since = now
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    training.trained = None if trained is None else dict(trained)
    training.updated_at = now


def peek(session: Session, training_id: str, fence: int) -> TrainingCommand:
    """What the owner requests (run, pause or cancel); neither locks nor changes the row. Raises as `held` does."""
    training = rows.find(session, training_id)
    if training is None:
        raise NotFound(f"no training {training_id!r}: it was deleted")
    return _under(training, fence).wanted


def heartbeat(
    session: Session, training_id: str, fence: int, note: str, now: datetime, ttl_s: float
) -> TrainingCommand:
    """Extends the lease before the run starts and stores a note on what it waits for; returns what the owner
    requests.
    """
    training = held(session, training_id, fence)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    if note != training.note:
        change_state(session, training, training.state, now, note=note)
    return training.wanted


def report(
    session: Session, training_id: str, fence: int, said: Report, now: datetime, ttl_s: float
) -> TrainingCommand:
    """Stores a report and extends the lease; returns what the owner requests."""
    training = held(session, training_id, fence)
    training.lease_expires_at = now + timedelta(seconds=ttl_s)
    _take_in(session, training, said, now)
    return training.wanted


def finish(session: Session, training_id: str, fence: int, said: Report, outcome: Outcome, now: datetime) -> str:
    """The run has ended: stores its last report and determines the training's new state, which is returned.

    A training with a request to pause or cancel does so unless it is done. One that was stopped, by whomever, waits in
    its queue at no cost. A failed one waits for another attempt, up
    to `MAX_ATTEMPTS` in a row without a new checkpoint.
    """
    training = held(session, training_id, fence)
    _take_in(session, training, said, now)
    training.running_since = None
    training.seconds_left = None
    if outcome.ending == TrainingEnding.DONE:
        training.result = None if outcome.result is None else dict(outcome.result)
        training.wanted, training.reason = TrainingCommand.RUN, None
        training.attempts, training.failed_at_checkpoint = 0, None
        _score(session, training, outcome.scores, now)
        _end(session, training, TrainingState.DONE, now, note=training.note)
    elif outcome.ending == TrainingEnding.INVALID:
        training.reason = outcome.reason
        _end(session, training, TrainingState.FAILED, now)
    elif training.wanted == TrainingCommand.CANCEL:
        _end(session, training, TrainingState.CANCELLED, now)
    elif outcome.ending in (TrainingEnding.SMALLER, TrainingEnding.STOPPED):
        _release(session, training, now, outcome.reason)
    else:
        _count_attempt(session, training, outcome.reason or "the run ended", now)
    # Its slot is free.
    enqueue(session, tasks.TRAIN, queue=training.queue)
    return training.state


def release(session: Session, training_id: str, fence: int, note: str, now: datetime) -> None:
    """Releases a training whose run has not started. No attempt is counted."""
    training = held(session, training_id, fence)
    _release(session, training, now, note)
    enqueue(session, tasks.TRAIN, queue=training.queue)


def return_expired(session: Session, now: datetime) -> None:
    """Releases trainings whose lease has expired; an attempt is counted for those whose run had started. Rows that
    others have locked are left for the next pass.
    """
    for training in rows.expired(session, now):
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
    """Counts a failure: the training fails if it is the third in a row without a new checkpoint."""
    reached = -1 if training.checkpoint is None else training.checkpoint
    further = training.failed_at_checkpoint is None or reached > training.failed_at_checkpoint
    training.attempts = 1 if further else training.attempts + 1
    training.failed_at_checkpoint = reached
    if training.attempts >= MAX_ATTEMPTS:
        training.reason = f"{MAX_ATTEMPTS} attempts; the last: {reason}"
        _end(session, training, TrainingState.FAILED, now)
    else:
        where = "from the beginning" if training.checkpoint is None else f"from step {training.checkpoint}"
        note = f"attempt {training.attempts} of {MAX_ATTEMPTS} failed: {reason}; it resumes {where}"
        _release(session, training, now, note)


def _end(session: Session, training: Training, state: TrainingState, now: datetime, *, note: str = "") -> None:
    training.lease_expires_at = None
    training.finished_at = now
    training.seconds_left = None
    change_state(session, training, state, now, note=note)
    if training.kind == TrainingKind.SUPERNET and training.target_id is not None:
        enqueue(session, tasks.ADVANCE, target_id=training.target_id)


def _take_in(session: Session, training: Training, said: Report, now: datetime) -> None:
    entries: list[Entry] = []
    put, rewound = _changed(session, training.id, said)
    if rewound is not None:
        entries.append(Entry(TrainingEventKind.REWOUND, {"step": rewound}))
    entries += [Entry(TrainingEventKind.METRIC, dict(metric)) for metric in put]
    training_log.put_metrics(session, training.id, put)
    if said.metrics:
        last = said.metrics[-1]
        training.last_metric = _figures({} if said.whole else training.last_metric or {}, said.metrics)
        training.tokens, training.seconds = int(last["tokens"]), float(last["seconds"])
    elif said.whole:
        training.last_metric, training.tokens, training.seconds = None, 0, 0.0
    if said.state:
        training.step, training.steps, training.seconds_left = said.step, said.steps, said.seconds_left
    if said.checkpoint != training.checkpoint and (said.checkpoint is not None or said.whole):
        training.checkpoint = said.checkpoint
        if said.checkpoint is not None:
            entries.append(Entry(TrainingEventKind.CHECKPOINT, {"step": said.checkpoint}))
    if said.note and said.note != training.note:
        training.note = said.note
        entries.append(Entry(TrainingEventKind.NOTE, {"note": said.note}))
    training.updated_at = now
    event_log.append(session, training.id, entries, now)
    if said.state in LIVE_TRAININGS and said.state != training.state:
        change_state(session, training, said.state, now, note=training.note)


def _figures(before: Document, metrics: Sequence[Document]) -> Document:
    """The last report, with missing figures filled in from earlier ones: few reports contain a validation."""
    figures = {name: value for name, value in before.items() if name != "extra"}
    for metric in metrics:
        figures.update({name: value for name, value in metric.items() if name != "extra"})
    return figures | {name: value for name, value in metrics[-1].items() if name == "extra"}


def _changed(session: Session, training_id: str, said: Report) -> tuple[list[Document], int | None]:
    """The new or changed reports, merged by step; and the step after which stored reports are removed."""
    merged: dict[int, Document] = {}
    for metric in said.metrics:  # a step may have one line with its loss and another with its validation
        merged[metric["step"]] = merged.get(metric["step"], {}) | dict(metric)
    if not said.whole:
        stored = training_log.metrics_at(session, training_id, merged)
        return [stored.get(step, {}) | metric for step, metric in sorted(merged.items())], None
    stored = dict(training_log.metrics(session, training_id))
    gone = sorted(set(stored) - set(merged))
    training_log.remove_metrics(session, training_id, gone)
    put = [metric for step, metric in sorted(merged.items()) if stored.get(step) != metric]
    if not gone:
        return put, None
    return put, max((step for step in stored if step < gone[0]), default=0)


def _key(recipe: Recipe, *what: object) -> str:
    described = [recipe.effective(), recipe.evaluation.model_dump(mode="json"), *what]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _score(session: Session, training: Training, scores: Sequence[Score], now: datetime) -> None:
    if training.digest is None or training.recipe is None or training.budget is None or not scores:
        return
    recipe = Recipe.parse(training.recipe)
    start = start_of(training)
    begins_with = f"{start}, a part" if inherits(training) else start
    budget = {name: value for name, value in training.budget.items() if value is not None}
    # Equal for trainings whose scores are comparable: same length, recipe, data and evaluation.
    key = _key(recipe, budget, training.dataset_digest, begins_with)
    # Laws are about models that were trained from their beginning.
    recipe_key = None if inherits(training) else _key(recipe, training.dataset_digest, begins_with)
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
                **score.details,
            },
            "created_at": now,
        }
        for score in scores
    ]
    training_log.save_evaluations(session, evaluations)
    if recipe_key is not None:
        work.request(session, WorkKind.LEARN, {f"{recipe_key} {training.owner}": training.owner}, now)
        work.wake(session, work.SEARCH)
    fields = ("dataset", "split", "metric", "value")
    entries = [Entry(TrainingEventKind.EVALUATION, {name: row[name] for name in fields}) for row in evaluations]
    event_log.append(session, training.id, entries, now)
