"""Downloads of a training's files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from edgefront.core.errors import Conflict, NotFound, Unavailable
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.folder import (
    checkpoints_in,
    files_in,
    hashed,
    tail,
    training_folder,
)
from edgefront.core.store.database import Database
from edgefront.core.training.run_folder import LOG, RESULT, TENSORBOARD
from edgefront.core.wire.trainings import TrainingFile

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Download:
    """A file that is ready to be sent. `sha256` (of the bytes) is its ETag."""

    path: Path
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class TrainingFiles:
    """A training's downloadable files. Reading them may take long."""

    training_id: str
    folder: Path

    def listed(self) -> list[TrainingFile]:
        """The result's files, those of the newest checkpoint, and those that TensorBoard reads."""
        files: list[TrainingFile] = []
        places = (self.folder / RESULT, *list(checkpoints_in(self.folder).values())[-1:], self.folder / TENSORBOARD)
        for place in places:
            for path in files_in(place):
                with suppress(OSError):  # the checkpoint was just replaced by the next one
                    state = path.stat()
                    modified_at = datetime.fromtimestamp(state.st_mtime, timezone.utc)
                    name = path.relative_to(self.folder).as_posix()
                    files.append(TrainingFile(path=name, size=state.st_size, modified_at=modified_at))
        return files

    def file(self, path: str) -> Download:
        """A listed file; NotFound for any other path."""
        if path not in {listed.path for listed in self.listed()}:
            raise NotFound(f"training {self.training_id} has no file {path!r}: its list names those that it has")
        name = f"{self.training_id}-{path.replace('/', '-')}"
        local = self.folder / path
        try:
            state, digest = hashed(local)
            return Download(local, name, state.st_size, digest)
        except FileNotFoundError:
            raise NotFound(f"training {self.training_id} has no file {path!r} any more") from None
        except OSError as error:
            raise Unavailable(f"the server cannot read {path}: {error.strerror or error}") from error

    def archive(self) -> Iterator[bytes]:
        """The files of the result under their own names, in a folder named by the training's id, as one zip.

        Conflict before there is a result. What is missing when its turn comes is raised by the iterator.
        """
        listed = [file for file in self.listed() if file.path.startswith(f"{RESULT}/")]
        if not listed:
            raise Conflict(f"training {self.training_id} has no result yet: it has one once it is done")
        return zipped(
            Member(
                self.training_id + file.path.removeprefix(RESULT),
                file.size,
                file.modified_at,
                self._chunks(file),
            )
            for file in listed
        )

    def _chunks(self, file: TrainingFile) -> Iterator[bytes]:
        try:
            with (self.folder / file.path).open("rb") as local:
                while chunk := local.read(_CHUNK):
                    yield chunk
        except FileNotFoundError:
            raise NotFound(f"training {self.training_id} has no file {file.path!r} any more") from None
        except OSError as error:
            raise Unavailable(f"the server cannot read {file.path}: {error.strerror or error}") from error

    def sha256_of(self, path: str) -> str | None:
        """SHA-256 of the bytes of a file; None if there is no such file."""
        try:
            return hashed(self.folder / path)[1]
        except FileNotFoundError:
            return None

    def log(self, lines: int) -> str:
        """The last lines of the run's log; empty before the first."""
        return tail(self.folder / LOG, lines)


def files_of(database: Database, principal: Principal, training_id: str, settings: Settings) -> TrainingFiles:
    """The downloadable files of a training. NotFound for another owner's."""
    with database.read() as session:
        training_of(session, principal, training_id)
    return TrainingFiles(training_id, training_folder(settings, training_id))


_EARLIEST = (1980, 1, 1, 0, 0, 0)  # a zip has no date before
_READABLE = 0o644 << 16


@dataclass(frozen=True)
class Member:
    """A file of the archive; its chunks are read when its turn comes."""

    name: str
    size: int
    modified_at: datetime
    chunks: Iterable[bytes]


class _Pipe(io.RawIOBase):
    """What is written can be taken once; nobody can seek in it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._written.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._written = b"".join(self._written), []
        return taken


def zipped(members: Iterable[Member]) -> Iterator[bytes]:
    """The archive in chunks. What reading a file raises is raised here: the archive then has no end.

    Unavailable: a file has another size than its member says.
    """
    pipe = _Pipe()
    with ZipFile(pipe, "w", ZIP_STORED) as archive:
        for member in members:
            info = ZipInfo(member.name, max(_EARLIEST, member.modified_at.timetuple()[:6]))
            info.external_attr = _READABLE
            info.file_size = member.size  # from 2 GiB on its entry has the long form
            sent = 0
            with archive.open(info, "w") as entry:
                for chunk in member.chunks:
                    sent += entry.write(chunk)
                    yield pipe.take()
            if sent != member.size:
                raise Unavailable(f"{member.name} has {sent} bytes, and had {member.size} when the archive was begun")
    yield pipe.take()
