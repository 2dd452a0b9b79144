"""Shows a search job on the terminal: the estimate, the progress, and a table of the targets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from edgefront.client.show.output import LINE_INTERVAL_S, NONE, duration, share
from edgefront.client.show.table import Table
from edgefront.core.common.states import ENDED_JOBS, Goal, TargetState
from edgefront.core.common.units import MB, MIB
from edgefront.core.schemas.jobs import JobView
from edgefront.core.search.pareto.options import Estimate

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.schemas.predictions import Count, JobEstimate, TargetEstimate


ACTIVITIES: Mapping[TargetState, str] = {
    TargetState.BASELINES: "measuring the baseline",
    TargetState.SEARCHING: "searching",
    TargetState.REFINING: "measuring the best again",
}
"""Description of an active target's activity, by phase."""


def views(read: Callable[[], JobView]) -> Iterator[JobView]:
    """Reads the job every second until the job ends. Raises `Unavailable` if the server stays unavailable."""
    while True:
        job = read()
        yield job
        if job.state in ENDED_JOBS:
            return
        time.sleep(1.0)


def show(jobs: Iterable[JobView], console: Console) -> JobView | None:
    """Shows a job's progress until the job ends, as one live bar or, without a terminal, as a line every ten seconds.
    Returns the final state of the job.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    if not console.is_terminal:
        return _print_lines(jobs, console)
    last: JobView | None = None
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        for last in jobs:
            done, planned = measured(last)
            bar.update(task, description=progress_line(last), completed=min(done, planned), total=planned)
    return last


def _print_lines(jobs: Iterable[JobView], console: Console) -> JobView | None:
    line, printed, printed_at = "", "", -math.inf
    last: JobView | None = None
    for last in jobs:
        line = progress_line(last)
        if line != printed and time.monotonic() - printed_at >= LINE_INTERVAL_S:
            printed, printed_at = line, time.monotonic()
            console.print(line, markup=False, soft_wrap=True)
    if line != printed:
        console.print(line, markup=False, soft_wrap=True)
    return last


def measured(job: JobView) -> tuple[int, int]:
    """Returns a pair: the number of measured models and the number of planned models, over all targets."""
    done = sum(target.settled for target in job.targets)
    return done, max(1, sum(target.planned or target.candidates for target in job.targets))


def progress_line(job: JobView) -> str:
    """Describes activity and remaining time: `searching: 12 models measured of at most 60, about 1:10 min left`."""
    active = [target for target in job.targets if target.state in ACTIVITIES]
    done, planned = measured(job)
    if not active:
        return f"{job.state}: {done} models measured"
    states = {target.state: ACTIVITIES[target.state] for target in active}
    if job.request.space.published is not None and states.keys() & {TargetState.BASELINES, TargetState.SEARCHING}:
        states = {TargetState.SEARCHING: ACTIVITIES[TargetState.SEARCHING]}  # no baseline, and the best at the end
    activity = " and ".join(dict.fromkeys(states.values()))
    left = [target.seconds_left for target in active if target.seconds_left is not None]
    remaining = f", about {duration(max(left))} left" if left else ""
    notes = " ".join(dict.fromkeys(target.note for target in active if not target.devices_online and target.note))
    return f"{activity}: {done} models measured of at most {planned}{remaining}{f'. {notes}' if notes else ''}"


def progress_table(job: JobView) -> Table:
    """Returns a table with one row, which has a progress bar, for each target of the job."""
    from rich.progress_bar import ProgressBar

    whole_frontier = job.request.goal == Goal.FRONTIER
    numbers = ("measured", "frontier", *(["hypervolume"] if whole_frontier else []), "measuring", "left")
    table = Table(
        *("target", "state", "progress", *numbers, "note"),
        title=f"{job.name}  {job.id}  {job.state}",
        right=numbers,
        wrap=("note",),
        drop_first=("progress", "measuring", "hypervolume", "note", "frontier"),
    )
    for target in job.targets:
        total = target.planned or max(target.candidates, 1)
        table.add_row(
            target.name,
            target.state,
            ProgressBar(total=total, completed=min(target.settled, total), width=24),
            f"{target.settled}/{target.planned or target.candidates}",
            str(target.frontier_size),
            *([f"{target.hypervolume:.4f}"] if whole_frontier else []),
            share(target.measuring_share),
            "" if target.state == TargetState.FINISHED else duration(target.seconds_left),
            (f"{target.marked} on the frontier marked. {target.note}" if target.marked else target.note).strip(),
        )
    return table


_SOURCES = {
    "predicted": "predicted from what was measured there",
    "measured": "the pace of what was measured there",
    "flops": "what other kinds of passes took there",
    "unknown": "unknown: nothing was measured there",
}


def show_estimate(out: Console, err: Console, estimate: JobEstimate) -> None:
    """Prints the estimate's targets and totals to `out`, and its refusals and notes to `err`."""
    numbers = ("baseline launches", "candidates", "refinements", "launches", "s/launch", "time", "at most")
    drop_first = ("baseline launches", "refinements", "s/launch", "candidates", "at most")
    table = Table("target", *numbers, right=numbers, drop_first=drop_first)
    for target in estimate.targets:
        table.add_row(
            target.name,
            str(target.baseline_launches),
            _count(target.candidates),
            _count(target.refinements),
            _count(target.launches),
            NONE if target.seconds_per_launch is None else f"{target.seconds_per_launch:.2f}",
            _time(target.minutes),
            _time(target.minutes_at_most),
        )
    if estimate.targets:
        out.print(table)
        size, file = estimate.event_bytes.expected / MIB, (estimate.model_bytes or 0) / MIB
        out.print(
            f"in all: {_count(estimate.launches)} launches, {_time(estimate.minutes)}, {_count(estimate.candidates)} "
            f"candidates, a log of {size:.1f} MiB; a model's file has {file:.0f} MiB",
            markup=False,
            soft_wrap=True,
        )
    model = "The baseline" if estimate.request.space.model is None else "My model"
    for target in estimate.targets:
        details = " ".join(
            text
            for text in (f"time: {_SOURCES[target.seconds_from]}.", _stock_predictions(target, model), target.note)
            if text
        )
        err.print(f"{target.name}: {details}", style="dim", markup=False, soft_wrap=True)
    if estimate.note:
        err.print(estimate.note, markup=False, soft_wrap=True)
    for refusal in estimate.refusals:
        err.print(f"would be refused: {refusal.detail}", markup=False, soft_wrap=True)


def _stock_predictions(target: TargetEstimate, model: str) -> str:
    """Describes predicted latency and memory of the stock (default) models on a target, as a guide for limits."""
    predictions = [
        f"{Estimate.between(each.latency_ms, each.latency_low_ms, each.latency_high_ms)} ms and "
        f"{each.memory_bytes / MB:.3g} MB with {each.name}"
        for each in target.stock
    ]
    return f"{model} is predicted at {', at '.join(predictions)}." if predictions else ""


def _count(count: Count) -> str:
    """Formats a number, or a range of numbers: `57`, or `57 to 102`."""
    return str(count.expected) if count.expected == count.at_most else f"{count.expected} to {count.at_most}"


def _time(minutes: float | None) -> str:
    return NONE if minutes is None else duration(60 * minutes)
