"""The supervisor's side of the artifact store: downloads before the run, uploads during it, and waits at its end.

The store is authoritative, and the folder is the working copy of one claim. A claim resumes from the folder only if it
is the copy of the claim directly before: then no other worker has run the training in between, and the copy is at least
as new as the uploads. Any other copy, however far it is, is replaced by the files on the store, because other workers
have resumed from those.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from edgefront.core.errors import Conflict, EdgefrontError, NotFound, Unavailable
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.claims import Outcome, store_manifest
from edgefront.core.services.trainings.files.folder import (
    JOURNAL,
    WEIGHTS,
    checkpoints_in,
    claim_of,
    files_in,
    mark_claim,
    training_folder,
)
from edgefront.core.services.trainings.files.store import (
    Damaged,
    Publisher,
    TrainingManifest,
    training_store,
)
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.states import TrainingEnding
from edgefront.core.store.database import Database
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT, TENSORBOARD

Result = TypeVar("Result")
Hold = Callable[[str], object]
"""Holds the lease during a wait, and stores a note on it; raises to end the wait."""

_FETCHED, _SNAPSHOT = ".fetched-", ".upload-"
"""Prefixes of temporary folders in the training's folder for downloads and uploads; the claim's fence is appended."""
_START = "start"
"""Folder of the initial weights, from another training, until this one has ended."""
_POLL_S = 0.2
_MAX_PAUSE_S = 60.0
_EVERY = 15
"""Journal and log are uploaded with each checkpoint, and once per this number of polls in between."""
_MAX_OF_TIME = 0.1
"""Uploads in between may take at most this share of the time."""

_log = logging.getLogger("edgefront.supervise")


class _Hurried(Exception):
    """The wait for the end of an upload is over."""


class StoredTraining:
    """One claim of a training on the artifact store. Without an artifact store every method does nothing."""

    def __init__(self, settings: Settings, database: Database, training_id: str, fence: int, folder: Path) -> None:
        self._settings, self._config, self._fence, self._folder = settings, settings.training, fence, folder
        self._database, self._id = database, training_id
        self._stored = training_store(settings, database, training_id)
        self._poll_s = min(_POLL_S, self._config.poll_s / 4)
        self._publisher: Publisher | None = None
        self._publishing = threading.Lock()
        self._run_ended, self._ended = threading.Event(), False
        self._damaged = self._trouble = ""
        self._waited = False

    @property
    def note(self) -> str:
        """A note for people."""
        trouble = self._trouble or ("Its files are on the artifact store." if self._waited else "")
        return " ".join(text for text in (self._damaged, trouble) if text)

    def fetch(self, hold: Hold) -> None:
        """Makes the folder the state from which the run resumes.

        If the store has no files of the training, the folder is kept: it is from before a store was configured, or the
        only copy.
        """
        stored, folder = self._stored, self._folder
        if stored is None:
            return
        for left in (*folder.glob(f"{_FETCHED}*"), *folder.glob(f"{_SNAPSHOT}*")):  # of a supervisor that was killed
            shutil.rmtree(left, ignore_errors=True)
        if claim_of(folder) != self._fence - 1:
            part = folder / f"{_FETCHED}{self._fence}"
            fetched = self._in_background(
                lambda: stored.fetch(part), "downloads its files from the artifact store", hold
            )
            if fetched is not None:
                mark_claim(folder, None)
                for name in (CHECKPOINTS, RESULT, *JOURNAL):
                    _replace(folder / name, part / name)
                if fetched.damaged:
                    where = "from the beginning" if fetched.step is None else f"from step {fetched.step}"
                    self._damaged = f"{'; '.join(fetched.damaged)}. It resumes {where}."
            shutil.rmtree(part, ignore_errors=True)
        mark_claim(folder, self._fence)

    def weights(self, training_id: str, hold: Hold, *, always: bool = False) -> Path:
        """Downloads the weights of another, finished training, with what lies beside them.

        They are read only before the first checkpoint, unless `always`. `NotFound` where they are read and that
        training was deleted.
        """
        stored, into = training_store(self._settings, self._database, training_id), self._folder / _START
        is_read = always or not checkpoints_in(self._folder)
        if is_read:
            with self._database.read() as session:
                if rows.find(session, training_id) is None:
                    raise NotFound(f"start: training {training_id}, whose weights it needs, was deleted")
        if stored is not None and is_read:
            note = "downloads its initial weights from the artifact store"
            if self._in_background(lambda: stored.fetch_result(into), note, hold):
                return into / WEIGHTS
        return training_folder(self._settings, training_id) / WEIGHTS

    def upload(self) -> None:
        """Starts a thread that uploads what the run writes."""
        if self._stored is not None:
            self._publisher = Publisher(self._stored, self._fence, self._record)
            threading.Thread(target=self._upload, name="edgefront-upload", daemon=True).start()

    def finish(self, outcome: Outcome, hold: Hold, is_end_requested: Callable[[], bool]) -> Outcome:
        """Waits until all files of the ended run are on the store, and returns how it ended.

        If hurried, it waits at most as long as a run may take to stop. A result that is not uploaded by then does not
        count: the next claim of the training computes it again from the last checkpoint.
        """
        if self._publisher is None:
            return outcome
        self._run_ended.set()
        began = time.monotonic()

        def hold_unless_hurried(note: str) -> None:
            waited_s = time.monotonic() - began
            if waited_s > self._config.grace_s and is_end_requested():
                raise _Hurried
            if waited_s > self._config.poll_s:
                self._waited = True
                hold(note)

        is_done, note = outcome.ending == TrainingEnding.DONE, "its files are being uploaded"
        try:
            self._in_background(lambda: self._publish(result=is_done, last=True), note, hold_unless_hurried)
        except _Hurried:
            if is_done:
                return Outcome(TrainingEnding.STOPPED, "its result could not be uploaded in time")
        return outcome

    def end(self, timeout_s: float = 0.0) -> None:
        """Stops uploading; waits at most this time for the current upload."""
        self._ended = True
        self._run_ended.set()
        if self._publishing.acquire(timeout=timeout_s):
            self._publishing.release()
        shutil.rmtree(self._folder / _START, ignore_errors=True)

    def _upload(self) -> None:
        """Uploads until the run has ended. An unavailable store is retried with increasing pauses."""
        pause_s, again_at, uploaded = self._poll_s, 0.0, [-1]
        while not self._run_ended.wait(self._config.poll_s):
            checkpoints, began = list(checkpoints_in(self._folder)), time.monotonic()
            if checkpoints == uploaded and began < again_at:
                continue
            try:
                self._publish(result=False)
            except (Conflict, NotFound):
                return
            except Unavailable as error:
                _log.warning("not uploaded yet: %s", error.detail)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                again_at = time.monotonic() + pause_s
            else:
                pause_s, now = self._poll_s, time.monotonic()
                again_at = now + max(_EVERY * self._config.poll_s, (now - began) / _MAX_OF_TIME)
            uploaded = checkpoints

    def _publish(self, *, result: bool, last: bool = False) -> None:
        """Publishes the state of the folder, with the run's result if it is complete. After the run has ended only the
        `last` state is: one that was begun before it would take the result away again.

        Raises `Conflict` or `NotFound` if the lease is lost, which the supervisor will notice too; else `Unavailable`.
        """
        with self._publishing:
            if self._publisher is None or self._ended or (self._run_ended.is_set() and not last):
                return
            part = self._folder / f"{_SNAPSHOT}{self._fence}"
            try:
                self._publisher.publish(snapshot(self._folder, part, result=result))
            except (Conflict, NotFound) as error:
                _log.warning("no further uploads: %s", error.detail)
                self._trouble = f"No further uploads: {error.detail}."
                raise
            except Exception as error:  # the end of the run waits for this thread, so it must not die
                reason = error.detail if isinstance(error, EdgefrontError) else f"{type(error).__name__}: {error}"
                self._trouble = f"Not uploaded yet: {reason}. The upload is retried."
                raise Unavailable(reason) from error
            finally:
                shutil.rmtree(part, ignore_errors=True)
            if self._trouble:
                self._trouble = "The artifact store was unavailable for a while; everything is uploaded now."

    def _record(self, manifest: TrainingManifest) -> None:
        with self._database.write() as session:
            store_manifest(session, self._id, self._fence, manifest.model_dump(mode="json"))

    def _in_background(self, do: Callable[[], Result], note: str, hold: Hold) -> Result:
        """Runs a long call in a thread while holding the lease, retried while the store is unavailable; returns its
        result.
        """
        pause_s = self._poll_s
        while True:
            done: Future[Result] = Future()
            threading.Thread(target=_keep, args=(do, done), name="edgefront-store", daemon=True).start()
            self._hold_until(done.done, note, hold)
            try:
                return done.result()
            except Damaged:
                raise
            except (Unavailable, Conflict, NotFound) as error:
                _log.warning("not done yet: %s", error.detail)
                end = time.monotonic() + pause_s
                self._hold_until(lambda: time.monotonic() > end, f"waits: {error.detail}", hold)  # noqa: B023
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    def _hold_until(self, condition: Callable[[], bool], note: str, hold: Hold) -> None:
        while not condition():
            with suppress(Unavailable):  # of the database
                hold(note)
            time.sleep(self._poll_s)


def _keep(do: Callable[[], Result], done: Future[Result]) -> None:
    try:
        done.set_result(do())
    except BaseException as error:
        done.set_exception(error)


def _replace(old: Path, new: Path) -> None:
    """Replaces `old` by `new`, which may not exist."""
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        new.rename(old)


def snapshot(folder: Path, into: Path, *, result: bool) -> dict[str, Path]:
    """The files of a folder to upload: path in the folder → path of an unchanging copy.

    Checkpoints never change but are removed when newer ones are written: each is hard-linked, or copied if links are
    not supported.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name in JOURNAL:
        with suppress(FileNotFoundError):
            shutil.copy2(folder / name, into / name)
    for path in files_in(folder / TENSORBOARD):
        (into / TENSORBOARD).mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(path, into / TENSORBOARD / path.name)
    for place in (*checkpoints_in(folder).values(), *([folder / RESULT] if result else [])):
        held = into / place.relative_to(folder)
        try:
            shutil.copytree(place, held, symlinks=True, copy_function=_link)
        except (FileNotFoundError, shutil.Error):
            if place.is_dir():
                raise
            shutil.rmtree(held, ignore_errors=True)  # the run has removed it meanwhile
    return {path.relative_to(into).as_posix(): path for path in files_in(into)}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
