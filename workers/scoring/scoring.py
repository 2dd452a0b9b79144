"""Computes scores of proxies in child processes. If a child runs out of memory, hangs or crashes, an attempt fails."""

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
from edgefront.core.services.datasets import find_dataset
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

IDLE_S = 60.0
"""Seconds without a request after which a child process ends. The next generation usually comes earlier."""

POLL_S = 1.0
"""Seconds between checks of a child that has not answered."""
_STOP_S = 10.0


class Scoring:
    """Computes waiting scores, with a child process per concurrent call. Each worker process has one instance."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: dict[Child, threading.Timer] = {}
        """Idle child processes, each with the timer that ends the process."""
        self._busy: set[Child] = set()
        self._stopping = False

    def compute(self, score_id: str) -> None:
        """Computes a waiting score. Raises EdgefrontError if the child process ends without an answer."""
        with self._database.read() as session:
            task = scoring.task_of(session, score_id)
        if task is not None:
            answer = self._compute(task)
            self._store(task.id, answer.get("value"), answer.get("reason"))

    def give_up(self, score_id: str, why: str) -> None:
        """Stores that the model has no score of this proxy, with the reason `why`."""
        self._store(score_id, None, why)

    def _store(self, score_id: str, value: float | None, reason: str | None) -> None:
        with self._database.write() as session:
            scoring.store_score(session, score_id, value, reason, self._database.now(session))

    def stop(self) -> None:
        """Ends the child processes; another worker computes the unfinished scores."""
        with self._lock:
            self._stopping = True
            children = [*self._busy, *self._idle]
            for timer in self._idle.values():
                timer.cancel()
            self._idle.clear()
        for child in children:
            child.end()

    def _compute(self, task: scoring.ScoreTask) -> dict[str, Any]:
        """Sends a score task to a child process and returns the response."""
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
                raise EdgefrontError(f"the process that computed {proxy} {child.exit_reason()}")
        raise EdgefrontError(f"{proxy} took longer than {self._settings.scoring.timeout_s:g} s")

    def _take(self) -> Child | None:
        """Returns an idle or new child process; None while this worker stops."""
        with self._lock:
            if self._stopping:
                return None
            if self._idle:
                child, timer = self._idle.popitem()
                timer.cancel()
            else:
                child = Child()
            self._busy.add(child)
            return child

    def _release(self, child: Child, *, works: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if works and not self._stopping:
                timer = threading.Timer(IDLE_S, self._end_idle, (child,))
                timer.daemon, timer.name = True, "edgefront-scoring-rest"
                self._idle[child] = timer
                timer.start()
                return
        child.end()

    def _end_idle(self, child: Child) -> None:
        with self._lock:
            was_idle = self._idle.pop(child, None) is not None
        if was_idle:
            child.end()


class Child:
    """A child process that runs `workers.scoring.child` and answers one request at a time."""

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
        """Returns the response, a line of JSON; an empty string after `timeout_s`, None if the process has ended."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return ""

    def exit_reason(self) -> str:
        code = self._process.wait(_STOP_S)
        if code == -9:
            return "was killed, probably because memory ran out"
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
