"""A service without processes: tasks are done where the test says so."""

from __future__ import annotations

from typing import Any

import simulated_agent as simulated

from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.tasks import ADVANCE, SCORE, SETTLE
from edgefront.core.store.database import Database
from edgefront.core.wire.jobs import JobRequest, JobView
from edgefront.workers.searching import advance_target
from edgefront.workers.tasks import settle_target

SMALL = {"n_layer": {"max": 3}, "d_model": [128, 192], "d_inner": {"max": 640}}


def request(**changes: Any) -> JobRequest:
    """A small job on the simulated board: 3 baselines, 2 generations of 10 and 8."""
    value: dict[str, Any] = {
        "space": {"name": "lts-gpt2", "narrow": SMALL},
        "targets": [{"device_class": simulated.CLASS}],
        "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 10}},
        "proxy": "decoder_parameters",
        "seed": 7,
    }
    return JobRequest.model_validate(value | changes)


class Service:
    """A database whose tasks wait in `inbox`, a user, and what they do in short words."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.inbox: list[str] = []
        self.sent = 0
        self.scores_asked = 0
        database.send = self._send
        self.user = simulated.principal(database)

    def _send(self, task: str, arguments: dict[str, Any]) -> None:
        if task == SCORE:
            self.scores_asked += 1
            return
        if task == SETTLE:
            settle_target(self.database, arguments["target_id"])
            return
        assert task == ADVANCE
        self.sent += 1
        self.inbox.append(arguments["target_id"])

    def work(self) -> None:
        """Does the tasks that wait."""
        while self.inbox:
            advance_target(self.database, self.inbox.pop(0))

    def create(self, asked: JobRequest | None = None, key: str | None = None) -> JobView:
        return jobs.submit_job(self.database, self.user, asked or request(), key)

    def submit(self, asked: JobRequest | None = None) -> JobView:
        """Creates a job and lets it ask for its baselines."""
        job = self.create(asked)
        self.work()
        return self.get(job.id)

    def get(self, job_id: str) -> JobView:
        with self.database.read() as session:
            return jobs.get_job(session, self.user, job_id, self.database.now(session))

    def act(self, name: str, job_id: str) -> Any:
        """pause, resume, cancel or delete."""
        with self.database.write() as session:
            return getattr(jobs, f"{name}_job")(session, self.user, job_id, self.database.now(session))

    def run(self, agent: simulated.SimulatedAgent, steps: int = 200, max_items: int = 8) -> int:
        """Measures until there is no work left; returns the number of launches."""
        total = 0
        for _ in range(steps):
            self.work()
            made = agent.step(max_items)
            total += made
            self.work()
            if not made:
                return total
        return total
