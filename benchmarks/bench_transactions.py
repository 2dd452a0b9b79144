"""How long each kind of transaction keeps a processor busy, with large jobs: what it computes holds a connection.

A job of two generations of `--population` candidates is measured by a simulated agent in batches of 32, then an
estimate, a pause, a cancellation and a deletion. CPU time of the thread inside `Database.read` and `Database.write`, by
the two functions that opened them; waiting is not counted.

    python benchmarks/bench_transactions.py [--population 2000] [--launches 2500]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from from_tests import from_tests
from record import append, table
from sqlalchemy.orm import Session

from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.store.database import Database

simulated = from_tests("simulated_agent")
services = from_tests("simulated_service")
SHOWN = 15
SPACE = {"name": "lts-gpt2"}


class Timed(Database):
    """A database that knows how long its transactions computed."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.held_ms: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def read(self) -> Iterator[Session]:
        with super().read() as session, self._timed("read"):
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        with super().write() as session, self._timed("write"):
            yield session

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        by = _callers()
        begun = time.thread_time()
        try:
            yield
        finally:
            self.held_ms[f"{kind}: {by}"].append((time.thread_time() - begun) * 1e3)


def _callers() -> str:
    """The two innermost functions of the project that are under way, without the database's."""
    frame: FrameType | None = sys._getframe(1)
    found: list[str] = []
    while frame is not None and len(found) < 2:
        code = frame.f_code
        if code.co_filename != __file__ and "contextlib" not in code.co_filename:
            found.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return " in ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--population", type=int, default=2000)
    parser.add_argument("--launches", type=int, default=2500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Timed(f"sqlite:///{folder}/edgefront.db")
        database.migrate()
        service = services.Service(database)
        agent = simulated.SimulatedAgent(database, simulated.by_size(0.01))
        settings = {"iterations": 2, "population": given.population}
        job = service.submit(services.request(space=SPACE, algorithm={"name": "lts", "settings": settings}))
        service.run(agent, steps=given.launches // 32 + 1, max_items=32)
        searched = services.request(space=SPACE, proxy="quality_law", algorithm={"name": "surrogate", "settings": {}})
        estimate(database, service.user, searched, Fits(), None)
        for act in ("pause", "resume", "cancel"):
            service.act(act, job.id)
        service.recommended(job)
        service.act("delete", job.id)
        database.dispose()
    rows = [
        {"transaction": name, "times": len(held_ms), "mean ms": sum(held_ms) / len(held_ms), "longest ms": max(held_ms)}
        for name, held_ms in sorted(database.held_ms.items(), key=lambda one: -max(one[1]))
    ][:SHOWN]
    table("CPU time inside transactions", rows)
    append("transactions", {**vars(given), "rows": rows})


if __name__ == "__main__":
    main()
