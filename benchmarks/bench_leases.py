"""Leases and reports of simulated agents against the real API on Postgres.

Two measurements, in one run and on one temporary database:

- fleet: 1,000 agents at 30 candidates a minute each, in batches of 8 (63 leases and 63 reports a second), with
  heartbeats, and a real worker on Redis that processes the reports and sweeps. Goals: p99 below 150 ms for a lease
  that returns work; each report is processed within a second.
- full speed: 16 agents without measuring time: maximum rows per second, processing included (the wall time ends when
  the final report is processed), and the CPU time per row, which other load disturbs less.

Finally checks that every launch was handed out exactly once.

    python benchmarks/bench_leases.py [--server postgresql://postgres@127.0.0.1:5432/postgres] [--agents 1000]
        [--redis redis://127.0.0.1:6379/15] [--jobs 10] [--seconds 48] [--processes 2]

The server defaults to `EDGEFRONT_TEST_DATABASE_URL`, else Postgres on localhost; the Redis database is emptied before
and after the run. Takes about 100 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fleet_database
import numpy as np
import psutil
import psycopg
import redis
from fleet_agents import Task
from record import append, table

from edgefront.core.services.fleet.overview import oldest_report
from edgefront.core.store.database import Database

ROOT = Path(__file__).resolve().parents[1]
PER_MINUTE = 30
BATCH = 8
GOAL_P99_MS = 150.0
GOAL_LAG_S = 1.0
CLIENTS = 16
FULL_SPEED_S = 10.0


@contextmanager
def api(url: str, redis_url: str, processes: int) -> Iterator[tuple[int, list[psutil.Process]]]:
    """Starts API processes that share a free port. Yields the port and the processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "EDGEFRONT_DATABASE__URL": url,
            "EDGEFRONT_BROKER__URL": redis_url,
            "EDGEFRONT_HTTP__PORT": str(port),
            "EDGEFRONT_HTTP__SHARE_PORT": "true",
            "EDGEFRONT_HOME": home,
        }
        command = [sys.executable, "-m", "edgefront.api"]
        started = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) for _ in range(processes)
        ]
        try:
            for process in started:
                _wait_for(port, process)
            yield port, [psutil.Process(process.pid) for process in started]
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=1)
            return
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"the API ended with exit code {process.returncode}") from None
            time.sleep(0.1)
    raise SystemExit("the API did not come up within two minutes")


def simulate(task: Task) -> dict[str, Any]:
    """Runs the agents in a separate process, so that they and the server do not share an interpreter."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "fleet_agents.py")],
        input=json.dumps(asdict(task)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    account: dict[str, Any] = json.loads(done.stdout)
    return account


@contextmanager
def worker(url: str, redis_url: str) -> Iterator[psutil.Process]:
    """Starts a worker of a team's server, which processes reports and sweeps."""
    redis.Redis.from_url(redis_url).flushdb()
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "EDGEFRONT_DATABASE__URL": url,
            "EDGEFRONT_BROKER__URL": redis_url,
            "EDGEFRONT_HOME": home,
        }
        command = [sys.executable, "-m", "celery", "--app", "edgefront.workers.app", "worker", "--pool", "solo"]
        process = subprocess.Popen([*command, "--loglevel", "error"], cwd=ROOT, env=environment)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)
            redis.Redis.from_url(redis_url).flushdb()


