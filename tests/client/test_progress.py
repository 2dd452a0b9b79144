"""A job's progress where there is no terminal: lines that say what is new."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from edgefront.api.docs.examples import example
from edgefront.core.wire.jobs import JobView
from edgefront.show import progress

JOB = JobView.model_validate(example("job"))


def job(state: str, settled: int, note: str) -> JobView:
    target = JOB.targets[0].model_copy(update={"state": state, "settled": settled, "note": note})
    return JOB.model_copy(update={"targets": (target,)})


def test_a_line_says_how_many_are_unconfirmed_or_marked() -> None:
    (target,) = job("searching", 5, "").targets
    assert "unconfirmed" not in progress.progress_line(target)
    doubtful = target.model_copy(update={"unconfirmed": 1, "marked": 2})
    assert ", 1 unconfirmed, 2 on the frontier marked" in progress.progress_line(doubtful)


def test_a_note_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    shown = Console(file=written, width=80)
    views = [
        job("baselines", 1, ""),
        job("searching", 5, "The search went on."),
        job("searching", 6, "The search went on."),
        job("finished", 8, "The search went on."),
        job("finished", 8, "The search went on. It ended."),
        job("finished", 8, "The search went on. It ended."),
    ]
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", 0.0)
    assert progress.show(views, shown) == views[-1]
    lines = written.getvalue().splitlines()
    assert [line.split(" of ")[0].rsplit(": ", 1)[1] for line in lines] == ["1", "5", "6", "8", "8"]
    assert [line.rpartition(", ")[2] for line in lines if "went on" in line] == [
        "The search went on.",
        "The search went on. It ended.",
    ]
