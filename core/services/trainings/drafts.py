"""Files of a model during its import, in a separate folder until the import's training is stored.

    imports/ID.lock      locked by the importing process; ID becomes the training's id
    imports/ID/          the archive, then its files; the marker `placed` once they are in the training's folder

The files move into the training's folder before the training's row is stored. If an import fails before its row is
stored, the same process or the next import removes the files.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

from edgefront.core.common.errors import EdgefrontError, InvalidInput, TooLarge
from edgefront.core.common.files import refusing_full_disk
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.folder import remove_folder, training_folder
from edgefront.core.store.database import Database
from edgefront.core.store.tables.base import new_id
from edgefront.core.training.evaluation.given_model import FILES, max_file_bytes, model_files
from edgefront.core.training.evaluation.package import CARD
from edgefront.core.training.run_folder import RESULT

IMPORTS = "imports"
MAX_MEMBERS = 64
_PLACED = "placed"
_MAX_READ = 1 << 20
"""Maximum bytes of one read from an archive; the header of an archive member is smaller."""

_log = logging.getLogger(__name__)


class Draft:
    """A model that this process imports. Callers must close the draft, whether or not the training was stored."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self.training_id = new_id("trn")
        imports = settings.artifact_folder / IMPORTS
        imports.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(imports / f"{self.training_id}.lock")
        self._lock.acquire()
        self.folder = imports / self.training_id
        self.folder.mkdir()
        self.archive, self.result = self.folder / "model.tar", self.folder / RESULT
        self._file = self.archive.open("xb")

    def write(self, content: bytes) -> None:
        """Appends `content` to the archive. `Unavailable` if the disk is full."""
        with refusing_full_disk(self.archive):
            self._file.write(content)

    def unpack(self) -> None:
        """Unpacks the complete archive, and removes the archive. Same errors as the function `unpack`."""
        with refusing_full_disk(self.result):
            self._file.close()
            unpack(self.archive, self.result)
        self.archive.unlink()

    def size(self) -> int:
        return sum(path.stat().st_size for path in (*model_files(self.result).values(), self.result / CARD))

    def move_to_training(self) -> None:
        """Moves the files into the training's folder."""
        (self.folder / _PLACED).touch()
        folder = training_folder(self._settings, self.training_id)
        folder.mkdir(parents=True)
        self.result.replace(folder / RESULT)

    def close(self) -> None:
        self._file.close()
        try:
            _remove(self._settings, self._database, self.folder)
        except (EdgefrontError, OSError) as error:
            _log.warning("files of the import %s are not removed yet: %s", self.training_id, error)
        finally:
            self._lock.release()


def remove_abandoned(settings: Settings, database: Database) -> None:
    """Removes the files of imports whose process was killed or failed to remove the files."""
    from filelock import Timeout

    for path in sorted((settings.artifact_folder / IMPORTS).glob("*.lock")):
        lock = _lock(path)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        try:
            _remove(settings, database, path.with_suffix(""))
        except (EdgefrontError, OSError) as error:
            _log.warning("files of the import %s are not removed yet: %s", path.stem, error)
        finally:
            lock.release()


def unpack(archive: Path, into: Path) -> None:
    """Unpacks a model's files from an uncompressed tar archive, and syncs them to disk.

    Raises `InvalidInput` if the file is not a complete tar archive, or has members that are not model files; `TooLarge`
    for a text file above its limit.
    """
    into.mkdir()
    try:
        with _Bounded(archive) as file, tarfile.open(fileobj=file, mode="r:") as packed:
            for number, member in enumerate(packed):
                if number >= MAX_MEMBERS:
                    raise _refused(f"it has more than {MAX_MEMBERS} entries")
                if not member.isdir():
                    member.name = _name(member)
                    packed.extract(member, into, filter="data")
    except (tarfile.TarError, UnicodeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise _refused(str(error)) from None
    for path in model_files(into).values():
        with path.open("rb") as content:
            os.fsync(content.fileno())


def _name(member: tarfile.TarInfo) -> str:
    """Returns the file name of an archive member, after checking that the member is permitted."""
    name = PurePosixPath(member.name).as_posix()
    if name not in FILES:
        raise _refused(f"it contains {name[:100]!r}, which is not a model file")
    if not member.isreg() or member.issparse():
        raise _refused(f"its {name} is not a regular file")
    most = max_file_bytes(name)
    if most is not None and member.size > most:
        raise TooLarge(f"the model cannot be imported: its {name} has {member.size} bytes, more than {most}")
    return name


def _refused(what: str) -> InvalidInput:
    allowed = f"an uncompressed tar archive of {', '.join(FILES)}, as far as the model has them"
    return InvalidInput(f"the body is not a tar archive of a model: {what}", field="model", allowed=allowed)


class _Bounded(io.FileIO):
    """An archive file that refuses large reads, which a forged length in a header would cause."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _MAX_READ:
            raise tarfile.ReadError("the header of an entry is too long")
        return super().read(size) or b""


def _lock(path: Path) -> Any:
    from filelock import FileLock  # imported late because it hooks into forks, as in `core.common.files.locked`

    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


def _remove(settings: Settings, database: Database, draft: Path) -> None:
    """Removes an import's folder and lock, and the folder of its training unless the database has the training."""
    if (draft / _PLACED).exists():
        with database.read() as session:
            is_stored = training_queries.find(session, draft.name) is not None
        if not is_stored:
            remove_folder(settings, draft.name)
    shutil.rmtree(draft, ignore_errors=True)
    draft.with_suffix(".lock").unlink(missing_ok=True)
