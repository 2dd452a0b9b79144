"""One service a data folder: a lock that the operating system frees when its holder ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from edgefront.core.errors import Conflict


class HomeLock:
    """Holds `<home>/lock`. `Conflict` if another process does."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._descriptor: int | None = None

    def __enter__(self) -> HomeLock:
        self._home.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise Conflict(
                f"an edgefront service already runs in {self._home}: use it, stop it, or give another folder by --home"
            ) from None
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
