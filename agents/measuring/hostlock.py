"""One measurement at a time on a physical host: agents take turns around each launch.

Containers take turns only if they share the lock's folder: mount it, or name a file by EDGEFRONT_MEASURE_LOCK.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_path() -> Path:
    """The lock file of this host."""
    named = os.environ.get("EDGEFRONT_MEASURE_LOCK")
    return Path(named) if named else Path(tempfile.gettempdir()) / "edgefront-measure.lock"


@contextmanager
def only_measurement(path: Path) -> Iterator[None]:
    """Waits for all other measurements on this host, then holds the lock. A process that is forked inside holds it too:
    the next measurement waits until both have ended.
    """
    descriptor = _open(path)
    try:
        # A blocking call is fair; with polling, an agent that launches without pauses would always win.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # the lock is released with the last copy of the descriptor


def _open(path: Path) -> int:
    # Opened without creating first: in a sticky folder a file of another user may not be opened for creation.
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    for attempt in (flags, flags | os.O_CREAT | os.O_EXCL, flags, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)):
        try:
            descriptor = os.open(path, attempt, 0o666)
        except (FileNotFoundError, FileExistsError, PermissionError):
            continue
        if attempt & os.O_CREAT:
            os.chmod(path, 0o666)  # noqa: S103 - every user's agent takes turns, whatever this one's umask
        return descriptor
    raise PermissionError(f"the lock {path} cannot be opened; name another file by EDGEFRONT_MEASURE_LOCK")
