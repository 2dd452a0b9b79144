"""Processes of a test: started, watched by what they leave behind, ended by their id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefront.client.local import LocalServer
from edgefront.core.common.errors import EdgefrontError

MARK = "EDGEFRONT_TEST_MARK"
"""Environment variable by which a test finds all that it started: children inherit it, sessions of their own too."""

NO_PROXY_THERE = "http://127.0.0.1:9"
"""Nothing listens there: what is on this machine is reached without a proxy."""


def environment(mark: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")}
    return kept | {"COLUMNS": "200", "NO_COLOR": "1", MARK: mark, "HTTP_PROXY": NO_PROXY_THERE, "NO_PROXY": ""}


def marked(mark: str) -> dict[int, str]:
    """Process id → command line of every process that carries the mark (zombies have none any more)."""
    variable = f"{MARK}={mark}".encode()
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return commands


@contextmanager
def started(
    *arguments: str, mark: str, log: Path, variables: Mapping[str, str] | None = None, **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """An `edgefront` command with its output in a file; it and all that it started are killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgefront", *arguments],
            env=environment(mark) | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **options,  # type: ignore[call-overload]
        )
    try:
        yield process
    finally:
        for pid in [process.pid, *marked(mark)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def until(what: Callable[[], object], seconds: float = 120.0, pause_s: float = 0.1) -> None:
    """Waits until `what()` is true; AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(pause_s)


def server_of(home: Path) -> LocalServer | None:
    """The service that runs in this folder; None where there is none."""
    with suppress(EdgefrontError):
        return LocalServer.find(home)
    return None
