"""The command as a user calls it."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from edgefront.cli.main import app


def run(command: str, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*command.split(), *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def result_of(command: str, *arguments: str) -> Any:
    return json.loads(run(command, *arguments, "--json"))