class Lag:
    """The age of the oldest unprocessed report, sampled ten times a second."""

    def __init__(self, url: str) -> None:
        self._database, self._ended = Database(url), threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self.seconds.append(self.now())

    def now(self) -> float:
        with self._database.read() as session:
            oldest = oldest_report(session)
            return 0.0 if oldest is None else max(0.0, (self._database.now(session) - oldest).total_seconds())

    def until_processed(self) -> float:
        """Waits until all reports are processed; returns the seconds of waiting."""
        begun = time.perf_counter()
        while self.now():
            time.sleep(0.05)
        return time.perf_counter() - begun

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._database.dispose()


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Returns the total CPU time of the processes in seconds."""
    times = [process.cpu_times() for process in processes]
    return sum(time.user + time.system for time in times)


class ProcessorTime:
    """CPU time of each component, which is more reliable than wall time on a shared machine.

    Args:
        url: database; its CPU time is known only if its server runs on this machine.
    """

    def __init__(self, url: str, api: Sequence[psutil.Process], worker: psutil.Process) -> None:
        self._api, self._worker = api, worker
        with psycopg.connect(fleet_database.conninfo(url)) as connection:
            backend = connection.info.backend_pid
            self._server = psutil.Process(backend).parent() if psutil.pid_exists(backend) else None

    def now(self) -> dict[str, float]:
        """Returns component → CPU seconds so far."""
        generator = resource.getrusage(resource.RUSAGE_CHILDREN)  # the generator has ended by then
        return {
            "api": cpu_s(self._api),
            "worker": cpu_s([self._worker]),
            "postgres": self._of_server(),
            "load generator": generator.ru_utime + generator.ru_stime,
        }

    def ms_a_row(self, before: Mapping[str, float], rows: int) -> dict[str, float]:
        """Returns component → CPU milliseconds per row for `rows` rows since `before`."""
        return {part: 1e3 * (seconds - before[part]) / max(rows, 1) for part, seconds in self.now().items()}

    def _of_server(self) -> float:
        if self._server is None:
            return float("nan")
        ended = self._server.cpu_times()
        seconds = ended.children_user + ended.children_system + ended.user + ended.system
        for backend in self._server.children():
            with suppress(psutil.NoSuchProcess):  # an ended process is counted with the ended children
                seconds += cpu_s([backend])
        return float(seconds)


def line(name: str, kind: str, values: Sequence[float], rows: float | None, wall_s: float) -> dict[str, Any]:
    """Returns one row of the table. `rows` is the number of rows per request; None if rows do not matter."""
    p50, p99, worst = np.percentile(values, [50, 99, 100]) if values else (float("nan"),) * 3
    return {
        "part": name,
        "request": kind,
        "requests": len(values),
        "requests/s": len(values) / wall_s,
        "rows/s": len(values) * rows / wall_s if rows else "",
        "p50 ms": float(p50),
        "p99 ms": float(p99),
        "max ms": float(worst),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("EDGEFRONT_TEST_DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--server", default=default)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/15")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=48.0)
    parser.add_argument("--processes", type=int, default=2, help="of the API, on one port")
    arguments = parser.parse_args()

    cycle_s = BATCH * 60 / PER_MINUTE
    rate = arguments.agents * PER_MINUTE / 60
    lines: list[dict[str, Any]] = []
    with fleet_database.temporary_database(arguments.server) as url:
        candidates = int(rate * (arguments.seconds + 2 * cycle_s) + 4000 * FULL_SPEED_S)
        fleet = fleet_database.fill(
            url, prefix="fleet", agents=arguments.agents, jobs=arguments.jobs, candidates=candidates
        )
        redis_url = arguments.redis
        with worker(url, redis_url) as worker_process, api(url, redis_url, arguments.processes) as (port, processes):
            secrets = [agent.secret for agent in fleet]
            task = Task("127.0.0.1", port, secrets, BATCH, cycle_s, arguments.seconds)
            lag = Lag(url)
            before, before_worker = cpu_s(processes), cpu_s([worker_process])
            steady = simulate(task)
            busy = (cpu_s(processes) - before) / steady["wall_s"]
            busy_worker = (cpu_s([worker_process]) - before_worker) / steady["wall_s"]
            lag.until_processed()
            account = ProcessorTime(url, processes, worker_process)
            before_full = account.now()
            lag_p99_s, lag_max_s = float(np.percentile(lag.seconds, 99)), max(lag.seconds)
            full = simulate(Task("127.0.0.1", port, secrets[:CLIENTS], BATCH, 0.0, FULL_SPEED_S))
            processed_after_s = lag.until_processed()
            cpu_ms = account.ms_a_row(before_full, len(full["accepted"]))
            lag.end()
        handed_out = [tuple(pair) for pair in steady["handed_out"] + full["handed_out"]]
        wrong = fleet_database.check(url, handed_out, steady["accepted"] + full["accepted"])

    for name, part in (("fleet", steady), ("full speed", full)):
        for kind in ("lease", "report", "heartbeat"):
            if part[f"{kind}_ms"]:
                per = BATCH if kind in ("lease", "report") else None
                lines.append(line(name, kind, part[f"{kind}_ms"], per, part["wall_s"]))
    table(f"{arguments.agents} agents, {arguments.jobs} jobs, {rate:.0f} candidates/s wanted", lines)
    errors = steady["errors"] + full["errors"]
    served = len(full["accepted"]) / (full["wall_s"] + processed_after_s)
    print(
        f"\n{arguments.processes} API processes: {busy:.2f} cores busy under the fleet, worker {busy_worker:.2f}. "
        f"Oldest unprocessed report: {lag_p99_s:.2f} s (p99), {lag_max_s:.2f} s (max); at full speed all were "
        f"processed {processed_after_s:.1f} s after the last. "
        f"Load generator: {steady['late_ms']:.0f} ms late at most."
    )
    print(f"Lease, report and processing of {served:.0f} rows/s.")
    parts = ", ".join(f"{part} {ms:.2f}" for part, ms in cpu_ms.items())
    print(f"CPU at full speed, ms a row: {parts}; together {sum(cpu_ms.values()):.2f}.")
    print(f"Goal, processed within {GOAL_LAG_S:g} s: {'met' if lag_max_s < GOAL_LAG_S else 'NOT MET'}")
    print(f"Errors: {len(errors)} {errors[:3]}. Wrong: {wrong}")
    p99 = lines[0]["p99 ms"]
    met = p99 < GOAL_P99_MS and not errors and not any(wrong.values())
    print(f"Goal, p99 of a lease with work below {GOAL_P99_MS:.0f} ms and nothing lost: {'met' if met else 'NOT MET'}")
    append(
        "leases",
        {
            "agents": arguments.agents,
            "jobs": arguments.jobs,
            "processes": arguments.processes,
            "lines": lines,
            "api_cores_busy": busy,
            "worker_cores_busy": busy_worker,
            "settling_lag_p99_s": lag_p99_s,
            "settling_lag_max_s": lag_max_s,
            "settled_after_s": processed_after_s,
            "service_rows_per_s": served,
            "cpu_ms_per_row": cpu_ms,
            "errors": len(errors),
            "wrong": wrong,
        },
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
