"""Atomic writes of files, SHA-256 of files, file locks, errors of a full disk, tar archives, and JSON lines.

The operating system releases a lock when the holding process ends, even if the process is killed. `filelock` implements
all locks but one: the measuring lock of a host (`agents.measuring.forkserver`) is taken on an open file, because a
`FileLock` polls while waiting and is not inherited by child processes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from edgefront.core.common.errors import Conflict, EdgefrontError, Unavailable

_CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            hashed.update(block)
    return hashed.hexdigest()


def check_free(path: Path, *, force: bool) -> None:
    """Checks, before a long computation, that the result can be written to the file `path`.

    Raises `Conflict` if the file exists and `force` is false, FileNotFoundError if the folder of the file is missing.
    """
    _check_folder(path)
    if path.is_file() and not force:
        raise Conflict(f"{path} exists: replace it with --force, or name another file")


def check_empty(folder: Path, *, force: bool) -> None:
    """Checks before a long computation that `folder` can be written. Raises `Conflict` if `folder` is a file, or if
    `folder` has files and `force` is false.
    """
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is not a folder: name another place with --output")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: write into it with --force, or name another folder with --output")


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Opens a new file with the permissions `mode`, which replaces `path` atomically if the `with` block succeeds. A
    device or a pipe is written directly.

    Raises `Unavailable` if the disk is full (`path` is then unchanged), FileNotFoundError if the folder is missing.
    """
    _check_folder(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        with refusing_full_disk(path), _naming(path), path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with refusing_full_disk(path), _naming(path), open(draft, "xb", opener=partial(os.open, mode=mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Writes a text file that only the file's owner can read, even during the write."""
    with whole_file(path, mode=0o600) as file:
        file.write(text.encode())


FULL_BYTES = 1 << 20
"""Free bytes below which a disk is taken for full if a write has failed."""


def disk_is_full(folder: Path) -> bool:
    """Whether the disk of an existing folder has practically no space left."""
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False


@contextmanager
def refusing_full_disk(path: Path) -> Iterator[None]:
    """Context manager: converts the OSErrors "no space left" and "quota exceeded" into `Unavailable` with the path."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(
                f"the disk is full: {path} could not be written; free some space in {path.parent}"
            ) from error
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Context manager that adds the path to OSErrors without a file name."""
    try:
        yield
    except BrokenPipeError:
        raise EdgefrontError(f"{path} could not be written: its reader has ended") from None
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file `path` (created if missing). Waits until no other process or thread holds the lock."""
    from filelock import FileLock  # a late import: filelock hooks into forks, and the fork server needs no lock

    with FileLock(path, fallback_to_soft=False):
        yield


@contextmanager
def only_holder(path: Path, refusal: EdgefrontError) -> Iterator[None]:
    """Holds the lock file `path` (created if missing) for the `with` block. Raises `refusal` if the lock is taken."""
    from filelock import FileLock, Timeout

    # Never a soft lock: the file of a soft lock would outlive a killed process.
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise refusal from None
    try:
        yield
    finally:
        lock.release()


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk if the file system supports fsync."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems do not support fsync
            os.fsync(handle)
    finally:
        os.close(handle)


TAR_END = bytes(2 * tarfile.BLOCKSIZE)


def tar_header(name: str, size: int) -> bytes:
    """Returns the header of a file in a tar archive, without a time, so that equal files give equal bytes."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def tar_padding(size: int) -> bytes:
    """Returns the bytes that follow a file of this size in a tar archive."""
    return bytes(-size % tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class Archive:
    """An uncompressed tar archive, created while it is sent, from a mapping of names in the archive to files. Each
    iteration reads the files again, so that a request can be retried.
    """

    files: Mapping[str, Path]

    @property
    def size(self) -> int:
        """Size of the archive in bytes."""
        sizes = [path.stat().st_size for path in self.files.values()]
        return sum(tarfile.BLOCKSIZE + size + len(tar_padding(size)) for size in sizes) + len(TAR_END)

    def __iter__(self) -> Iterator[bytes]:
        """Yields the archive in chunks. Raises `Conflict` if the size of a file changes meanwhile."""
        for name, path in self.files.items():
            with path.open("rb") as file:
                size, sent = path.stat().st_size, 0
                yield tar_header(name, size)
                while chunk := file.read(_CHUNK):
                    sent += len(chunk)
                    yield chunk
            if sent != size:
                raise Conflict(f"{path} changed while it was sent: it had {size} bytes, now {sent}")
            yield tar_padding(sent)
        yield TAR_END


# JSON lines ----------------------------------------------------------------------------------------------------------
# Only a line feed ends a line. `str.splitlines` would also cut at other line separators of Unicode (U+2028, U+0085, …),
# which JSON strings may contain.


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number (from 1) and the text of every line of `text` that is not blank."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def object_in(line: str) -> dict[str, Any]:
    """Parses a line with a JSON object, perhaps after a byte order mark. Raises ValueError for any other text."""
    try:
        value = json.loads(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"is not a JSON object, but a {type(value).__name__}")
    return value
