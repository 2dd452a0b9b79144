"""Reads status, metrics and result of a run from the run's folder, incrementally."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefront.core.common.files import disk_is_full
from edgefront.core.common.states import LIVE_TRAININGS, RunOutcome, TrainingState
from edgefront.core.services.trainings.claims import FinishedRun, ReportedScore, RunReport
from edgefront.core.services.trainings.folder import checkpoints_in, tail
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
    parse_metrics,
    read_status,
)

RESULT_FILE = "result.json"
_SPLITS = ("valid", "test")
MAX_RESULT_BYTES = 1 << 20
_OUTCOME_OF_CODE = {
    EXIT_DONE: RunOutcome.DONE,
    EXIT_STOPPED: RunOutcome.STOPPED,
    -signal.SIGTERM: RunOutcome.STOPPED,
    -signal.SIGINT: RunOutcome.STOPPED,
    EXIT_SMALLER: RunOutcome.SMALLER,
    EXIT_INVALID: RunOutcome.INVALID,
}
_OUTCOME_OF_STATE = {outcome.value: outcome for outcome in (RunOutcome.STOPPED, RunOutcome.SMALLER, RunOutcome.INVALID)}


class RunReader:
    """Reads status, metrics and checkpoints of a run's folder.

    A status from before the run started is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = _identity(folder / STATUS)
        self._read: list[bytes] | None = None  # metric lines that the database has stored
        self._now: list[bytes] = []  # metric lines of the latest report

    def report(self) -> RunReport:
        """Reads the status, and metrics since the latest `accepted` report (all metrics if lines were removed)."""
        status = self.status()
        metrics, whole = self._metrics()
        checkpoint = max(checkpoints_in(self._folder), default=None)
        if status is None:
            return RunReport(metrics=metrics, whole=whole, checkpoint=checkpoint)
        return RunReport(
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
        """Marks the latest report as stored in the database."""
        self._read = self._now

    def status(self) -> RunStatus | None:
        """Returns the status that this run has written; None if this run has not written a status."""
        return None if _identity(self._folder / STATUS) == self._before else read_status(self._folder)

    def finished(self, code: int, *, asked: bool) -> FinishedRun:
        """Returns the outcome of a run with exit code `code`; `asked` tells whether the run was asked to stop.

        Under torchrun every failure has exit code 1, so failures are distinguished by the status.
        """
        status = self.status()
        outcome = _OUTCOME_OF_CODE.get(code)
        if outcome is None and code > 0 and status is not None:
            outcome = _OUTCOME_OF_STATE.get(status.state)
        if outcome == RunOutcome.DONE:
            result = self._result()
            return FinishedRun(RunOutcome.DONE, result=result, scores=scores_of(result))
        reason = self._reason(code, status)
        if outcome == RunOutcome.INVALID:
            return FinishedRun(RunOutcome.INVALID, reason)
        if asked:
            unsaved = "the run was stopped before it had written a checkpoint of its latest steps"
            return FinishedRun(RunOutcome.STOPPED, "" if outcome is not None else unsaved)
        if outcome is not None:
            return FinishedRun(outcome, reason)
        return FinishedRun(RunOutcome.FAILED, reason)

    def _reason(self, code: int, status: RunStatus | None) -> str:
        if status is not None and status.error and code > 0:
            return status.error
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            more = "; perhaps the system ran out of memory" if -code == signal.SIGKILL else ""
            return f"the process was killed by {name}{more}"
        if disk_is_full(self._folder):
            return f"no space left in {self._folder}"
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
        """Returns new complete lines of metrics and False; all lines and True if the file was replaced or truncated."""
        try:
            text = (self._folder / METRICS).read_bytes()
        except FileNotFoundError:
            text = b""
        self._now = text[: text.rfind(b"\n") + 1].splitlines()
        whole = self._read is None or self._now[: len(self._read)] != self._read
        metrics = []
        for metric in parse_metrics(self._now[0 if whole else len(self._read or ()) :]):
            if metric.step >= 0:
                counts = {"step": metric.step, "tokens": metric.tokens, "seconds": metric.seconds}
                metrics.append(metric.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | counts)
        return tuple(metrics), whole


def scores_of(result: Mapping[str, Any] | None) -> list[ReportedScore]:
    """Returns the scores in a result: `{"valid": {"loss": 3.1, "perplexity": 22.2, "bpc": 1.1, "tokens": 640}}`."""
    collected = []
    for split in _SPLITS:
        scores = (result or {}).get(split)
        if not isinstance(scores, dict):
            continue
        tokens = scores.get("tokens")
        for metric, value in scores.items():
            if metric != "tokens" and type(value) in (int, float) and math.isfinite(value):
                collected.append(ReportedScore(split, metric[:64], float(value), {"tokens": tokens}))
    return collected


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
