"""Shows trainings on the terminal: a table of trainings, all values of one training, and live progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgefront.client.show.output import (
    NONE,
    duration,
    megabytes,
    millions,
    milliseconds,
    moment,
)
from edgefront.client.show.table import Table
from edgefront.core.common.states import ENDED_TRAININGS, TrainingKind, TrainingState
from edgefront.core.schemas.trainings import (
    MetricView,
    TrainingView,
)

if TYPE_CHECKING:
    from rich.console import Console

_POLL_S = 1.0
_LINE_INTERVAL_S = 5.0
"""Minimum seconds between two progress lines of a training without a terminal."""


def trainings_table(trainings: Iterable[TrainingView]) -> Table:
    """Returns a table with one row per training, with the training's progress, scores and measurements."""
    numbers = ("parameters", "step", "training loss", "perplexity", "latency ms", "memory MB", "left")
    return Table.of(
        trainings,
        {
            "id": lambda item: item.id,
            "name": lambda item: item.name,
            "state": lambda item: item.state,
            "parameters": lambda item: NONE if item.decoder_parameters is None else millions(item.decoder_parameters),
            "step": _steps,
            "training loss": lambda item: _number(item.last_metric.loss if item.last_metric else None),
            "perplexity": lambda item: " ".join(reversed(best_perplexity(item))) or NONE,
            "latency ms": lambda item: milliseconds(item.measured.latency_ms if item.measured else None),
            "memory MB": lambda item: megabytes(item.measured.memory_bytes if item.measured else None),
            "left": lambda item: "" if item.seconds_left is None else duration(item.seconds_left),
            "note": lambda item: item.reason or item.note or ("imported" if item.kind == TrainingKind.IMPORT else ""),
        },
        right=numbers,
        wrap=("note",),
        drop_first=("parameters", "memory MB", "latency ms", "training loss", "left", "note", "perplexity"),
    )


def facts(item: TrainingView) -> dict[str, str]:
    """Returns all known values of a training as a mapping: name → value."""
    last = item.last_metric or MetricView(step=0, tokens=0, seconds=0.0)
    values = {
        "training": f"{item.name}  {item.id}",
        "state": item.state + (f" ({item.note})" if item.note else ""),
        "reason": item.reason,
        "recipe": "imported"
        if item.recipe is None
        else f"{item.recipe.get('name')} on {item.dataset}, seed {item.seed}",
        "begins with": f"a submodel of {item.start}" if item.inherit else item.start,
        "licence": item.licence,
        "architecture": item.digest,
        "candidate": item.candidate_id,
        "parameters": None if item.decoder_parameters is None else f"{item.decoder_parameters:,} of the decoder",
        "step": _steps(item) if item.steps else None,
        "checkpoint": None if item.checkpoint is None else f"step {item.checkpoint}",
        "trained": f"{item.tokens:,} tokens in {duration(item.seconds)}" if item.tokens else None,
        "left": duration(item.seconds_left) if item.seconds_left is not None else None,
        "training loss": None if last.loss is None else _number(last.loss),
        "tokens/s": None if last.tokens_per_s is None else f"{last.tokens_per_s:,.0f}",
        "scores": "; ".join(f"{each.split} {each.metric} {_number(each.value)}" for each in item.evaluations),
        "measured": _measured(item),
        "worker": item.worker,
        "queue": item.queue if item.state == TrainingState.QUEUED else None,
        "created": moment(item.created_at),
        "finished": moment(item.finished_at) if item.finished_at else None,
    }
    return {name: value for name, value in values.items() if value}


def best_perplexity(item: TrainingView) -> tuple[str, ...]:
    """Returns the split and a training's perplexity on it, from the final evaluation, else from the latest validation;
    empty without a perplexity.
    """
    perplexities = {score.split: score.value for score in item.evaluations if score.metric == "perplexity"}
    latest = item.last_metric.valid_perplexity if item.last_metric else None
    by_split = {"test": perplexities.get("test"), "validation": perplexities.get("valid", latest)}
    return next(((split, _number(value)) for split, value in by_split.items() if value is not None), ())


def watch(read: Callable[[str], TrainingView], ids: Sequence[str], console: Console) -> list[TrainingView]:
    """Shows the progress of trainings, read by id, until all have ended. Returns their final states."""
    from rich.live import Live

    trainings: list[TrainingView] = []
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=False) as live:
            for trainings in _poll(read, ids):
                live.update(trainings_table(trainings))
        return trainings
    printed: dict[str, tuple[float, str, str]] = {}
    for trainings in _poll(read, ids):
        for item in trainings:
            line = progress_line(item)
            printed_at, state, text = printed.get(item.id, (float("-inf"), "", ""))
            if line != text and (item.state != state or time.monotonic() - printed_at >= _LINE_INTERVAL_S):
                printed[item.id] = (time.monotonic(), item.state, line)
                console.print(line, markup=False, soft_wrap=True)
    return trainings


def _poll(read: Callable[[str], TrainingView], ids: Sequence[str]) -> Iterator[list[TrainingView]]:
    """Yields the current state of the trainings every second, until all trainings have ended."""
    while True:
        trainings = [read(training_id) for training_id in ids]
        yield trainings
        if all(item.state in ENDED_TRAININGS for item in trainings):
            return
        time.sleep(_POLL_S)


def progress_line(item: TrainingView) -> str:
    """Describes the progress of a training in one line of text."""
    parts = []
    if item.steps:
        parts.append(f"step {_steps(item)}")
    if item.last_metric is not None and item.last_metric.loss is not None:
        parts.append(f"training loss {_number(item.last_metric.loss)}")
    perplexity = best_perplexity(item)
    if perplexity:
        parts.append("{} perplexity {}".format(*perplexity))
    if item.seconds_left is not None and item.state not in ENDED_TRAININGS:
        parts.append(f"about {duration(item.seconds_left)} left")
    if item.state == TrainingState.DONE and item.measured is not None and item.measured.latency_ms is not None:
        parts.append(f"measured {milliseconds(item.measured.latency_ms)} ms")
    if item.reason or item.note:
        parts.append(item.reason or item.note)
    return f"{item.name}: {item.state}" + (": " + ", ".join(parts) if parts else "")


def _steps(item: TrainingView) -> str:
    return f"{item.step}/{item.steps}" if item.steps else NONE


def _measured(item: TrainingView) -> str | None:
    if item.measured is None or item.measured.latency_ms is None:
        return None
    latency, memory = milliseconds(item.measured.latency_ms), megabytes(item.measured.memory_bytes)
    text = f"{latency} ms, peak {memory} MB on {item.measured.target}"
    sizes = [
        (architecture or {}).get("embedding", {}).get("vocab_size")
        for architecture in (item.architecture, item.trained)
    ]
    if None not in sizes and sizes[0] != sizes[1]:
        text += f", with a vocabulary of {sizes[0]:,} tokens (trained: {sizes[1]:,})"
    return text


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"
