"""Claims and executes waiting work items; Celery's tasks call this module.

A task claims items one after the other, for a few seconds. A thread extends the claim of an item that takes long. If a
worker dies, the claims expire and other workers claim the items. One rule holds for every kind of work: an exception
or the death of a worker uses up an attempt; a stop or an error of the database does not. After `WORK_ATTEMPTS` attempts
the work is given up.

A target (one device and runtime of a search job) advances by short transactions. A call of its algorithm may take many
seconds, so `take_short_steps` leaves such calls to `compute_step`, which has a separate queue and computes without an
open transaction or connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from edgefront.core.common.errors import EdgefrontError, Unavailable
from edgefront.core.common.logs import log_facts
from edgefront.core.common.states import WorkKind
from edgefront.core.services import tasks, work
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.measuring import result_processing
from edgefront.core.services.quality import learning
from edgefront.core.services.search import advance
from edgefront.core.services.search.computing import ComputeStep, Step
from edgefront.core.services.search.proposing import BEFORE_SEARCH
from edgefront.core.services.settings import Settings
from edgefront.core.services.work import Claim, Outcome, Queue, interval_s
from edgefront.core.store.database import Database
from edgefront.core.store.tables import new_id

LOCK_ATTEMPTS = 3
"""Number of attempts for one step, because Postgres rolls back one of two transactions that deadlock."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


def take_short_steps(database: Database, target_id: str, settings: Settings) -> bool:
    """Takes one short step of a target, a device and runtime of a job. Returns whether another can follow at once.

    If the step needs a long computation, requests `compute_step` for the target instead.
    """
    step = take_step(database, target_id)
    if step.compute is None:
        return step.more
    if step.compute.number == BEFORE_SEARCH:  # this takes milliseconds
        return compute_and_store(database, step.compute, settings)
    _request(database, WorkKind.SEARCH, target_id)
    return False


def compute_step(database: Database, target_id: str, settings: Settings) -> None:
    """Computes and stores a target's next step, then requests `take_short_steps` for the following steps."""
    step = next_compute_step(database, target_id)
    if step is not None and compute_and_store(database, step, settings):
        _request(database, WorkKind.ADVANCE, target_id)


def _request(database: Database, kind: WorkKind, target_id: str) -> None:
    with database.write() as session:
        work.request(session, kind, _owners(session, target_id), database.now(session))
        work.wake(session, work.queue_of(kind))


def next_compute_step(database: Database, target_id: str) -> ComputeStep | None:
    """Advances a target to the next step that needs a long computation, one committed step at a time.

    Returns the next step to compute; None if the target waits for measurements, or has ended.
    """
    while (step := take_step(database, target_id)).more:
        pass
    return step.compute


def take_step(database: Database, target_id: str) -> Step:
    """Commits one step of a target."""
    return committed(database, lambda session: advance.advance(session, target_id, database.now(session)))


def compute_and_store(database: Database, step: ComputeStep, settings: Settings | None = None) -> bool:
    """Computes a step and stores the result in parts, one transaction each. Returns whether another step can follow.

    `settings` is passed to `ComputeStep.compute`.
    """
    stored, computed = Step(compute=step), step.compute(settings)
    while stored.compute is not None:
        stored = committed(
            database, lambda session: advance.store(session, step, computed, database.now(session), settings)
        )
    return stored.more


def committed(database: Database, step: Callable[[Session], Result]) -> Result:
    """Runs `step` in a separate transaction; retries, up to `LOCK_ATTEMPTS` attempts, if rows are locked."""
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            with database.write() as session:
                return step(session)
        except Unavailable:
            if attempt == LOCK_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def fail(database: Database, target_id: str, reason: str) -> None:
    """Marks a target as failed because it cannot continue, and stores the reason in the target's note."""
    note = f"The search cannot continue: {reason}"
    committed(database, lambda session: advance.fail(session, target_id, note, database.now(session)))


def in_words(error: Exception) -> str:
    """Returns a note for the user: the message of an error that users can fix, otherwise only the error's type."""
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"internal error ({type(error).__name__}); see the worker's log."


