"""The agent's data folder belongs to one agent at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefront.core.errors import EdgefrontError
from edgefront.core.processes.locks import only_holder


class DataFolderBusy(EdgefrontError):
    """Another agent runs with this data folder."""

    kind = "data-folder-busy"


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Creates the folder (for this user only) and locks it; `DataFolderBusy` if another process holds the lock."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = DataFolderBusy(f"another agent runs with {folder}: stop it, or choose another data folder")
    with only_holder(folder / "lock", busy):
        yield
