"""How much the files of trainings take."""

from __future__ import annotations

from collections.abc import Iterable

from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.folder import FOLDER, files_in, training_folder
from edgefront.core.services.trainings.files.objects import ObjectStore


def stored_bytes(settings: Settings, training_ids: Iterable[str]) -> int:
    """Bytes of these trainings together, where their files are kept. It reads folders or the store: call it outside
    transactions.

    Raises `Unavailable` if the store is.
    """
    if settings.artifact_url is not None:
        store = ObjectStore(settings.artifact_url)
        return sum(store.size(f"{FOLDER}/{id_}") for id_ in training_ids)
    total = 0
    for id_ in training_ids:
        for path in files_in(training_folder(settings, id_)):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # a checkpoint that was replaced just now
                continue
    return total
