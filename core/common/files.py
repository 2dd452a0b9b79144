"""Atomic writes of files, their hashes, locks, and errors of a full disk; JSON lines.

The operating system releases the locks when their holder ends, however it ends. `filelock` makes them, except two that
are taken on open files (`lock_open`), because `FileLock` polls while it waits and children do not inherit it: the
measuring lock of a host (`agents.measuring.forkserver`: first come, first served, and held by the launch too), and
those of a training (`workers.training`: the file contains the holder, and the run inherits it).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """Checks before a long computation that `path` can be written: `Conflict` if it exists and must not be replaced,
    FileNotFoundError without its folder.
    """
    _check_folder(path)
    if path.is_file() and not force:
        raise Conflict(f"{path} exists: replace it with --force, or name another file")


def check_empty(folder: Path, *, force: bool) -> None:
    """Checks before a long computation that `folder` can be written: `Conflict` if it is a file, or has files that must
    not be replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is not a folder: name another place with --output")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: write into it with --force, or name another folder with --output")


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Writes a file atomically, with these permissions: it replaces `path` only when the block succeeds. A device or a
    pipe is written directly.

    `Unavailable` if the disk is full; `path` is then unchanged. FileNotFoundError without its folder.
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
    """Writes a file that only its owner can read, also while it is written."""
    with whole_file(path, mode=0o600) as file:
        file.write(text.encode())


@contextmanager
def refusing_full_disk(path: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" into `Unavailable` with the path."""
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
    """Adds the path to errors without one."""
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
    """Holds the lock file `path` (made if missing); waits for any other process or thread that holds it."""
    from filelock import FileLock  # here: it hooks into forks, and the process that forks for launches needs no lock

    with FileLock(path, fallback_to_soft=False):
        yield


@contextmanager
def only_holder(path: Path, refusal: EdgefrontError) -> Iterator[None]:
    """Holds the lock file `path` (made if missing) while the block lasts; raises `refusal` if someone holds it."""
    from filelock import FileLock, Timeout

    # Never a soft lock, a file that must be removed: it would outlive a holder that is killed.
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise refusal from None
    try:
        yield
    finally:
        lock.release()


def lock_open(descriptor: int, *, shared: bool) -> bool:
    """Locks an open file until it is closed, without waiting; several may hold a shared lock. Returns whether it
    succeeded.
    """
    import fcntl  # which Windows lacks, where clients run

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync(path: Path) -> None:
    """Flushes a file, or a folder's entries, to disk where the system can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)


# JSON lines ----------------------------------------------------------------------------------------------------------
# A line ends at a line feed alone. JSON strings may hold other line separators of Unicode (U+2028, U+0085, …), at which
# `str.splitlines` cuts.


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def object_in(line: str) -> dict[str, Any]:
    """The object on a line, which may begin with a byte order mark. `ValueError` says what is wrong with the line."""
    try:
        value = json.loads(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"is not a JSON object, but a {type(value).__name__}")
    return value
