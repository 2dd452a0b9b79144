"""The tutorial's commands, as the page has them, in order: a new user's path from a service to a second device."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import environment, started, until

from edgefront import Client
from edgefront.client.local import LocalServer
from edgefront.core.common.states import TrainingState

PAGE = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_ADDRESS = "http://127.0.0.1:8090"
READY = {"up": "this machine measures as device 'local'", "agent": "enrolled as second"}
"""Commands that run in a terminal of their own → what the page says to wait for."""


def blocks() -> list[str]:
    """Shell blocks of the numbered steps. Those before them install."""
    return BLOCK.findall(PAGE[PAGE.index("\n## 1. ") :])


@pytest.mark.timeout(1200)
def test_the_first_hour_works_as_it_is_written(tmp_path: Path) -> None:
    mark, folder, home = str(tmp_path), tmp_path / "first-hour", tmp_path / "home"
    commands = tmp_path / "bin"
    folder.mkdir()
    commands.mkdir()
    command = commands / "edgefront"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m edgefront "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    variables = {"EDGEFRONT_HOME": str(home)}
    shell = environment(mark) | variables
    shell["PATH"] = f"{commands}:{shell['PATH']}"
    said = []
    with ExitStack() as terminals:
        for block in blocks():
            words = shlex.split(block, comments=True)
            if words[0] == "edgefront" and words[1] in READY:
                if words[1] != "up":  # the service takes another port where this one is in use, as the page says
                    address = LocalServer.find(home).url
                    words = [address if word == DEFAULT_ADDRESS else word for word in words]
                    assert address in words
                ready, log = READY[words[1]], tmp_path / f"{words[1]}.log"
                assert f"`{ready}`" in PAGE
                terminals.enter_context(started(*words[1:], mark=mark, log=log, variables=variables, cwd=folder))
                until(lambda ready=ready, log=log: ready in log.read_text(encoding="utf-8"))
            else:
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", block],
                    env=shell,
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=600,
                )
                assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
                said.append(done.stdout)
        with Client(home=home) as client:
            (training,) = client.trainings.list()
            assert training.state == TrainingState.DONE
            assert {device.name for device in client.devices.list()} == {"local", "second"}
            searches = [client.jobs.get(job.id).targets[0] for job in client.jobs.list()]
            assert sorted(target.device or "" for target in searches) == ["local", "second"]
            assert all(target.settled for target in searches)
    written = json.loads((folder / "my-model" / "architecture.json").read_text(encoding="utf-8"))
    assert written == training.trained
    assert any("\nimport " in text for text in said)
