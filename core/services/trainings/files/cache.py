"""Files of trainings that were fetched from the artifact store: a cache, of which anything may be removed at any time.

They lie by the state of the result or checkpoint that they belong to, `fetched/TRAINING/STATE/result/…`. A file that is
there was compared with its hash. What nobody has asked for in a week goes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from edgefront.core.errors import Unavailable
from edgefront.core.files import locked
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.store import Manifest, StoredFile, TrainingStore
from edgefront.core.training.run_folder import CHECKPOINTS

FOLDER = "fetched"
_KEPT_S = 7 * 24 * 3600.0


def fetched(settings: Settings, stored: TrainingStore, manifest: Manifest, file: StoredFile) -> Path:
    """Where the file lies, which is fetched if it is not there.

    Raises `Damaged` if the store has it no more, or another one than it should have; `Unavailable` while it is away.
    """
    folder = fetched_folder(settings, stored.training_id) / _state(manifest, file)
    path = folder / file.path
    try:
        _clear(settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        with locked(folder / ".lock"):  # others may want it now
            if not path.exists():
                part = path.with_name(f".{path.name}.part")
                part.unlink(missing_ok=True)
                stored.download(manifest, file, part)
                part.replace(path)
    except OSError as error:
        raise Unavailable(f"the server cannot keep {file.path}: {error.strerror or error}") from error
    return path


def fetched_folder(settings: Settings, training_id: str = "") -> Path:
    """Of a training, or of all."""
    return settings.artifact_folder / FOLDER / training_id


def _state(manifest: Manifest, file: StoredFile) -> str:
    parts = file.path.split("/")
    group = "/".join(parts[: 2 if parts[0] == CHECKPOINTS else 1])
    of = [f"{other.path} {other.sha256}" for other in manifest.below(group)]
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:16]


def _clear(settings: Settings) -> None:
    for folder in fetched_folder(settings).glob("*/*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder)