def process_some(database: Database, target_id: str | None) -> bool:
    """Processes some reports of a target (None: deleted targets). Returns whether more reports may be waiting.

    If a report cannot be processed, the other reports are processed first; then the report's error is raised.
    """
    try:
        return committed(database, lambda session: result_processing.process(session, target_id, database.now(session)))
    except Unavailable:
        raise
    except Exception:
        _log.exception("reports of target %s cannot be processed together; each is processed alone", target_id)
    for fault in _faults(database, target_id).values():
        raise fault
    return False  # the sweep requests the remaining reports


def fail_unprocessable(database: Database, target_id: str | None) -> None:
    """Processes some reports of a target one by one. Launches of reports that cannot be processed fail."""
    for (launch_id, measurement_id), fault in _faults(database, target_id).items():
        reason = f"its report cannot be processed: {in_words(fault)}"
        given_up = partial(result_processing.give_up, launch_id=launch_id, measurement_id=measurement_id, reason=reason)
        committed(database, lambda session: given_up(session, now=database.now(session)))  # noqa: B023


def _faults(database: Database, target_id: str | None) -> dict[tuple[str, str], Exception]:
    """Processes reports one by one. Returns (launch id, measurement id) → error of each report that failed."""
    with database.read() as session:
        reported = result_processing.waiting(session, target_id)
    return {row: fault for row in reported.items() if (fault := _fault(database, *row)) is not None}


def _fault(database: Database, launch_id: str, measurement_id: str) -> Exception | None:
    """Processes one report, if necessary without the targets that wait for it. Returns the error; None on success."""
    for with_targets in (True, False):  # the fault may be in a target, which reports it when it advances
        try:
            with database.write() as session:
                now = database.now(session)
                result_processing.process_launches(session, {launch_id: measurement_id}, now, with_targets=with_targets)
        except Unavailable:
            raise
        except Exception as error:
            _log.exception("the report of launch %s cannot be processed, with its targets: %s", launch_id, with_targets)
            fault = error
        else:
            return None
    return fault


class _Kind(NamedTuple):
    """Functions for one kind of work: `do` works and returns whether more work waits, `give_up` abandons the work."""

    do: Callable[[Claim], bool | None]
    give_up: Callable[[str, str], None]


TASK_S = 5.0
"""Seconds after which a task stops claiming items and requests another task, so that other tasks get their turn."""


