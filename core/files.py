"""Atomic writes of files, their hashes, and errors of a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from edgefront.core.errors import Unavailable

_CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            hashed.update(block)
    return hashed.hexdigest()


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write; it takes its name `path` (replacing what was there) only when the block ends well.

    Raises `Unavailable` where the disk is full; nothing is left behind then, and `path` is as it was.
    FileNotFoundError where its folder is not there.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    draft = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with refusing_full_disk(path), draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file `path` (made if missing), waiting for any other process or thread that holds it."""
    # Here: it hooks into forks, and the process that forks for every launch needs no lock.
    from filelock import FileLock

    with FileLock(path, fallback_to_soft=False):
        yield
