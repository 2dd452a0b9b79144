"""Runs the `edgefront` command as a user's shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def edgefront(
    *arguments: str, home: Path | None = None, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Exit code, standard output and standard error of one run."""
    return subprocess.run(
        [sys.executable, "-m", "edgefront", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(home) | (env or {}),
        cwd=cwd,
    )


def environment(home: Path | None) -> dict[str, str]:
    """This process's, without what would point the command to another service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")}
    return kept | {"COLUMNS": "200", "NO_COLOR": "1"} | ({"EDGEFRONT_HOME": str(home)} if home else {})
