"""Removes what trainings that were deleted have left: folders on this machine, and what is on the artifact store.

A machine that has copies of a training need not be the one that is told of its end, nor the store there at that time.
So a mark stays on the store (`deleted/TRAINING`) by which workers remove their copies when they start, and one in the
folder of artifacts until the store has been told.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

from edgefront.core.errors import Unavailable
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.folder import FOLDER, training_folder
from edgefront.core.services.trainings.files.objects import ObjectStore
from edgefront.core.services.trainings.files.store import DELETED, training_store

_DELETED = ".deleted"
_CACHE = "fetched"
"""Earlier versions kept copies of downloads there, also of trainings that are deleted by now."""

_log = logging.getLogger(__name__)


def remove_folder(settings: Settings, training_id: str) -> None:
    """Deletes all that a training left, on the artifact store too; nothing if there is nothing."""
    mark_deleted(settings, training_id)
    shutil.rmtree(training_folder(settings, training_id), ignore_errors=True)


def mark_deleted(settings: Settings, training_id: str) -> None:
    """Removes what is on the artifact store, as soon as that is not away, and marks the folder as one to remove: for
    when whoever runs the training is lost before that is done.
    """
    with suppress(OSError):  # there is none yet
        (training_folder(settings, training_id) / _DELETED).touch()
    if settings.artifact_url is not None:
        pending = settings.artifact_folder / DELETED
        pending.mkdir(parents=True, exist_ok=True)
        (pending / training_id).touch()
        finish_deletions(settings)


def deleted_trainings(settings: Settings) -> list[str]:
    """Trainings that were deleted and of which something is still there."""
    here = settings.artifact_folder / FOLDER
    found = {path.parent.name for path in here.glob(f"*/{_DELETED}")}
    if settings.artifact_url is not None:
        try:
            store = ObjectStore(settings.artifact_url)
            found |= {*store.names(FOLDER), *_names(here)} & set(store.names(DELETED))
        except Unavailable as error:
            _log.warning("files of deleted trainings are not removed now: %s", error.detail)
    return sorted(found)


def finish_deletions(settings: Settings) -> None:
    """Removes from the artifact store what it was away for."""
    if settings.artifact_url is not None:
        shutil.rmtree(settings.artifact_folder / _CACHE, ignore_errors=True)
    for training_id in _names(settings.artifact_folder / DELETED):
        try:
            if (stored := training_store(settings, training_id)) is not None:
                stored.remove()
        except Unavailable as error:
            _log.warning("training %s is not removed from the artifact store yet: %s", training_id, error.detail)
            return
        (settings.artifact_folder / DELETED / training_id).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
