"""Shared by the benchmarks: a table for people, a JSON line for later comparison, and modules of the tests."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

from edgefront.agents.device.probe import processor

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS") or Path(__file__).parent / "results")
"""Folder of the results; `gpu.py` sets another one."""
TESTS = Path(__file__).resolve().parents[1] / "tests"


def from_tests(module: str) -> Any:
    """Imports a module of the folder `tests`: servers, simulated devices, published tables."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module(module)


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows with equal keys as a Markdown table."""
    print(markdown(title, rows), end="")


def markdown(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats rows with equal keys as a Markdown table under a title."""
    lines = ["", title, ""]
    if rows:
        head = list(rows[0])
        lines += ["| " + " | ".join(head) + " |", "|" + "|".join(" --- " for _ in head) + "|"]
        lines += ["| " + " | ".join(_text(row[key]) for key in head) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def append(name: str, result: Mapping[str, Any], *, quick: bool = False) -> None:
    """Appends one JSON line to `RESULTS/<name>.jsonl`, with the time, commit and machine.

    quick: the figures are not representative: append only to a folder of `BENCHMARK_RESULTS`.
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
    """Returns the short hash of the commit; empty outside a repository, or without git."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
        ).stdout.strip()
    except OSError:
        return ""


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
