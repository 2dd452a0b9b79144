"""What the documents tell to type is what works."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from simulated_agent import RemoteAgent

import tools
from edgefront.cli import exits
from edgefront.cli.main import app
from edgefront.embedded.service import EmbeddedService

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[object]:
    """Every line of a shell block, continued lines joined, that calls the `edgefront` command."""
    for document in DOCUMENTS:
        for block in BLOCK.findall(document.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"(\S*/)?edgefront\s", line):
                    words = shlex.split(line.partition(" > ")[0], comments=True)
                    yield pytest.param(words[1:], id=f"{document.name}: {' '.join(words[1:])[:60]}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_and_their_options_exist(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words  # a group of commands alone is not a command
        command = command.commands[name]
    with command.make_context(command.name, list(words)) as context:  # parses and checks, runs nothing
        assert not context.args


def test_exit_codes_are_those_of_the_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert documented == {code for code, _ in exits.TABLE}


def test_rest_walk_through_runs_as_it_is(tmp_path: Path) -> None:
    """Every `sh` block of docs/rest.md in one shell that stops at the first failure."""
    tools.CURL.path()
    script = "set -euo pipefail\n" + "\n".join(BLOCK.findall((ROOT / "docs" / "rest.md").read_text()))
    with EmbeddedService(tmp_path / "home", port=0, agent=False, isolated=True) as service:
        agent = RemoteAgent(service.url, service.key, name="local")
        over = threading.Event()

        def measure() -> None:
            while not over.is_set() and not _was_resumed(service):
                over.wait(0.1)  # else the job might have finished before the document pauses it
            while not over.is_set():
                agent.measure(8, wait_s=0.3)

        thread = threading.Thread(target=measure)
        thread.start()
        try:
            folder = tmp_path / "work"
            folder.mkdir()
            environment = {**os.environ, "EDGEFRONT_URL": service.url, "EDGEFRONT_KEY": service.key}
            done = subprocess.run(
                ["bash", "-c", script],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            over.set()
            thread.join()
            agent.close()
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "running" in done.stdout
    made = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert made["first-part"] == 1024
    assert made["candidates.csv"] > 0
    assert made["candidates.parquet"] > 0
    assert any(name.endswith(".onnx") and "untrained" in name for name in made)


def _was_resumed(service: EmbeddedService) -> bool:
    query = "SELECT data FROM event WHERE kind = 'job_state' ORDER BY number"
    with closing(sqlite3.connect(service.home / "edgefront.db", timeout=60)) as rows:
        states = [json.loads(data)["state"] for (data,) in rows.execute(query)]
    return states[-2:] == ["paused", "running"]
