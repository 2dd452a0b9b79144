"""A job's progress on the terminal: a live table, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgefront.core.states import Goal, TargetState
from edgefront.core.wire.jobs import JobView, TargetView
from edgefront.show.output import duration, share, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.show.fitting import FittingTable

# Without a terminal: minimum seconds between two lines of a target.
_LINE_INTERVAL_S = 5.0


def show(jobs: Iterable[JobView], console: Console) -> JobView | None:
    """Shows the job's progress and returns its last view."""
    return _live(jobs, console) if console.is_terminal else _lines(jobs, console)


def _live(jobs: Iterable[JobView], console: Console) -> JobView | None:
    from rich.live import Live

    last: JobView | None = None
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        for last in jobs:
            live.update(progress_table(last))
    return last


def _lines(jobs: Iterable[JobView], console: Console) -> JobView | None:
    said: dict[str, tuple[float, str, str]] = {}
    last: JobView | None = None
    for last in jobs:
        for target in last.targets:
            line = progress_line(target, last.request.goal)
            before, words, note = said.get(target.id, (float("-inf"), "", ""))
            state_is_new = not words.startswith(f"{target.name}: {target.state}")
            is_new = line != words or target.note != note
            if is_new and (state_is_new or time.monotonic() - before >= _LINE_INTERVAL_S):
                said[target.id] = (time.monotonic(), line, target.note)
                news = f", {target.note}" if target.note not in ("", note) else ""
                console.print(line + news, markup=False, soft_wrap=True)
    return last


def progress_line(target: TargetView, goal: Goal = Goal.FRONTIER) -> str:
    """One target in one line of text, without its note. A hypervolume says nothing of a search for the best within
    limits.
    """
    parts = [
        f"{target.settled} of {target.planned or target.candidates} measured",
        f"frontier {target.frontier_size}",
        *([f"hypervolume {target.hypervolume:.4f}"] if goal == Goal.FRONTIER else []),
        f"measuring {share(target.measuring_share)}",
    ]
    parts += doubts(target)
    if target.seconds_left is not None and target.state != TargetState.FINISHED:
        parts.append(f"about {duration(target.seconds_left)} left")
    return f"{target.name}: {target.state}: " + ", ".join(parts)


def doubts(target: TargetView) -> list[str]:
    """What is uncertain of the target's results, in words: `1 unconfirmed`, `2 on the frontier marked`."""
    counts = {"unconfirmed": target.unconfirmed, "on the frontier marked": target.marked}
    return [f"{count} {words}" for words, count in counts.items() if count]


def progress_table(job: JobView) -> FittingTable:
    """All targets of a job, each with a bar."""
    from rich.progress_bar import ProgressBar

    whole_frontier = job.request.goal == Goal.FRONTIER
    numbers = ("measured", "frontier", *(["hypervolume"] if whole_frontier else []), "measuring", "left")
    shown = table(
        *("target", "state", "progress", *numbers, "note"),
        title=f"{job.name}  {job.id}  {job.state}",
        right=numbers,
        prose=("note",),
        less=("progress", "measuring", "hypervolume", "note", "frontier"),
    )
    for target in job.targets:
        whole = target.planned or max(target.candidates, 1)
        shown.add_row(
            target.name,
            target.state,
            ProgressBar(total=whole, completed=min(target.settled, whole), width=24),
            f"{target.settled}/{target.planned or target.candidates}",
            str(target.frontier_size),
            *([f"{target.hypervolume:.4f}"] if whole_frontier else []),
            share(target.measuring_share),
            "" if target.state == TargetState.FINISHED else duration(target.seconds_left),
            " ".join([*([", ".join(doubts(target)) + "."] if doubts(target) else []), target.note]).strip(),
        )
    return shown
