"""One service per data folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefront.core.errors import Conflict
from edgefront.core.processes.locks import only_holder


@contextmanager
def own_home(home: Path) -> Iterator[None]:
    """Creates the folder and locks it; `Conflict` if another process holds the lock."""
    home.mkdir(parents=True, exist_ok=True)
    busy = Conflict(f"an edgefront service already runs in {home}: use it, stop it, or give another folder by --home")
    with only_holder(home / "lock", busy):
        yield
