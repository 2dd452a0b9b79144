"""A job's progress where there is no terminal: lines that say what is new."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from edgefront.api.docs.examples import example
from edgefront.cli.session import Session
from edgefront.client.show import progress
from edgefront.core.schemas.jobs import JobView

JOB = JobView.model_validate(example("job"))


def job(state: str, settled: int, **more: Any) -> JobView:
    update = {"note": "", "devices_online": 1, "planned": 8, "seconds_left": None, "settled": settled, "state": state}
    target = JOB.targets[0].model_copy(update={**update, **more})
    return JOB.model_copy(update={"targets": (target,)})


def test_a_line_says_what_is_done_and_how_long_it_takes() -> None:
    assert progress.progress_line(job("baselines", 1)) == "measuring the baseline: 1 models measured of at most 8"
    searching = progress.progress_line(job("searching", 5, seconds_left=70.0))
    assert searching == "searching: 5 models measured of at most 8, about 1:10 min left"
    assert progress.progress_line(job("refining", 8)).startswith(
        "measuring the best again: 8 models measured of at most 8"
    )


def test_what_nobody_measures_is_said() -> None:
    alone = progress.progress_line(job("searching", 5, devices_online=0, note="No agent online: waiting for one."))
    assert alone.endswith("measured of at most 8. No agent online: waiting for one.")
    assert "went on" not in progress.progress_line(job("searching", 5, note="The search went on."))


def test_of_several_targets_one_line_says_all() -> None:
    both = job("searching", 5, seconds_left=30.0)
    targets = (*both.targets, both.targets[0].model_copy(update={"state": "baselines", "seconds_left": 90.0}))
    line = progress.progress_line(both.model_copy(update={"targets": targets}))
    assert line == "searching and measuring the baseline: 10 models measured of at most 16, about 1:30 min left"


def test_without_a_terminal_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    written, clock = StringIO(), iter([0.0, 0.0, 4.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    views = [job("searching", 1), job("searching", 2), job("searching", 3), job("finished", 4)]
    assert progress.show(views, Console(file=written, width=80)) == views[-1]
    lines = written.getvalue().splitlines()
    assert [line.split(" ")[-1] for line in lines] == ["8", "8", "measured"]
    assert [line.split(": ")[1][0] for line in lines] == ["1", "3", "4"]


def test_on_a_terminal_one_bar() -> None:
    written = StringIO()
    shown = Console(file=written, width=100, force_terminal=True)
    assert progress.show([job("searching", 5)], shown) is not None
    assert "searching: 5 models measured of at most 8" in written.getvalue()


def test_long_work_says_a_line_every_ten_seconds_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written, clock, session = StringIO(), iter([0.0, 4.0, 11.0, 11.0, 12.0]), Session()
    session.err = Console(file=written, width=80)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with session.progress() as update:
        for done in (1.0, 2.0, 3.0):
            update("study", done, 4.0)
    assert [line.split(",")[0] for line in written.getvalue().splitlines()] == ["study: 50 %"]
