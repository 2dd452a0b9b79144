"""Removes the files of deleted trainings: folders on this machine, and objects on the artifact store.

Copies may be on other machines than the one that deletes the training, and the store may be unavailable at that time.
So a marker stays on the store (`deleted/TRAINING`), by which workers remove their copies when they start, and another
in the artifacts folder until the files on the store are removed.
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

DELETED = "deleted"
"""Folder of the markers of deleted trainings, on the store and in the artifacts folder."""
_DELETED = ".deleted"

_log = logging.getLogger(__name__)


def remove_folder(settings: Settings, training_id: str) -> None:
    """Deletes all files of a training, also on the artifact store, if there are any."""
    mark_deleted(settings, training_id)
    shutil.rmtree(training_folder(settings, training_id), ignore_errors=True)


def mark_deleted(settings: Settings, training_id: str) -> None:
    """Removes the files from the artifact store once it is available, and marks the folder for removal, in case the
    supervisor of the training is lost before it removes it.
    """
    with suppress(OSError):  # there is none yet
        (training_folder(settings, training_id) / _DELETED).touch()
    if settings.artifact_url is not None:
        pending = settings.artifact_folder / DELETED
        pending.mkdir(parents=True, exist_ok=True)
        (pending / training_id).touch()
        finish_deletions(settings)


def deleted_trainings(settings: Settings) -> list[str]:
    """Deleted trainings that still have files."""
    here = settings.artifact_folder / FOLDER
    ids = {path.parent.name for path in here.glob(f"*/{_DELETED}")}
    if settings.artifact_url is not None:
        try:
            store = ObjectStore(settings.artifact_url)
            ids |= {*store.names(FOLDER), *_names(here)} & set(store.names(DELETED))
        except Unavailable as error:
            _log.warning("files of deleted trainings are not removed now: %s", error.detail)
    return sorted(ids)


def finish_deletions(settings: Settings) -> None:
    """Removes files from the artifact store that could not be removed while it was unavailable."""
    if settings.artifact_url is None:
        return
    store = ObjectStore(settings.artifact_url)
    for training_id in _names(settings.artifact_folder / DELETED):
        try:
            store.write(f"{DELETED}/{training_id}", b"")  # other machines remove their copies
            store.remove_folder(f"{FOLDER}/{training_id}")
        except Unavailable as error:
            _log.warning("training %s is not removed from the artifact store yet: %s", training_id, error.detail)
            return
        (settings.artifact_folder / DELETED / training_id).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
