"""Output for people and scripts: creates consoles, prints JSON, and formats numbers.

Only results go to standard output; notes, progress and errors go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO, get_args

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from edgefront.core.common.units import MB
from edgefront.core.measurement.statistics import Standing
from edgefront.core.search.pareto.options import Estimate, LimitName

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.schemas.candidates import CandidateView, Versus

NONE = "–"
LINE_INTERVAL_S = 10.0
"""Minimum seconds between two progress lines without a terminal."""
UNBOUNDED = 100_000
"""Number of columns of an output without a width: a file or a pipe."""


def console(*, stderr: bool = False, wide: bool = False) -> Console:
    """Returns a console as wide as the terminal or `COLUMNS`; of unlimited width with `wide`, or without both."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and 0 < int(columns) < UNBOUNDED else None
    if wide or (width is None and not stream.isatty()):
        width = UNBOUNDED
    return Console(stderr=stderr, width=width, highlight=False)


def print_json(value: Any, *, line: bool = False) -> None:
    """Prints one JSON document on standard output; `line` keeps the document on one line, for streams."""
    sys.stdout.write(json_text(value, sys.stdout, line=line))
    sys.stdout.flush()


def print_event(event: BaseModel) -> None:
    """Prints one event on one line of standard output, with exactly the fields that the service sent."""
    print_json(event.model_dump(mode="json", exclude_unset=True), line=True)


def json_text(value: Any, stream: TextIO, *, line: bool = False) -> str:
    """Returns the value as a JSON document, in pure ASCII if the stream's encoding is not UTF-8."""
    escaped = not (stream.encoding or "").lower().startswith("utf")
    return json.dumps(to_jsonable_python(value, fallback=str), indent=None if line else 2, ensure_ascii=escaped) + "\n"


def millions(count: int | float) -> str:
    """Formats a number of parameters in millions: 12.58 M."""
    return f"{count / 1e6:.2f} M"


def megabytes(count: int | float | None) -> str:
    return NONE if count is None else f"{count / MB:.1f}"


def gigabytes(count: int) -> str:
    """Formats bytes in gigabytes (10^9 bytes): 25.3 GB."""
    return f"{count / (1000 * MB):.1f} GB"


def milliseconds(value: float | None, half_width: float | None = None) -> str:
    """Formats a latency with the half width of its 95 % interval: 21.4 ±0.3, or 26 (9–71) if it is wide."""
    if value is None:
        return NONE
    if not half_width:
        return f"{value:.{1 if value >= 10 else 2}f}"
    return str(Estimate.plus_minus(value, half_width)).replace("± ", "±").replace(" to ", "–")


def standing_in_words(standings: Mapping[LimitName, Standing] | None) -> str:
    """Returns the least certain of a model's standings to its limits; empty without limits."""
    return max((standings or {}).values(), key=get_args(Standing).index, default="")


MARK = "!"
"""The mark after a latency that is doubtful (`MARKED`)."""
MARKED = f"{MARK} measured under conditions out of the ordinary, or after the device's anchor moved"


def measured_latency(candidate: CandidateView) -> str:
    """Formats a candidate's latency with interval, and with `MARK` if the figure is doubtful: 21.4 ±0.3 !"""
    text = milliseconds(candidate.latency_ms, candidate.latency_half_width_ms)
    return f"{text} {MARK}" if candidate.marked else text


def measured_times(candidate: CandidateView) -> tuple[str, str]:
    """Formats the times to the first and of each further token of a generation, with their intervals."""
    return (
        milliseconds(candidate.first_token_ms, candidate.first_token_half_width_ms),
        milliseconds(candidate.token_ms, candidate.token_half_width_ms),
    )


def times(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """Formats a ratio, with the interval from `low` to `high` if known: 1.38× (1.31–1.45)."""
    if ratio is None:
        return NONE
    return f"{ratio:.2f}×" + ("" if low is None or high is None else f" ({low:.2f}–{high:.2f})")


def speedup(versus: Versus) -> str:
    """Formats the speed-up of a model over the reference model."""
    return times(versus.speedup, versus.speedup_low, versus.speedup_high)


def change(ratio: float) -> str:
    """Formats a ratio as a change: +12%, -15%, 0%."""
    percent = round(100 * (ratio - 1))
    return f"{percent:+d}%" if percent else "0%"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def duration(seconds: float | None) -> str:
    """Formats a duration: 42 s, 3:07 min, 2:05 h."""
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def moment(value: datetime | None) -> str:
    """Formats a time stamp in local time, to the second."""
    return NONE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
