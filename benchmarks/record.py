"""What every benchmark shares: a table for people, and a JSON line for comparing later."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgefront.agents.device.processor import processor

RESULTS = Path(__file__).parent / "results"


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


def append(name: str, result: Mapping[str, Any]) -> None:
    """Appends one JSON line to `benchmarks/results/<name>.jsonl`, with when and on what it was taken."""
    RESULTS.mkdir(exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=RESULTS
    ).stdout.strip()
    where = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "machine": platform.machine(),
        "processor": processor()[0],
        "python": platform.python_version(),
    }
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({**where, **result}) + "\n")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
