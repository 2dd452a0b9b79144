"""The processes of `chaos.py`: a team's server and its devices, each killed by its id and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[1]


class Server(Protocol):
    """Postgres or Redis (`tests/servers.py`)."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


class Program:
    """A Python program with a log, in a session of its own, so that its children can be ended with it."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._command = [sys.executable, *command]
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL for the program itself; what it started has to notice."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ended(self) -> int | None:
        """Its exit code if it has ended."""
        return None if self._process is None else self._process.poll()

    def stop(self, seconds: float = 60.0) -> bool:
        """SIGTERM; whether it ended in time. What is left of its session is killed."""
        if self._process is None:
            return True
        with suppress(ProcessLookupError):
            self._process.terminate()
        in_time = True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            in_time = False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return in_time


class Stack:
    """Everything that runs. What was killed starts again after its time; what ended by itself is counted and started
    again.
    """

    def __init__(self, servers: Mapping[str, Server], programs: Sequence[Program]) -> None:
        self.servers = dict(servers)
        self.programs = {program.name: program for program in programs}
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Programs that ended without being killed, with their exit code."""
        self._down: dict[str, float] = {}

    def start(self) -> None:
        for program in (*self.servers.values(), *self.programs.values()):
            program.start()

    def kill(self, name: str, down_s: float) -> None:
        """Kills it, unless it is down; it starts again after `down_s`."""
        if name in self._down:
            return
        (self.servers.get(name) or self.programs[name]).kill()
        self.kills[name.split("-")[0]] += 1
        self._down[name] = time.monotonic() + down_s

    def tend(self) -> None:
        """Starts what is to start. Call it often."""
        now = time.monotonic()
        for name, at in list(self._down.items()):
            if at <= now:
                del self._down[name]
                (self.servers.get(name) or self.programs[name]).start()
        for name, program in self.programs.items():
            if name not in self._down and (code := program.ended()) is not None:
                self.ended[f"{name} ({code})"] += 1
                self._down[name] = now + 1.0

    def tend_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Tends until it is done, or for so long; whether it is."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            self.tend()
            time.sleep(0.1)
        return True

    def all_up(self) -> bool:
        return not self._down

    def close(self) -> None:
        for program in self.programs.values():
            program.stop(5.0)
