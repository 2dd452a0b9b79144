"""Computes scores of proxies in the background of a worker, so that no task waits for a score.

A message starts a thread, unless one is running, which claims one score after another, owners in turn, until none is
left. A child process computes them: it may run out of memory, hang or crash, which costs the score an attempt.
"""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from edgefront.core.errors import EdgefrontError, InvalidInput, NotFound
from edgefront.core.services.heartbeat import interval_s
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.datasets import find_dataset
from edgefront.core.store.database import Database
from edgefront.workers.turns import Turns

_REST_S = 60.0
"""Seconds without a score after which the child process ends."""
_STOP_S = 10.0

_log = logging.getLogger(__name__)


class Scoring:
    """Computes waiting scores in a thread and a child of this process. One instance per worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._turns = Turns()
        self._changed = threading.Condition()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._child: Child | None = None
        self._again = False
        self._stopping = False

    def start(self) -> None:
        """Starts computing waiting scores and returns at once. A running thread checks again before it ends."""
        with self._changed:
            if self._stopping:
                return
            self._again = True
            self._idle.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="edgefront-scoring", daemon=True)
                self._thread.start()
            self._changed.notify()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits up to this time; whether all waiting scores are done."""
        return self._idle.wait(timeout_s)

    def stop(self) -> None:
        """Stops; the current score is left to another worker."""
        with self._changed:
            self._stopping = True
            child, thread = self._child, self._thread
            self._changed.notify()
        if child is not None:
            child.end()
        if thread is not None:
            thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            while self._wanted():
                while not self._stopping and self._one():
                    pass
        except EdgefrontError as error:  # the database is unavailable: the sweep sends the task again
            _log.warning("scoring is postponed: %s", error)
        except Exception:
            _log.exception("scoring is postponed")
        finally:
            with self._changed:
                if self._thread is threading.current_thread():  # it did not end normally
                    self._end()

    def _wanted(self) -> bool:
        """Waits a while for a message before the child ends, so that the next generation need not load torch again."""
        with self._changed:
            if not self._again:
                self._idle.set()
                self._changed.wait_for(lambda: self._again or self._stopping, _REST_S)
            wanted, self._again = self._again and not self._stopping, False
            if not wanted:
                self._end()
            return wanted

    def _end(self) -> None:
        """Marks the thread as ended: the next message starts another."""
        self._thread, child, self._child = None, self._child, None
        if child is not None:
            child.end()
        self._idle.set()

    def _one(self) -> bool:
        """Computes one score; False if none is waiting."""
        with self._database.write() as session:
            held = scoring.claim(session, self._database.now(session), self._turns.order)
        if held is None:
            return False
        self._turns.take(held.owner)
        answer, fault = self._compute(held)
        with self._database.write() as session:
            now = self._database.now(session)
            if answer is None:
                scoring.give_back(session, held, fault, now)
            else:
                scoring.settle(session, held.id, answer.get("value"), answer.get("reason"), now)
        return True

    def _compute(self, held: scoring.ScoreClaim) -> tuple[dict[str, Any] | None, str]:
        """The child's response, or None and how the child ended."""
        request = {
            "architecture": held.architecture,
            "proxy": held.proxy,
            "seed": held.seed,
            "settings": held.settings,
            "device": self._settings.scoring.device,
            "data": None,
        }
        name = held.settings.get("data")
        if name is not None:
            try:
                request["data"] = str(find_dataset(name, self._settings.data_folder))
            except (InvalidInput, NotFound) as error:
                return {"reason": error.detail}, ""
        with self._changed:
            if self._stopping:
                return None, "the worker ended"
            if self._child is None:
                self._child = Child()
            child = self._child
        end = time.monotonic() + self._settings.scoring.timeout_s
        child.ask(request)
        while (left := end - time.monotonic()) > 0:
            line = child.line(min(left, interval_s(scoring.CLAIM.total_seconds())))
            if line:
                return json.loads(line), ""
            if line is None:
                fault = f"the process that computed {held.proxy} {child.fate()}"
                break
            with self._database.write() as session:
                scoring.extend(session, held, self._database.now(session))
        else:
            fault = f"{held.proxy} took longer than {self._settings.scoring.timeout_s:g} s"
        with self._changed:
            self._child = None
        child.end()
        return None, fault


class Child:
    """`workers.scoring.child`, with one request at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "edgefront.workers.scoring.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="edgefront-scores", daemon=True)
        self._reader.start()

    def ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `line` notices it
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def line(self, timeout_s: float) -> str | None:
        """The response; empty if there is none yet, None if the process has ended."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return ""

    def fate(self) -> str:
        """How the process ended, as text."""
        code = self._process.wait(_STOP_S)
        if code == -9:
            return "was killed, as happens when memory runs out"
        return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait(_STOP_S)
        self._reader.join(_STOP_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):  # closed
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)
