"""How much the files of trainings take, and may take."""

from __future__ import annotations

from collections.abc import Iterable

from edgefront.core.errors import BoundReached
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.folder import files_in, training_folder
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.store.database import Database
from edgefront.core.units import MIB


def stored_bytes(settings: Settings, training_ids: Iterable[str]) -> int:
    """Bytes of these trainings together. It reads folders: call it outside transactions."""
    total = 0
    for id_ in training_ids:
        for path in files_in(training_folder(settings, id_)):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # a checkpoint that was replaced just now
                continue
    return total


def check_stored(database: Database, owner: str, settings: Settings, added: int = 0) -> None:
    """Raises `BoundReached` where the files of the owner's trainings take all that they may, or would with `added`
    bytes more.
    """
    most = settings.owners.stored_bytes
    if most is None:
        return
    with database.read() as session:
        ids = rows.ids_of(session, owner)
    used = stored_bytes(settings, ids)
    if used < most and used + added <= most:
        return
    more = f", and the model has {added / MIB:,.0f} MiB" if added else ""
    raise BoundReached(
        f"the files of {owner!r}'s trainings take {used / MIB:,.0f} MiB{more}, and at most {most / MIB:,.0f} MiB are "
        "allowed: delete trainings, or ask an admin for more (owners.stored_bytes)",
        bound="owners.stored_bytes",
        used=used,
        most=most,
    )
