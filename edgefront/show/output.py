"""Output for people and scripts: consoles, JSON, and the format of numbers.

Standard output has only the result; notes, progress and errors go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edgefront.core.units import MIB

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from edgefront.core.wire.jobs import Versus

NONE = "–"


def console(*, stderr: bool = False) -> Console:
    """A console that does not squeeze tables into 80 columns when its output goes to a file."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "160"))
    return Console(stderr=stderr, width=width, highlight=False)


_WHOLE = ("id", "job", "training", "model")


def table(*columns: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the house style; the columns named in `right` are right-aligned numbers."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    numbers = set(right)
    for column in columns:
        whole = column in numbers or column in _WHOLE
        # Long cells are wrapped, not truncated, so that ids can be copied.
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=whole, overflow="fold")
    return made


def plain(value: Any) -> Any:
    """`value` in JSON types."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: Any, *, line: bool = False) -> None:
    """One JSON document on standard output; `line` keeps it on one line, for streams."""
    text = json.dumps(plain(value), indent=None if line else 2, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def millions(count: int | float) -> str:
    """Parameters in millions: 12.58 M."""
    return f"{count / 1e6:.2f} M"


def mebibytes(count: int | float | None) -> str:
    return NONE if count is None else f"{count / MIB:.1f}"


def milliseconds(value: float | None, half_width: float | None = None) -> str:
    """A latency with its 95 % interval: 21.4 ±0.3."""
    if value is None:
        return NONE
    digits = 1 if value >= 10 else 2
    interval = "" if half_width is None else f" ±{half_width:.{digits}f}"
    return f"{value:.{digits}f}{interval}"


def times(ratio: float | None) -> str:
    """A ratio: 1.38×."""
    return NONE if ratio is None else f"{ratio:.2f}×"


def speedup(versus: Versus) -> str:
    """How many times as fast as the baseline, with its interval: 1.38× (1.31–1.45)."""
    if versus.speedup_low is None or versus.speedup_high is None:
        return times(versus.speedup)
    return f"{times(versus.speedup)} ({versus.speedup_low:.2f}–{versus.speedup_high:.2f})"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def duration(seconds: float | None) -> str:
    """A length of time as people say it: 42 s, 3:07 min, 2:05 h."""
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def moment(value: datetime | None) -> str:
    """A point in time, in local time, to the second."""
    return NONE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
