"""What every benchmark shares: a table for people, and a JSON line for comparing later."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgefront.agents.device.probe import processor

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS") or Path(__file__).parent / "results")
"""Where results go; `gpu.py` sends them elsewhere."""


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows of equal keys as a Markdown table."""
    print(markdown(title, rows), end="")


def markdown(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as a Markdown table, under a line that says what they are."""
    lines = ["", title, ""]
    if rows:
        head = list(rows[0])
        lines += ["| " + " | ".join(head) + " |", "|" + "|".join(" --- " for _ in head) + "|"]
        lines += ["| " + " | ".join(_text(row[key]) for key in head) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def append(name: str, result: Mapping[str, Any], *, quick: bool = False) -> None:
    """Appends one JSON line to `RESULTS/<name>.jsonl`, with when and on what it was taken.

    quick: of a run whose figures say nothing: only where `BENCHMARK_RESULTS` says where.
    """
    if quick and "BENCHMARK_RESULTS" not in os.environ:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    where = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": platform.machine(),
        "processor": processor()[0],
        "python": platform.python_version(),
    }
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({**where, **result}) + "\n")


def _commit() -> str:
    """The short hash of the commit; empty outside a repository, or without git."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
        ).stdout.strip()
    except OSError:
        return ""


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
