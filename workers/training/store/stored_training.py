"""What a supervisor does with the artifact store: fetches before the run, uploads beside it, and waits at its end.

The store is the truth, and the folder the working copy of one claim. A claim goes on with the folder as it is only
where that is the copy of the very claim before: then nobody else has had the training in between, and it is at least as
far as what was uploaded of it. Any other copy, however far it is, is replaced by what the store has, for that is what
others have gone on from.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from edgefront.core.errors import Unavailable
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.claims import Outcome
from edgefront.core.services.trainings.files.folder import (
    JOURNAL,
    WEIGHTS,
    checkpoints_in,
    claim_of,
    mark_claim,
    training_folder,
)
from edgefront.core.services.trainings.files.store import Damaged, Publisher, training_store
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT
from edgefront.workers.training.store.uploading import Uploading

Found = TypeVar("Found")
Hold = Callable[[str], object]
"""Holds the lease while something is waited for, and says what; raises what ends the wait."""

_FETCHED, _SNAPSHOT = ".fetched-", ".upload-"
"""What is fetched and what is being uploaded lies in the training's folder, with the claim's fence behind these."""
_START = "start"
"""The weights of another training that this one begins with, until it has ended."""
_LOOK_S = 0.2
_MOST_PAUSE_S = 30.0

_log = logging.getLogger("edgefront.supervise")


class StoredTraining:
    """One claim of a training on the artifact store. Where there is none, every method does nothing."""

    def __init__(self, settings: Settings, training_id: str, fence: int, folder: Path) -> None:
        self._settings, self._own, self._fence, self._folder = settings, settings.training, fence, folder
        self._stored = training_store(settings, training_id)
        self._look_s = min(_LOOK_S, self._own.poll_s / 4)
        self._uploading: Uploading | None = None
        self._damaged = ""
        self._waited = False

    @property
    def note(self) -> str:
        """What a person should know of it."""
        trouble = "" if self._uploading is None else self._uploading.trouble
        if self._waited and not trouble:
            trouble = "Its files are on the artifact store."
        return " ".join(text for text in (self._damaged, trouble) if text)

    def fetch(self, hold: Hold) -> None:
        """Makes the folder what the run is to go on from.

        Where the store has nothing of the training, the folder stays: it is from before there was a store, or all that
        is left.
        """
        stored, folder = self._stored, self._folder
        if stored is None:
            return
        for left in (*folder.glob(f"{_FETCHED}*"), *folder.glob(f"{_SNAPSHOT}*")):  # by a supervisor that was killed
            shutil.rmtree(left, ignore_errors=True)
        if claim_of(folder) != self._fence - 1:
            part = folder / f"{_FETCHED}{self._fence}"
            fetched = self._in_background(lambda: stored.fetch(part), "fetches its files from the artifact store", hold)
            if fetched is not None:
                mark_claim(folder, None)
                for name in (CHECKPOINTS, RESULT, *JOURNAL):
                    _replace(folder / name, part / name)
                if fetched.damaged:
                    where = "from the beginning" if fetched.step is None else f"from step {fetched.step}"
                    self._damaged = f"{'; '.join(fetched.damaged)}. It goes on {where}."
            shutil.rmtree(part, ignore_errors=True)
        mark_claim(folder, self._fence)

    def weights(self, training_id: str, hold: Hold) -> Path:
        """The weights of another training that is done, which are read only before the first checkpoint."""
        stored, into = training_store(self._settings, training_id), self._folder / _START
        if stored is not None and not checkpoints_in(self._folder):
            note = "fetches the weights that it begins with from the artifact store"
            if self._in_background(lambda: stored.fetch_result(into), note, hold):
                return into / WEIGHTS
        return training_folder(self._settings, training_id) / WEIGHTS

    def upload(self) -> None:
        """From now on what the run writes is uploaded."""
        if self._stored is not None:
            part = self._folder / f"{_SNAPSHOT}{self._fence}"
            publisher = Publisher(self._stored, self._fence)
            self._uploading = Uploading(publisher, self._folder, part, self._own.poll_s)

    def finish(self, outcome: Outcome, hold: Hold, is_hurried: Callable[[], bool]) -> Outcome:
        """Waits until all that the run has left is on the store, and returns how it ended.

        Hurried, it waits so long as a run may take to stop. A result that is not there by then does not count: it is
        made again from the last checkpoint, by whoever claims the training next.
        """
        if self._uploading is None:
            return outcome
        began = time.monotonic()
        self._uploading.finish(result=outcome.ending == "done")
        while not self._uploading.is_up.wait(self._look_s):
            waited_s = time.monotonic() - began
            if waited_s > self._own.grace_s and is_hurried():
                if outcome.ending == "done":
                    return Outcome("stopped", "its result could not be uploaded in time", asked=True)
                return outcome
            if waited_s > self._own.poll_s:
                self._waited = True
                with suppress(Unavailable):  # of the database
                    hold(self._uploading.trouble or "its files are being uploaded")
        return outcome

    def end(self, timeout_s: float = 0.0) -> None:
        """Uploads nothing more; waits so long for what is being uploaded now."""
        if self._uploading is not None:
            self._uploading.end(timeout_s)
        shutil.rmtree(self._folder / _START, ignore_errors=True)

    def _in_background(self, do: Callable[[], Found], note: str, hold: Hold) -> Found:
        """What a call returns that may take long, with the lease held meanwhile; again while the store is away."""
        pause_s = self._look_s
        while True:
            done: Future[Found] = Future()
            threading.Thread(target=_keep, args=(do, done), name="edgefront-fetch", daemon=True).start()
            self._hold_until(done.done, note, hold)
            try:
                return done.result()
            except Damaged:
                raise
            except Unavailable as error:
                _log.warning("not fetched yet: %s", error.detail)
                end = time.monotonic() + pause_s
                self._hold_until(lambda: time.monotonic() > end, f"waits: {error.detail}", hold)  # noqa: B023
                pause_s = min(pause_s * 2, _MOST_PAUSE_S)

    def _hold_until(self, condition: Callable[[], bool], note: str, hold: Hold) -> None:
        while not condition():
            with suppress(Unavailable):  # of the database
                hold(note)
            time.sleep(self._look_s)


def _keep(do: Callable[[], Found], done: Future[Found]) -> None:
    try:
        done.set_result(do())
    except BaseException as error:
        done.set_exception(error)


def _replace(old: Path, new: Path) -> None:
    """What lies at `old` becomes what lies at `new`, which may be nothing."""
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        new.rename(old)
