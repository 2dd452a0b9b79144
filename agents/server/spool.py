"""Unsent results, kept on disk until the server has acknowledged them.

One JSON file per result, written atomically; names rise with time, so the oldest is sent first. With a full disk
nothing is lost: results wait in memory, and `writable` returns False, so that the agent requests no new work.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefront.core.errors import Unavailable
from edgefront.core.files import whole_file
from edgefront.core.wire.agent import LaunchReport

_log = logging.getLogger(__name__)

_SUFFIX = ".json"


class Entry(BaseModel):
    """A result, and the wall time since the previous one during which the agent had work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    report: LaunchReport
    busy_s: float = 0.0


@dataclass(frozen=True)
class Waiting:
    """An entry of the spool: `name` is the file's name, `stored` whether it was written."""

    name: str
    entry: Entry
    stored: bool


class Spool:
    """The results that wait in `folder`. It is not shared: each agent has its own data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        self._waiting: dict[str, Waiting] = {}
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            entry = _read(path)
            if entry is not None:
                self._waiting[path.name] = Waiting(path.name, entry, stored=True)
        for draft in folder.glob(".*.part"):
            draft.unlink()  # truncated by a crash; its launch was never reported and is run again

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, entry: Entry) -> bool:
        """Adds a result; False if it could not be written to disk and is in memory only."""
        self._count += 1
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._count}{_SUFFIX}"
        self._waiting[name] = Waiting(name, entry, stored=False)
        return self._store(name)

    def oldest(self, count: int) -> Sequence[Waiting]:
        """The oldest results."""
        return [self._waiting[name] for name in sorted(self._waiting)[:count]]

    def drop(self, names: Iterable[str]) -> None:
        """Removes results that the server has acknowledged."""
        for name in names:
            waiting = self._waiting.pop(name)
            if waiting.stored:
                self._path(name).unlink(missing_ok=True)

    def set_aside(self, name: str, why: str) -> None:
        """Sets aside a result that the server refuses: its file is kept for inspection, and never sent again."""
        waiting = self._waiting.pop(name)
        _log.error(
            "the result of launch %s was refused and is kept in a .refused file: %s",
            waiting.entry.report.launch_id,
            why,
        )
        if waiting.stored:
            self._path(name).replace(self._path(name).with_suffix(".refused"))

    def writable(self) -> bool:
        """Whether the disk can store results: writes those in memory now, and tests whether more can be written."""
        if not all(self._store(name) for name, waiting in list(self._waiting.items()) if not waiting.stored):
            return False
        try:
            with whole_file(self.folder / "probe") as file:
                file.write(b"\0" * 4096)
            (self.folder / "probe").unlink()
        except (OSError, Unavailable) as error:
            _log.error(
                "the spool %s cannot be written to; no new work is requested until it can: %s", self.folder, error
            )
            return False
        return True

    def _store(self, name: str) -> bool:
        waiting = self._waiting[name]
        try:
            with whole_file(self._path(name)) as file:
                file.write(waiting.entry.model_dump_json().encode())
        except (OSError, Unavailable) as error:
            _log.error("a result could not be written and waits in memory: %s", error)
            return False
        self._waiting[name] = Waiting(name, waiting.entry, stored=True)
        return True

    def _path(self, name: str) -> Path:
        return self.folder / name


def _read(path: Path) -> Entry | None:
    try:
        text = path.read_bytes()
    except OSError as error:
        _log.error("%s cannot be read and is left in place: %s", path, error)
        return None
    try:
        return Entry.model_validate_json(text)
    except ValidationError as error:
        aside = path.with_suffix(".corrupt")
        _log.error("%s is not a result; it is kept as %s: %s", path, aside.name, error)
        with suppress(OSError):
            path.replace(aside)
        return None
