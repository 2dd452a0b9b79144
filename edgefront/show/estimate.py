"""Prints what a job would take: launches, time and candidates of each target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.units import MB, MIB
from edgefront.show.output import NONE, duration, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.wire.estimates import Count, JobEstimate, TargetEstimate

_SOURCES = {
    "predicted": "predicted from what was measured there",
    "measured": "the pace of what was measured there",
    "flops": "what other kinds of passes took there",
    "unknown": "unknown: nothing was measured there",
}


def show_estimate(out: Console, err: Console, estimate: JobEstimate) -> None:
    """Targets and totals to `out`; refusals and notes to `err`."""
    numbers = ("baselines", "candidates", "refinements", "launches", "s/launch", "time", "at most")
    shown = table(
        "target", *numbers, right=numbers, less=("baselines", "refinements", "s/launch", "candidates", "at most")
    )
    for target in estimate.targets:
        shown.add_row(
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
        out.print(shown)
        size, file = estimate.event_bytes.expected / MIB, (estimate.model_bytes or 0) / MIB
        out.print(
            f"in all: {_count(estimate.launches)} launches, {_time(estimate.minutes)}, {_count(estimate.candidates)} "
            f"candidates, a log of {size:.1f} MiB; a model's file has {file:.0f} MiB",
            markup=False,
            soft_wrap=True,
        )
    model = "The stock model" if estimate.request.space.model is None else "My model"
    for target in estimate.targets:
        details = " ".join(
            text for text in (f"time: {_SOURCES[target.seconds_from]}.", _stock(target, model), target.note) if text
        )
        err.print(f"{target.name}: {details}", style="dim", markup=False, soft_wrap=True)
    if estimate.note:
        err.print(estimate.note, markup=False, soft_wrap=True)
    for refusal in estimate.refusals:
        err.print(f"would be refused: {refusal.detail}", markup=False, soft_wrap=True)


def _stock(target: TargetEstimate, model: str) -> str:
    """What the baselines are predicted to take, to choose limits by."""
    predictions = [
        f"{model.latency_ms:.3g} ms and {model.memory_bytes / MB:.3g} MB with {model.name}" for model in target.stock
    ]
    return f"{model} is predicted at {', at '.join(predictions)}." if predictions else ""


def _count(count: Count) -> str:
    """`57`, or `57 to 102`."""
    return str(count.expected) if count.expected == count.at_most else f"{count.expected} to {count.at_most}"


def _time(minutes: float | None) -> str:
    return NONE if minutes is None else duration(60 * minutes)
