"""Reads the files that a run writes into its folder, incrementally; and how it ended."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgefront.core.services.trainings.claims import Outcome, Report, Score
from edgefront.core.services.trainings.files.folder import checkpoints_in, tail
from edgefront.core.states import LIVE_TRAININGS, TrainingEnding, TrainingState
from edgefront.core.training.run_folder import (
    EXIT_DONE,
    EXIT_INVALID,
    EXIT_SMALLER,
    EXIT_STOPPED,
    LOG,
    METRICS,
    RESULT,
    STATUS,
    RunStatus,
)
from edgefront.core.wire.trainings import MetricView

RESULT_FILE = "result.json"
_SPLITS = ("valid", "test")
MAX_RESULT_BYTES = 1 << 20
_TAIL = 64
"""Last bytes that were read, by which a file is recognised as the one that has grown since."""
_ENDING_OF_CODE = {
    EXIT_DONE: TrainingEnding.DONE,
    EXIT_STOPPED: TrainingEnding.STOPPED,
    -signal.SIGTERM: TrainingEnding.STOPPED,
    -signal.SIGINT: TrainingEnding.STOPPED,
    EXIT_SMALLER: TrainingEnding.SMALLER,
    EXIT_INVALID: TrainingEnding.INVALID,
}
_ENDING_OF_STATE = {
    ending.value: ending for ending in (TrainingEnding.STOPPED, TrainingEnding.SMALLER, TrainingEnding.INVALID)
}


@dataclass
class _Position:
    """The position up to which a file has been read: its identity, the number of bytes, and the last bytes."""

    identity: tuple[int, int] = (0, 0)
    offset: int = 0
    last: bytes = b""


class RunReader:
    """Reads status, metrics and checkpoints of a run's folder.

    A status from before the run started is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = _identity(folder / STATUS)
        self._read = _Position()  # the position that the database has
        self._now = _Position()  # the position of the last report

    def report(self) -> Report:
        """The news since the last report that was `accepted`; all metrics if lines were removed."""
        status = self.status()
        metrics, whole = self._metrics()
        checkpoint = max(checkpoints_in(self._folder), default=None)
        if status is None:
            return Report(metrics=metrics, whole=whole, checkpoint=checkpoint)
        return Report(
            state=TrainingState(status.state) if status.state in LIVE_TRAININGS else TrainingState.TRAINING,
            step=status.step,
            steps=status.steps,
            seconds_left=status.seconds_left,
            note=status.note,
            checkpoint=checkpoint,
            metrics=metrics,
            whole=whole,
        )

    def accepted(self) -> None:
        """Marks the last report as stored in the database."""
        self._read = self._now

    def status(self) -> RunStatus | None:
        """The status that this run has written; None before that."""
        path = self._folder / STATUS
        if _identity(path) == self._before:
            return None
        try:
            return RunStatus.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None

    def outcome(self, code: int, *, asked: bool) -> Outcome:
        """How a run ended, from its exit code; `asked` if it was asked to stop.

        Under torchrun every failure has code 1, and the status distinguishes them.
        """
        status = self.status()
        ending = _ENDING_OF_CODE.get(code)
        if ending is None and code > 0 and status is not None:
            ending = _ENDING_OF_STATE.get(status.state)
        if ending == TrainingEnding.DONE:
            result = self._result()
            return Outcome(TrainingEnding.DONE, result=result, scores=scores_of(result))
        reason = self._reason(code, status)
        if ending == TrainingEnding.INVALID:
            return Outcome(TrainingEnding.INVALID, reason)
        if asked:
            unsaved = "it was stopped before it had written a checkpoint of its last steps"
            return Outcome(TrainingEnding.STOPPED, "" if ending is not None else unsaved)
        if ending is not None:
            note = "" if status is None or ending != TrainingEnding.SMALLER else (status.error or "")
            return Outcome(ending, note or reason)
        return Outcome(TrainingEnding.FAILED, reason)

    def _reason(self, code: int, status: RunStatus | None) -> str:
        if status is not None and status.error and code > 0:
            return status.error
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            more = "; perhaps the system ran out of memory" if -code == signal.SIGKILL else ""
            return f"the process was killed by {name}{more}"
        if code == EXIT_STOPPED:
            return "the process was stopped by a signal from outside"
        lines = [line.strip() for line in tail(self._folder / LOG, 20).splitlines() if line.strip()]
        return f"the process ended with exit code {code}" + (f": {lines[-1][:500]}" if lines else "")

    def _result(self) -> dict[str, Any] | None:
        path = self._folder / RESULT / RESULT_FILE
        try:
            if path.stat().st_size > MAX_RESULT_BYTES:
                return None
            value = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def _metrics(self) -> tuple[tuple[dict[str, Any], ...], bool]:
        """New complete lines; or all lines, and True, if the file was replaced or truncated."""
        place = self._read
        try:
            with (self._folder / METRICS).open("rb") as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                whole = identity != place.identity or status.st_size < place.offset
                if not whole:
                    file.seek(place.offset - len(place.last))
                    whole = file.read(len(place.last)) != place.last
                offset = 0 if whole else place.offset
                file.seek(offset)
                text = file.read()
        except FileNotFoundError:
            self._now = _Position()
            return (), place == _Position() or place.offset > 0
        complete = text[: text.rfind(b"\n") + 1]
        last = complete[-_TAIL:] if complete else (b"" if whole else place.last)
        self._now = _Position(identity, offset + len(complete), last)
        return tuple(_parsed(complete)), whole


def scores_of(result: Mapping[str, Any] | None) -> list[Score]:
    """The scores in a result: `{"valid": {"loss": 3.1, "perplexity": 22.2, "bpc": 1.1, "tokens": 640}}`."""
    collected = []
    for split in _SPLITS:
        scores = (result or {}).get(split)
        if not isinstance(scores, dict):
            continue
        tokens = scores.get("tokens")
        for metric, value in scores.items():
            if metric != "tokens" and type(value) in (int, float) and math.isfinite(value):
                collected.append(Score(split, metric[:64], float(value), {"tokens": tokens}))
    return collected


def _parsed(text: bytes) -> list[dict[str, Any]]:
    parsed = []
    for line in text.splitlines():
        try:
            metric = MetricView.model_validate_json(line)
        except ValidationError:  # truncated by a crash, and then resumed
            continue
        if metric.step >= 0:
            parsed.append(metric.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | _counted(metric))
    return parsed


def _counted(metric: MetricView) -> dict[str, Any]:
    return {"step": metric.step, "tokens": metric.tokens, "seconds": metric.seconds}


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
