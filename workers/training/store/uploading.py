"""Keeps the artifact store like a training's folder while it is trained, in a thread: nothing waits for an upload."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

from edgefront.core.errors import EdgefrontError
from edgefront.core.services.trainings.files.folder import JOURNAL, checkpoints_in, files_in
from edgefront.core.services.trainings.files.store import Publisher, Superseded
from edgefront.core.training.run_folder import RESULT

_EVERY = 15
"""Journal and log are uploaded with each checkpoint, and once in so many looks between them."""
_MOST_OF_TIME = 0.1
"""And no more often than that this takes such a part of the time."""
_MOST_PAUSE_S = 60.0

_log = logging.getLogger("edgefront.supervise")


class Uploading:
    """Of one claim. A store that is away is tried again, ever less often up to once a minute."""

    def __init__(self, publisher: Publisher, folder: Path, part: Path, look_s: float) -> None:
        self._publisher, self._folder, self._part, self._look_s = publisher, folder, part, look_s
        self._wake = threading.Event()
        self._with_result: bool | None = None
        self._ended = False
        self.is_up = threading.Event()
        """What was there at `finish` is on the store."""
        self.trouble = ""
        """What a person should know of the store."""
        self._thread = threading.Thread(target=self._work, name="edgefront-upload", daemon=True)
        self._thread.start()

    def finish(self, *, result: bool) -> None:
        """The run has ended: uploads what it has left, with its result if that is whole, and ends."""
        self._with_result = result
        self._wake.set()

    def end(self, timeout_s: float) -> None:
        """Ends after the upload at hand, or without having waited for that."""
        self._ended = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        pause_s, again_at, uploaded = self._look_s, 0.0, None
        while not self._ended:
            self._wake.clear()
            result, checkpoints, began = self._with_result, list(checkpoints_in(self._folder)), time.monotonic()
            if result is None and checkpoints == uploaded and began < again_at:
                self._wake.wait(self._look_s)
                continue
            try:
                self._publisher.publish(snapshot(self._folder, self._part, result=bool(result)))
            except Superseded as error:  # the lease is lost, as the supervisor will find
                _log.warning("nothing more is uploaded: %s", error.detail)
                self.trouble = f"Nothing more is uploaded: {error.detail}."
                return
            except Exception as error:  # with the thread would end what the run's end waits for
                reason = error.detail if isinstance(error, EdgefrontError) else f"{type(error).__name__}: {error}"
                _log.warning("not uploaded yet: %s", reason)
                self.trouble = f"Not uploaded yet: {reason}. It is tried again."
                self._wake.wait(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
                continue
            uploaded, pause_s = checkpoints, self._look_s
            now = time.monotonic()
            again_at = now + max(_EVERY * self._look_s, (now - began) / _MOST_OF_TIME)
            if self.trouble:
                self.trouble = "The artifact store was away for a while, and has everything again."
            if result is not None:
                shutil.rmtree(self._part, ignore_errors=True)
                self.is_up.set()
                return


def snapshot(folder: Path, into: Path, *, result: bool) -> dict[str, Path]:
    """What is to be uploaded of a folder while a run writes into it: path → where it lies and stays as it is.

    Checkpoints never change but are removed when newer ones come: each is linked, or copied where there are no links.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name in JOURNAL:
        with suppress(FileNotFoundError):
            shutil.copy2(folder / name, into / name)
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
