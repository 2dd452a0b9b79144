"""Atomic writes of files, their hashes, and errors of a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
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
    """Raises `Conflict` where a file is that must not be replaced, FileNotFoundError where the folder is not there.

    For what takes long before it is written.
    """
    _check_folder(path)
    if path.is_file() and not force:
        raise Conflict(f"{path} exists: replace it with --force, or name another file")


def check_empty(folder: Path, *, force: bool) -> None:
    """Raises `Conflict` where a folder has files that must not be replaced, or is a file. For what takes long before it
    is written.
    """
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is not a folder: name another place with --output")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: write into it with --force, or name another folder with --output")


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file to write, with these permissions; it takes its name `path` (replacing what was there) only when the
    block ends well. A device or a pipe is written to as it is.

    Raises `Unavailable` where the disk is full; nothing is left behind then, and `path` is as it was.
    FileNotFoundError where its folder is not there.
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
    """Writes a file that its owner alone can ever read."""
    with whole_file(path, mode=0o600) as file:
        file.write(text.encode())


@contextmanager
def refusing_full_disk(path: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" into `Unavailable`, naming the place."""
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
    """Puts the path into errors that do not say where they are of."""
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
    """Holds the lock file `path` (made if missing), waiting for any other process or thread that holds it."""
    # Here: it hooks into forks, and the process that forks for every launch needs no lock.
    from filelock import FileLock

    with FileLock(path, fallback_to_soft=False):
        yield


def lock_open(descriptor: int, *, shared: bool) -> bool:
    """Locks an open file until it is closed, unless anybody holds a lock on it; shared ones may be held by several.
    Whether that could be done at once.
    """
    import fcntl  # which Windows lacks, where clients run

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's entries, last through a power failure, where the system can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)
