"""Keeps the artifact store like a training's folder while it is trained, in a thread: nothing waits for an upload."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path

from edgefront.core.errors import EdgefrontError
from edgefront.core.services.trainings.files.folder import checkpoint_folders
from edgefront.core.services.trainings.files.store import JOURNAL, ClaimStore, Superseded
from edgefront.workers.training.store.working_copy import hold_still

_EVERY = 15
"""Journal and log are uploaded with each checkpoint, and once in so many looks between them."""
_MOST_OF_TIME = 0.1
"""And no more often than that this takes such a part of the time."""
_MOST_PAUSE_S = 60.0

_log = logging.getLogger("edgefront.supervise")

_Looks = tuple[tuple[str, ...], tuple[tuple[int, int], ...]]


class Uploading:
    """Of one claim. A store that is away is tried again, ever less often up to once a minute."""

    def __init__(self, claim: ClaimStore, folder: Path, part: Path, look_s: float) -> None:
        self._claim, self._folder, self._part, self._look_s = claim, folder, part, look_s
        self._wake = threading.Event()
        self._last: bool | None = None
        self._ended = False
        self.is_up = threading.Event()
        """What was there at `finish` is on the store."""
        self.trouble = ""
        """What a person should know of the store."""
        self._thread = threading.Thread(target=self._work, name="edgefront-upload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, *, result: bool) -> None:
        """The run has ended: uploads what it has left, with its result if that is whole, and ends."""
        self._last = result
        self._wake.set()

    def end(self, timeout_s: float) -> None:
        """Ends after the upload at hand, or without having waited for that."""
        self._ended = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        pause_s, uploaded, again_at = 0.0, None, 0.0
        while True:
            self._wake.clear()
            if self._ended:
                return
            last = self._last
            looks, began = self._looks(), time.monotonic()
            is_new = uploaded is None or looks[0] != uploaded[0] or (looks != uploaded and began >= again_at)
            if last is None and not is_new:
                self._wake.wait(self._look_s)
                continue
            try:
                self._claim.publish(hold_still(self._folder, self._part, result=bool(last)))
            except Superseded as error:  # the lease is lost, as the supervisor will find
                _log.warning("nothing more is uploaded: %s", error.detail)
                self.trouble = f"Nothing more is uploaded: {error.detail}."
                return
            except Exception as error:  # with the thread would end what the run's end waits for
                said = error.detail if isinstance(error, EdgefrontError) else f"{type(error).__name__}: {error}"
                _log.warning("not uploaded yet: %s", said)
                self.trouble = f"Not uploaded yet: {said}. It is tried again."
                pause_s = min(max(2 * pause_s, self._look_s), _MOST_PAUSE_S)
                self._wake.wait(pause_s)
                continue
            uploaded, pause_s = looks, 0.0
            took_s = time.monotonic() - began
            again_at = time.monotonic() + max(_EVERY * self._look_s, took_s / _MOST_OF_TIME)
            if self.trouble:
                self.trouble = "The artifact store was away for a while, and has everything again."
            if last is not None:
                shutil.rmtree(self._part, ignore_errors=True)
                self.is_up.set()
                return

    def _looks(self) -> _Looks:
        """How the folder looks: its checkpoints; and its journal."""
        states = []
        for name in JOURNAL:
            try:
                found = (self._folder / name).stat()
            except OSError:
                states.append((0, 0))
            else:
                states.append((found.st_size, found.st_mtime_ns))
        return tuple(path.name for path in checkpoint_folders(self._folder)), tuple(states)
