"""The files in which a training reports its progress: `status.json` and `metrics.jsonl` of its folder
(`core.training.run_folder`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgefront.core.files import refusing_full_disk, whole_file
from edgefront.core.training.run_folder import LIMIT, METRICS, STATUS, RunStatus
from edgefront.core.wire.trainings import MetricView

_EVERY_S = 1.0


class Journal:
    """The two files of one run. Nothing is written where `writes` is False (every rank but the first)."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        self._folder, self.writes = folder, writes
        self._follower: Callable[[MetricView], Iterable[str]] | None = None
        self.status = RunStatus(state="starting")
        self._written_at = 0.0

    def update(self, *, now: bool = True, **changes: Any) -> None:
        """Replaces these fields of the status; written at once, or with `now` False within about a second."""
        self.status = self.status.model_copy(update=changes)
        if not self.writes or (not now and time.monotonic() - self._written_at < _EVERY_S):
            return
        with whole_file(self._folder / STATUS) as file:
            file.write(self.status.model_dump_json(indent=1).encode())
        self._written_at = time.monotonic()

    def note(self, text: str) -> None:
        """Adds a sentence to what a person should know."""
        self.update(note=f"{self.status.note} {text}".strip())

    def report(self, metric: MetricView) -> None:
        """Adds a line to the metrics; the status follows within about a second."""
        path = self._folder / METRICS
        if self.writes:
            with refusing_full_disk(path), path.open("ab") as file:
                file.write(metric.model_dump_json(exclude_none=True).encode() + b"\n")
        self.update(now=False, last=metric, step=metric.step)
        for text in () if self._follower is None else self._follower(metric):
            self.note(text)

    def follow(self, follower: Callable[[MetricView], Iterable[str]]) -> None:
        """Calls `follower` with each report from now on; what it returns is noted."""
        self._follower = follower

    def take_back(self, step: int) -> None:
        """Removes the lines after `step`, and a line truncated by a crash: their steps are repeated."""
        path = self._folder / METRICS
        if not self.writes or not path.exists():
            return
        kept = [metric for metric in read_metrics(path) if metric.step <= step]
        with whole_file(path) as file:
            for metric in kept:
                file.write(metric.model_dump_json(exclude_none=True).encode() + b"\n")
        if kept:
            self.status = self.status.model_copy(update={"last": kept[-1]})


def read_metrics(path: Path) -> list[MetricView]:
    """The whole lines of a metrics file. A line that is being written is left out."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                found.append(MetricView.model_validate_json(line))
            except ValidationError:  # cut short by a crash, and then resumed
                continue
    return found


def read_status(folder: Path) -> RunStatus | None:
    """The status as it was last written; None before the first, and where it cannot be understood."""
    try:
        return RunStatus.model_validate_json((folder / STATUS).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def read_limit(folder: Path) -> int | None:
    """The micro rows that a run before ran out of memory above; None where none has."""
    try:
        return int((folder / LIMIT).read_bytes())
    except FileNotFoundError:
        return None


def write_limit(folder: Path, micro_rows: int) -> None:
    """Keeps a smaller batch for the runs to come; any rank may."""
    with whole_file(folder / LIMIT) as file:
        file.write(f"{micro_rows}\n".encode())
