"""Supervises one claimed training until the run has ended.

The supervisor extends its lease by heartbeats, starts the training process (run), copies reports of the run into the
database in short transactions, forwards the owner's commands, and stores the outcome. If the lease is lost, the
supervisor kills the run and stops writing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput, NotFound, Unavailable
from edgefront.core.common.files import whole_file
from edgefront.core.common.processes.child import python
from edgefront.core.common.states import RunOutcome, TrainingCommand, TrainingKind
from edgefront.core.data.prepared.prepared import Manifest, read_manifest
from edgefront.core.data.sources.data_set import data_sets
from edgefront.core.services.datasets import find_dataset
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.claims import FinishedRun, RunReport
from edgefront.core.services.trainings.folder import WEIGHTS, checkpoints_in, remove_folder, tail, training_folder
from edgefront.core.services.trainings.machine import default_threads
from edgefront.core.services.trainings.views import (
    card_facts,
    inherits,
    requested_dataset,
    start_of,
    vocabulary_of_start,
)
from edgefront.core.services.work import interval_s
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.run_folder import LOG, SPEC, RunSpec, with_vocabulary
from edgefront.workers.training.launch import FolderLock, FolderLocked, RunProcess, command_for
from edgefront.workers.training.run_reader import RunReader

Result = TypeVar("Result")

_POLL_S = 0.2
_COPIED = ("kind", "recipe", "budget", "seed", "device", "supernet")
"""Fields that are copied from a training into its run spec."""
_MAX_PAUSE_S = 5.0

_log = logging.getLogger("edgefront.supervise")


class LeaseLost(Exception):
    """The training was claimed by another worker, or released, since this supervisor claimed it."""


class Deleted(LeaseLost):
    """The training was deleted."""


class Supervisor:
    """Supervises one claim of a training from start to end."""

    def __init__(self, database: Database, settings: Settings, training_id: str, fence: int) -> None:
        self._database, self._settings = database, settings
        self._config = settings.training
        self._id, self._fence = training_id, fence
        self._folder = training_folder(settings, training_id)
        self._poll_s = min(_POLL_S, self._config.poll_s / 4)
        self._heartbeat_at = float("-inf")
        self._last_report = RunReport()
        self._command = TrainingCommand.RUN
        self._stored_note = ""
        self.end_requested = False
        """Event that SIGTERM sets: the run stops, and the training returns to the queue."""

    def run(self) -> None:
        """Supervises the training until the outcome of the run is stored or the lease is lost."""
        lock = FolderLock(self._folder)
        try:
            self._train(lock)
        except Deleted:
            _log.info("the training was deleted")
            remove_folder(self._settings, self._id)
        except LeaseLost as lost:
            _log.warning("the lease is lost: %s", lost)
        finally:
            lock.free()

    def _train(self, lock: FolderLock) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock.take(self._while_waiting, timeout_s=self._config.ttl_s)
            state = RunReader(self._folder)
            process = self._start(lock)
        except (InvalidInput, NotFound) as error:
            self._finish(RunReport(), FinishedRun(RunOutcome.INVALID, error.detail))
            return
        except FolderLocked as error:
            self._release(str(error))
            return
        except (Deleted, LeaseLost):
            raise
        except Exception as error:
            why: object = error
            if not isinstance(error, (EdgefrontError, OSError)):
                _log.exception("the run could not be started")
                why = f"internal error ({type(error).__name__}); see the supervisor's log"
            self._finish(RunReport(), FinishedRun(RunOutcome.FAILED, f"the run could not be started: {why}"))
            return
        with process, self._killed_without_lease(process):
            finished = self._watch(process, state)
        self._finish(state.report(), finished)

    # The run ---------------------------------------------------------------------------------------------------------

    def _start(self, lock: FolderLock) -> RunProcess:
        """Writes `spec.json` and starts the run. Raises `InvalidInput` or `NotFound` if a retry cannot help."""

        def read(session: Session, _now: datetime) -> tuple[Training, int | None]:
            training = training_claims.lock_claimed(session, self._id, self._fence)
            return training, vocabulary_of_start(session, training)

        training, start_vocab_size = self._write(read)
        note = ""
        if training.checkpoint and not checkpoints_in(self._folder):
            note = (
                f"Its checkpoint of step {training.checkpoint:,} is not in {self._folder}: the training begins again."
            )
        recipe, is_model = training.recipe or {}, training.kind == TrainingKind.TRAINING
        level = recipe.get("level") if is_model and not requested_dataset(training) else None  # searched as in the plan
        data, manifest = self._data(training.dataset or "", training.dataset_digest, level, lock)
        architecture, digest, vocab_size = training.architecture, None, None
        if is_model:
            if manifest.level == "bpe" and (start_vocab_size or 0) > manifest.vocab_size:
                vocab_size = start_vocab_size
            trained = with_vocabulary(
                Architecture.parse(architecture), vocab_size or manifest.vocab_size, manifest.source_vocab_size
            )
            architecture, digest = trained.canonical, trained.digest
        facts = self._write(
            lambda session, _: card_facts(session, training_claims.lock_claimed(session, self._id, self._fence), digest)
        )
        # A run reads its teacher at every start, initial weights only before its first checkpoint.
        has_teacher, start = recipe.get("distil") is not None, start_of(training)
        if start is not None:
            start = str(self._weights(start, always=has_teacher))
        spec = RunSpec(
            architecture=architecture,
            data=str(data),
            start=start,
            vocab_size=vocab_size,
            inherit=inherits(training),
            teacher=start if has_teacher else None,
            threads=self._config.threads or default_threads(training.device or "cpu", self._config.slots),
            about=facts,
            **{name: getattr(training, name) for name in _COPIED},
        )
        with whole_file(self._folder / SPEC) as file:
            file.write(spec.model_dump_json(indent=1).encode())
        ranks = max(1, training.gpus or 0)
        environment = dict(os.environ)
        if training.device == "cuda":
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in training.gpu_numbers)
        command = command_for(self._config.command, self._folder, ranks)
        # The attempt is counted before the process starts. If the supervisor is lost in between, one attempt too many
        # is counted rather than one too few.
        self._extend(
            lambda session, now: training_claims.start(
                session, self._id, self._fence, architecture or None, manifest.digest, now, self._config.ttl_s, note
            )
        )
        _log.info("starting %s", " ".join(command))
        return RunProcess(command, self._folder, environment=environment, lock=lock, ranks=ranks)

    def _weights(self, training_id: str, *, always: bool) -> Path:
        """Returns the path of a finished training's weights, which are read at the first or (`always`) at every start.

        Raises `NotFound` if the run has to read the weights (until the first checkpoint, or `always`) but the training
        was deleted.
        """
        if always or not checkpoints_in(self._folder):
            with self._database.read() as session:
                if training_queries.find(session, training_id) is None:
                    raise NotFound(f"start: training {training_id}, whose weights it needs, was deleted")
        return training_folder(self._settings, training_id) / WEIGHTS

    def _data(self, name: str, digest: str | None, level: str | None, lock: FolderLock) -> tuple[Path, Manifest]:
        """Returns folder and manifest of the prepared data set. Prepares a missing data set if it is built in."""
        home = self._settings.data_folder
        try:
            folder = find_dataset(name, home, digest, level)
        except NotFound:
            if name not in data_sets() or not data_sets()[name].built_in:
                raise
            self._prepare_data(name, home, lock)
            folder = find_dataset(name, home, digest, level)
        return folder, read_manifest(folder)

    def _prepare_data(self, name: str, home: Path, lock: FolderLock) -> None:
        command = python("edgefront", "data", "prepare", name, "--home", str(home))
        polled_at = float("-inf")
        with RunProcess(command, self._folder, environment=os.environ, lock=lock) as process:
            while (code := process.poll()) is None:
                now = time.monotonic()
                if now - polled_at >= self._config.poll_s:
                    polled_at = now
                    with suppress(Unavailable):
                        self._while_waiting(f"prepares the data set {name}")
                time.sleep(self._poll_s)
        if code:
            last_line = tail(self._folder / LOG, 1).strip().removeprefix("error: ")
            raise EdgefrontError(f"the data set {name} could not be prepared: {last_line or f'exit code {code}'}")

    def _watch(self, process: RunProcess, state: RunReader) -> FinishedRun:
        """Polls the run until the process has ended. Returns the outcome of the run."""
        polled_at = time.monotonic()
        while (code := process.poll()) is None:
            time.sleep(self._poll_s)
            now = time.monotonic()
            if now - polled_at >= self._config.poll_s:
                polled_at = now
                self._copy(state)
            self._stop_if_requested(process, now)
        _log.info("the run ended with %d", code)
        return state.finished(code, asked=process.stopping_since is not None)

    @contextmanager
    def _killed_without_lease(self, process: RunProcess) -> Iterator[None]:
        """Context manager: kills the run when the lease expires, because another worker may then claim the training.

        A thread checks the time of the latest heartbeat, so a hanging database does not delay the kill.
        """
        ended = threading.Event()

        def guard() -> None:
            while not ended.wait(self._poll_s):
                if time.monotonic() - self._heartbeat_at > self._config.ttl_s:
                    _log.warning("the lease has expired and the run is killed")
                    process.stop()
                    process.kill()
                    return

        thread = threading.Thread(target=guard, name="edgefront-guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _copy(self, state: RunReader) -> None:
        """Stores the run's new report and reads the owner's command. After an error the next poll tries again."""
        try:
            report = state.report()
            if report == self._last_report and not self._is_heartbeat_due():
                self._read_command()
                return
            self._command = self._extend(
                lambda session, now: training_claims.report(
                    session, self._id, self._fence, report, now, self._config.ttl_s
                )
            )
        except (Deleted, LeaseLost):
            raise
        except Unavailable as error:
            _log.warning("not stored: %s", error)
        except Exception:  # the run continues while its lease is valid
            _log.exception("not stored")
        else:
            state.accepted()
            self._last_report = replace(report, metrics=(), whole=False)  # a report without news is equal to this one

    def _stop_if_requested(self, process: RunProcess, now: float) -> None:
        """Stops the run if requested or if heartbeats fail for long, and kills a run that does not stop in time."""
        silent_s = now - self._heartbeat_at
        if self.end_requested or self._command != TrainingCommand.RUN or silent_s > self._config.ttl_s / 2:
            process.stop()
        since = process.stopping_since
        if since is not None and now - since > self._config.grace_s:
            _log.warning("the run did not stop in time and is killed")
            process.kill()

    # The database ----------------------------------------------------------------------------------------------------

    def _finish(self, report: RunReport, finished: FinishedRun) -> None:
        """Stores the outcome of the run; retries while the database is unavailable."""
        pause_s = self._poll_s
        while True:
            try:
                state_after = self._write(
                    lambda session, now: training_claims.finish(session, self._id, self._fence, report, finished, now)
                )
            except Unavailable as error:
                if self.end_requested:
                    raise
                _log.warning("the outcome is not stored yet: %s", error)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
            else:
                _log.info("%s: the training is %s. %s", finished.outcome, state_after, finished.reason)
                return

    def _release(self, note: str) -> None:
        self._write(lambda session, now: training_claims.release(session, self._id, self._fence, note, now))

    def _while_waiting(self, note: str = "waits for an earlier run to end") -> None:
        """Extends the lease, stores a note before the run starts. Raises `LeaseLost` if the training shall stop."""
        if self._is_heartbeat_due() or note != self._stored_note:
            self._command = self._extend(
                lambda session, now: training_claims.heartbeat(
                    session, self._id, self._fence, note, now, self._config.ttl_s
                )
            )
            self._stored_note = note
        else:
            self._read_command()
        if self.end_requested or self._command != TrainingCommand.RUN:
            self._release("")
            raise LeaseLost("the training was asked to stop before its run had started")

    def _read_command(self) -> None:
        with _lease_errors(), self._database.read() as session:
            self._command = training_claims.read_command(session, self._id, self._fence)

    def _is_heartbeat_due(self) -> bool:
        return time.monotonic() - self._heartbeat_at > interval_s(self._config.ttl_s)

    def _extend(self, do: Callable[[Session, datetime], Result]) -> Result:
        """Runs `do`, which extends the lease, in one transaction. Raises `LeaseLost` if the lease is lost."""
        began = time.monotonic()
        outcome = self._write(do)
        self._heartbeat_at = began
        return outcome

    def _write(self, do: Callable[[Session, datetime], Result]) -> Result:
        """Runs `do` in one transaction. Raises `LeaseLost` if the lease is lost."""
        with _lease_errors(), self._database.write() as session:
            return do(session, self._database.now(session))


@contextmanager
def _lease_errors() -> Iterator[None]:
    """Context manager that converts errors of database queries for a lost lease into `LeaseLost`."""
    try:
        yield
    except NotFound as error:
        raise Deleted(error.detail) from None
    except Conflict as error:
        raise LeaseLost(error.detail) from None
