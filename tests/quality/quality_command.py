"""The command as a user calls it."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from edgefront.cli.main import app


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def result_of(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))
