"""Computes scores of proxies in a child process: it may run out of memory, hang or crash, which costs the score an
attempt.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from edgefront.core.common.errors import EdgefrontError, InvalidInput, NotFound
from edgefront.core.common.processes.child import python
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.datasets import find_dataset
from edgefront.core.store.database import Database

REST_S = 60.0
"""Seconds without a score after which a child process ends: meanwhile the next generation need not load torch again."""

POLL_S = 1.0
"""Seconds after which a child that has said nothing is looked at again."""
_STOP_S = 10.0


class Scoring:
    """Computes scores that wait, one child process for each call at the same time. One instance per worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._resting: dict[Child, threading.Timer] = {}
        """Children that compute nothing, and what ends each in the end."""
        self._busy: set[Child] = set()
        self._stopping = False

    def compute(self, score_id: str) -> None:
        """Computes a score, unless it is there or no live target waits for it. Raises EdgefrontError if the child
        process ends without one.
        """
        with self._database.read() as session:
            task = scoring.task_of(session, score_id)
        if task is not None:
            answer = self._compute(task)
            self._store(task.id, answer.get("value"), answer.get("reason"))

    def give_up(self, score_id: str, why: str) -> None:
        """The model stays without this score."""
        self._store(score_id, None, why)

    def _store(self, score_id: str, value: float | None, reason: str | None) -> None:
        with self._database.write() as session:
            scoring.store_score(session, score_id, value, reason, self._database.now(session))

    def stop(self) -> None:
        """Ends the children; the scores that they compute are left to another worker."""
        with self._lock:
            self._stopping = True
            children = [*self._busy, *self._resting]
            for timer in self._resting.values():
                timer.cancel()
            self._resting.clear()
        for child in children:
            child.end()

    def _compute(self, task: scoring.ScoreTask) -> dict[str, Any]:
        """The child's response."""
        request = {
            "architecture": task.architecture,
            "proxy": task.proxy,
            "seed": task.seed,
            "settings": task.settings,
            "device": self._settings.scoring.device,
            "data": None,
        }
        name = task.settings.get("data")
        if name is not None:
            try:
                request["data"] = str(find_dataset(name, self._settings.data_folder))
            except (InvalidInput, NotFound) as error:
                return {"reason": error.detail}
        child = self._take()
        if child is None:
            raise EdgefrontError("the worker ended")
        answer: dict[str, Any] | None = None
        try:
            answer = self._ask(child, task.proxy, request)
        finally:
            self._release(child, works=answer is not None)
        return answer

    def _ask(self, child: Child, proxy: str, request: dict[str, Any]) -> dict[str, Any]:
        end = time.monotonic() + self._settings.scoring.timeout_s
        child.ask(request)
        while (left := end - time.monotonic()) > 0:
            line = child.line(min(left, POLL_S))
            if line:
                answer: dict[str, Any] = json.loads(line)
                return answer
            if line is None:
                raise EdgefrontError(f"the process that computed {proxy} {child.fate()}")
        raise EdgefrontError(f"{proxy} took longer than {self._settings.scoring.timeout_s:g} s")

    def _take(self) -> Child | None:
        """A child that computes nothing; None if all are ended."""
        with self._lock:
            if self._stopping:
                return None
            if self._resting:
                child, timer = self._resting.popitem()
                timer.cancel()
            else:
                child = Child()
            self._busy.add(child)
            return child

    def _release(self, child: Child, *, works: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if works and not self._stopping:
                timer = threading.Timer(REST_S, self._end_resting, (child,))
                timer.daemon, timer.name = True, "edgefront-scoring-rest"
                self._resting[child] = timer
                timer.start()
                return
        child.end()

    def _end_resting(self, child: Child) -> None:
        with self._lock:
            resting = self._resting.pop(child, None) is not None
        if resting:
            child.end()


class Child:
    """`workers.scoring.child`, with one request at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            python("edgefront.workers.scoring.child"),
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
