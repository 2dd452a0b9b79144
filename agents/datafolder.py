"""The agent's data folder belongs to one agent at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefront.core.errors import EdgefrontError


class DataFolderBusy(EdgefrontError):
    """Another agent runs with this data folder."""

    kind = "data-folder-busy"


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Make the folder (for this user only) and hold it; `DataFolderBusy` if another process does."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _try_lock(descriptor):
            raise DataFolderBusy(f"another agent runs with {folder}: stop it, or choose another data folder")
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
