"""Ten jobs of one owner, whose searches are computed by one, two and three worker processes, on Postgres and Redis.

Each job has measured baselines and waits for its first generation of 400 proposals. Measured is the time from
their resumption until the last proposal is stored.

    python benchmarks/bench_workers.py [--jobs 10] [--workers 1 2 3] [--repeats 3]

The numbers of workers are tried in turns, on a database of their own each time. Takes about three minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from from_tests import from_tests
from record import append, table
from sqlalchemy import func, make_url, select

from edgefront.core.services.dispatch import sender
from edgefront.core.services.settings import BrokerSettings, DatabaseSettings, Settings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate

ROOT = Path(__file__).resolve().parents[1]
GENERATION = {"name": "lts", "settings": {"iterations": 1, "population": 400}}
SPACE = {"name": "lts-gpt2"}


@contextmanager
def worker(settings: Settings, queues: str, log: Path) -> Iterator[None]:
    """A worker process with one slot for these queues."""
    environment = {
        **os.environ,
        "EDGEFRONT_DATABASE__URL": settings.database_url,
        "EDGEFRONT_BROKER__URL": settings.broker.url,
        "EDGEFRONT_HOME": str(settings.home),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "celery", "--app", "edgefront.workers.app", "worker", "--concurrency=1"]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, f"--queues={queues}", f"--hostname={log.stem}@%h", "--loglevel=info"],
            cwd=ROOT, env=environment, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        while "ready." not in log.read_text():
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(60)


def seconds_for(server: Any, redis_url: str, workers: int, jobs: int) -> float:
    """Seconds from the messages until the first generation of every job is stored."""
    agents, services = (from_tests(name) for name in ("simulated_agent", "simulated_service"))
    with ExitStack() as stack, tempfile.TemporaryDirectory() as home:
        name = f"edgefront_bench_workers_{os.getpid()}"
        server.create(name)
        url = server.url_of(name)
        stack.callback(server.drop, name)
        settings = Settings(home=Path(home), database=DatabaseSettings(url=url), broker=BrokerSettings(url=redis_url))
        database = Database(url)
        stack.callback(database.dispose)
        database.migrate()
        service, agent = services.Service(database), agents.SimulatedAgent(database, agents.by_size())
        made = [
            service.submit(services.request(name=str(number), seed=number, space=SPACE, algorithm=GENERATION))
            for number in range(jobs)
        ]
        while agent.step(32):
            pass
        for job in made:  # else the sweep of the first worker that starts would move them on
            service.act("pause", job.id)
        stack.enter_context(worker(settings, "edgefront", Path(home) / "short.log"))
        for number in range(workers):
            stack.enter_context(worker(settings, "edgefront-search,edgefront-scores", Path(home) / f"w{number}.log"))
        database.send = sender(settings)
        began = time.monotonic()
        for job in made:
            service.act("resume", job.id)
        query = select(func.count()).select_from(Candidate).where(Candidate.role == "search")
        while True:
            with database.read() as session:
                if (session.scalar(query) or 0) == jobs * GENERATION["settings"]["population"]:
                    return time.monotonic() - began
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    databases, servers = from_tests("databases"), from_tests("servers")
    seconds: dict[int, list[float]] = {count: [] for count in asked.workers}
    with servers.postgres() as url, servers.own_redis() as redis_url:
        server = databases.PostgresServer(make_url(url))
        for _ in range(asked.repeats):
            for count in asked.workers:
                seconds[count].append(seconds_for(server, redis_url, count, asked.jobs))
                print(f"{count} workers: {seconds[count][-1]:.1f} s", flush=True)
    first = statistics.median(seconds[asked.workers[0]])
    rows = [
        {
            "worker processes": count,
            "seconds, median": statistics.median(taken),
            "from": min(taken),
            "to": max(taken),
            "times as fast": first / statistics.median(taken),
        }
        for count, taken in seconds.items()
    ]
    table(f"First generations of {asked.jobs} jobs of one owner, {os.cpu_count()} cores", rows)
    append("workers", {"jobs": asked.jobs, "rows": rows})


if __name__ == "__main__":
    main()