class Worker:
    """State that the tasks of one worker share.

    Args:
        slots: number of tasks that the worker executes concurrently, in threads or processes.
        queues: queues that the worker serves.
    """

    def __init__(
        self, database: Database, settings: Settings, *, slots: int = 1, queues: tuple[Queue, ...] = work.QUEUES
    ) -> None:
        self.database = database
        self.holder = new_id("wrk")
        self.slots = slots
        self.queues = queues
        self._stopping = threading.Event()
        self._kinds: Mapping[WorkKind, _Kind] = {
            WorkKind.RESULTS: _Kind(
                lambda held: process_some(database, held.subject or None),
                lambda target, _why: fail_unprocessable(database, target or None),
            ),
            WorkKind.ADVANCE: _Kind(
                lambda held: take_short_steps(database, held.subject, settings),
                lambda target, why: fail(database, target, why),
            ),
            WorkKind.SEARCH: _Kind(
                lambda held: compute_step(database, held.subject, settings),
                lambda target, why: fail(database, target, why),
            ),
            WorkKind.LEARN: _Kind(
                lambda held: learning.learn(database, held.subject),
                lambda subject, why: _log.error("the scaling law of %s was not refined: %s", subject, why),
            ),
        }

    def stop(self) -> None:
        """Stops claiming and releases the claimed items, so that a stop costs no attempt."""
        self._stopping.set()
        try:
            with self.database.write() as session:
                work.release(session, self.holder)
        except Unavailable as error:
            _log.warning("the claims of this worker were not released: %s", error)

    def register(self, app: Any) -> None:
        """Registers the tasks that request and execute work in a Celery application."""
        queues = {queue.name: queue for queue in work.QUEUES}

        @app.task(name=tasks.ADVANCE, shared=False)  # type: ignore[untyped-decorator]
        def advance(target_id: str) -> None:
            self.requested(work.REQUESTED_BY[tasks.ADVANCE], target_id)

        @app.task(name=tasks.PROCESS_RESULTS, shared=False)  # type: ignore[untyped-decorator]
        def process_results(target_id: str | None) -> None:
            self.requested(work.REQUESTED_BY[tasks.PROCESS_RESULTS], target_id or "")

        @app.task(name=tasks.SERVED, shared=False)  # type: ignore[untyped-decorator]
        def served(queue: str) -> None:
            try:
                with self.database.write() as session:
                    work.served(session, queue, self.database.now(session))
            except Unavailable as error:
                _log.warning("this worker does nothing for now: %s", error)

        @app.task(name=tasks.WORK, shared=False)  # type: ignore[untyped-decorator]
        def do_work(queue: str) -> None:
            self.work(queues[queue])

    def requested(self, kind: WorkKind, subject: str) -> None:
        """Requests work on a subject, and executes waiting items of the queue for this kind of work."""
        self._run(
            work.queue_of(kind),
            lambda session, now: work.request(session, kind, _owners(session, subject), now),
        )

    def work(self, queue: Queue) -> None:
        """Executes waiting items of the queue, alternating owners, for `TASK_S` seconds or until the queue is empty."""
        self._run(queue, lambda _session, _now: None)

    def _run(self, queue: Queue, first: Callable[[Session, datetime], None]) -> None:
        """Executes items one by one. One transaction ends an item and claims the next; `first` runs in the first."""
        end, before = time.monotonic() + TASK_S, first
        try:
            while True:
                with self.database.write() as session:
                    now = self.database.now(session)
                    before(session, now)
                    if self._stopping.is_set():
                        return
                    if time.monotonic() > end:
                        work.wake(session, queue)
                        return
                    held = work.claim(session, queue, self.holder, self._slots_of(queue), now)
                if held is None:
                    return
                before = self._process(held)
        except Unavailable as error:  # claims expire, and the sweep sends the task again later
            _log.warning("work is postponed: %s", error)

    def _slots_of(self, queue: Queue) -> int:
        """Maximum number of concurrent items of this queue in this worker. Slow work leaves one slot to fast work."""
        leaves_one = queue != work.SHORT and work.SHORT in self.queues
        return max(1, self.slots - 1) if leaves_one else self.slots

    def _process(self, held: Claim) -> Callable[[Session, datetime], None]:
        """Executes the claimed item. Returns a function that ends the claim."""
        kind, outcome, fault = self._kinds[held.kind], Outcome.DONE, ""
        if held.is_lost:
            fault = f"{held.attempts - 1} workers died during this work"
        else:
            try:
                with self._extended(held), log_facts(owner=held.owner, **{str(held.kind): held.subject}):
                    outcome = Outcome.MORE if kind.do(held) else Outcome.DONE
            except (Unavailable, OperationalError, ProgrammingError) as error:
                with suppress(Unavailable), self.database.write() as session:
                    work.release(session, held)
                raise Unavailable(f"{held.kind} {held.subject}: {error}") from error
            except Exception as error:
                _log.exception("attempt %d of %s %s failed", held.attempts, held.kind, held.subject)
                outcome = Outcome.FAILED
                if held.is_last:
                    fault = f"{held.attempts} attempts; the last: {in_words(error)}"
        if fault and self._is_held(held):
            with self._extended(held):
                kind.give_up(held.subject, fault)
            outcome = Outcome.DONE
        return lambda session, now: work.finish(session, held, now, outcome)

    def _is_held(self, held: Claim) -> bool:
        """Whether this worker still has the claim, which a stop may have released. Extends the claim."""
        with self.database.write() as session:
            return work.extend(session, held, self.database.now(session))

    @contextmanager
    def _extended(self, held: Claim) -> Iterator[None]:
        """Context manager that extends a claim periodically."""
        done = threading.Event()
        thread = threading.Thread(target=self._extend, args=(held, done), name="edgefront-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _extend(self, held: Claim, done: threading.Event) -> None:
        while not done.wait(interval_s(work.CLAIM.total_seconds())):
            try:
                with self.database.write() as session:
                    work.extend(session, held, self.database.now(session))
            except EdgefrontError as error:
                _log.warning("the claim on %s %s was not extended: %s", held.kind, held.subject, error)
            except Exception:  # the loop tries again, because the claim would expire without this thread
                _log.exception("the claim on %s %s was not extended", held.kind, held.subject)


def _owners(session: Session, subject: str) -> dict[str, str]:
    """Returns a dict with one entry: the subject of requested work → the user who owns the subject."""
    return {subject: job_queries.owners_of(session, [subject]).get(subject, "")}
