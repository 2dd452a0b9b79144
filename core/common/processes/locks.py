"""Locks that the operating system releases when their holder ends, however it ends.

`filelock` makes them. Its `FileLock` polls while it waits and is not inherited by children, so two kinds of locks are
taken on open files instead: the measuring lock of a host (`agents.measuring.forkserver`: first come, first served, and
held by the launch too), and those of a training (`workers.training`: the file contains the holder, and the run inherits
it).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from edgefront.core.common.errors import EdgefrontError


@contextmanager
def only_holder(path: Path, refusal: EdgefrontError) -> Iterator[None]:
    """Holds the lock file `path` (made if missing) while the block lasts; raises `refusal` if someone holds it."""
    # Never the other kind of lock, a file that must be removed: it would outlive a holder that is killed.
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise refusal from None
    try:
        yield
    finally:
        lock.release()
