"""Folder of a training, with checkpoints, log and deletion marker, and the limit on the size of an owner's files.

API and workers share the disk of these folders.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from sqlalchemy import select

from edgefront.core.common.errors import BoundReached, Unavailable
from edgefront.core.common.files import sha256
from edgefront.core.common.units import MIB
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT

FOLDER = "trainings"
WEIGHTS = f"{RESULT}/model.safetensors"
MAX_LOG_BYTES = 1 << 20
"""Maximum size of a log in one response, bytes."""
_STEP = "step-"
_DELETED = ".deleted"


def training_folder(settings: Settings, training_id: str) -> Path:
    """Returns the folder of a training's files; see `core.training.run_folder`."""
    return settings.artifact_folder / FOLDER / training_id


def remove_folder(settings: Settings, training_id: str) -> None:
    """Deletes all files of a training."""
    mark_deleted(settings, training_id)
    shutil.rmtree(training_folder(settings, training_id), ignore_errors=True)


def mark_deleted(settings: Settings, training_id: str) -> None:
    """Marks the folder for removal, in case the training's supervisor dies before it removes the folder."""
    with suppress(OSError):  # no folder yet
        (training_folder(settings, training_id) / _DELETED).touch()


def deleted_trainings(settings: Settings) -> list[str]:
    """Ids of deleted trainings whose files still exist."""
    return sorted(path.parent.name for path in (settings.artifact_folder / FOLDER).glob(f"*/{_DELETED}"))


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """Returns step → folder of the checkpoint, for complete checkpoints, ordered by step."""
    paths = (folder / CHECKPOINTS).glob(f"{_STEP}*")
    by_step = {int(step): path for path in paths if (step := path.name.removeprefix(_STEP)).isdigit()}
    return dict(sorted(by_step.items()))


def files_in(folder: Path) -> list[Path]:
    """Returns all files below a folder, without hidden files and links."""
    paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in paths if not path.name.startswith(".") and not path.is_symlink())


def hashed(path: Path) -> tuple[os.stat_result, str]:
    """Returns a file's status (size, time …) and its SHA-256. The SHA-256 is cached until the status changes."""
    state = path.stat()
    return state, _sha256_of(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=10_000)
def _sha256_of(path: Path, *_state: int) -> str:
    return sha256(path)


def tail(path: Path, lines: int) -> str:
    """Returns up to `lines` final lines of a text file, from its final `MAX_LOG_BYTES`. Empty without the file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES))
            read = io.BytesIO(file.read(MAX_LOG_BYTES)).readlines()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Unavailable(f"the server cannot read {path.name}: {error.strerror or error}") from error
    whole = read[1:] if size > MAX_LOG_BYTES else read  # the first line may be truncated
    last = b"".join(whole[-lines:]).decode("utf-8", errors="replace")
    return last.replace("\0", "\ufffd")


def folder_bytes(folder: Path) -> int:
    """Total size of the files below a folder, bytes."""
    total = 0
    for path in files_in(folder):
        with suppress(FileNotFoundError):  # a replaced checkpoint
            total += path.stat().st_size
    return total


def stored_bytes(settings: Settings, training_ids: Iterable[str]) -> int:
    """Total size of the files of these trainings, bytes. Reads folders, so callers should not hold a transaction."""
    return sum(folder_bytes(training_folder(settings, id_)) for id_ in training_ids)


def check_stored(database: Database, owner: str, settings: Settings, added: int = 0) -> None:
    """Raises `BoundReached` if the files of the owner's trainings reach their limit, or would exceed the limit with
    `added` more bytes.
    """
    most = settings.owners.stored_bytes
    with database.read() as session:
        ids = session.scalars(select(Training.id).where(Training.owner == owner)).all()
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
