"""A service without processes: tasks are done where the test says so."""

from __future__ import annotations

from typing import Any

import simulated_agent as simulated

from edgefront.core.common.errors import Unavailable
from edgefront.core.schemas.jobs import NO_LIMITS, JobRequest, JobView, Limits
from edgefront.core.schemas.recommendations import ChoicesView, RecommendationView
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.jobs.answers import choices, recommendation
from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import ADVANCE, PROCESS_RESULTS
from edgefront.core.store.database import Database
from edgefront.workers.work import (
    compute_and_store,
    fail,
    fail_unprocessable,
    in_words,
    next_compute_step,
    process_some,
)

GENERATE = {"mode": "generate", "sequence_length": 64, "new_tokens": 16}
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


def advance_target(database: Database, target_id: str, settings: Settings | None = None) -> None:
    """Advances a target as far as possible now, as a worker does at its last attempt."""
    try:
        while (step := next_compute_step(database, target_id)) is not None:
            if not compute_and_store(database, step, settings):
                return
    except Unavailable:
        return
    except Exception as error:
        fail(database, target_id, in_words(error))


def process_results(database: Database, target_id: str | None) -> None:
    """Processes all reports of a target, as a worker does at its last attempt."""
    try:
        while process_some(database, target_id):
            pass
    except Unavailable:
        raise
    except Exception:
        fail_unprocessable(database, target_id)


def generation_request(limits: dict[str, float], *, goal: str = "best_within_limits", **protocol: Any) -> JobRequest:
    """A small search of text generation."""
    return JobRequest.model_validate(
        {
            "goal": goal,
            "space": {"name": "lts-gpt2", "narrow": SMALL},
            "targets": [{"device_class": simulated.CLASS, "protocol": {**GENERATE, **protocol}, "limits": limits}],
            "algorithm": {"settings": {"initial": 6, "batch": 3, "population": 100, "steps": 3}},
            "budget": {"candidates": 15, "refinement": 0.0},
            "seed": 7,
        }
    )


class Inbox:
    """Where the tasks of a database wait: those that move a target on for `work`, reports are settled at once."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.targets: list[str] = []
        self.others: list[tuple[str, dict[str, Any]]] = []
        """What was sent to workers that learn or train."""
        database.send = self.send

    def send(self, task: str, arguments: dict[str, Any]) -> None:
        if task == PROCESS_RESULTS:
            process_results(self.database, arguments["target_id"])
        elif task == ADVANCE:
            self.targets.append(arguments["target_id"])
        else:
            self.others.append((task, arguments))

    def work(self, settings: Settings | None = None) -> None:
        """Does the tasks that wait, as a worker would."""
        while self.targets:
            advance_target(self.database, self.targets.pop(0), settings)


def any_limits(request: JobRequest) -> None:
    """Permits limits that no model can meet."""


class Service:
    """A database whose tasks wait in `inbox`, a user, and what they do in short words."""

    settings: Settings | None = None

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tasks = Inbox(database)
        self.user = simulated.principal(database)

    def of(self, owner: str) -> Service:
        """The same database as another user has it."""
        other = Service.__new__(Service)
        other.__dict__.update(self.__dict__, user=simulated.principal(self.database, owner))
        return other

    @property
    def inbox(self) -> list[str]:
        """Targets that wait to be moved on."""
        return self.tasks.targets

    def work(self) -> None:
        """Does the tasks that wait."""
        self.tasks.work(self.settings)

    def create(self, asked: JobRequest | None = None, key: str | None = None) -> JobView:
        return jobs.submit_job(self.database, self.user, asked or request(), any_limits, key, self.settings)

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

    def finish(self, agent: simulated.SimulatedAgent, asked: JobRequest) -> JobView:
        """Submits a job and measures to its end."""
        job = self.submit(asked)
        self.run(agent)
        job = self.get(job.id)
        assert job.state == "finished", job.targets[0].note
        return job

    def recommended(self, job: JobView, **limits: float) -> RecommendationView:
        asked = Limits(**{name.removeprefix("max_"): limit for name, limit in limits.items()})
        with self.database.read() as session:
            stored = recommendation.read_inputs(session, self.user, job.id, limits=asked)
        return stored.recommendation()

    def chosen(self, job: JobView, limits: Limits = NO_LIMITS) -> ChoicesView:
        """The answer of a job among published models."""
        with self.database.read() as session:
            return choices.answer(choices.read_inputs(session, self.user, job.id, limits))

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
