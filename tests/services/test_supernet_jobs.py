"""Jobs of par-supernet: baselines, a supernet trained for real, then what it found, measured like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.common.errors import Conflict, InvalidInput
from edgefront.core.data.prepared.preparation import Preparation, prepare
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.search.supernet_settings import SUMMARY
from edgefront.core.services.cursor import newest_page
from edgefront.core.services.datasets import find_dataset
from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import TRAIN
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.claims import FinishedRun, Machine, RunReport, TrainingClaim
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Training
from edgefront.core.training.run_folder import EXIT_DONE, RESULT, RunSpec
from edgefront.core.training.supernet.run import run
from edgefront.workers.sweep import sweep_once

DATA = "text.txt"
MACHINE = Machine("tester", slots=1, memory_bytes=1 << 40)
SPACE = {"n_block": {"min": 2, "max": 6}, "d_model": 128, "n_head": 4, "d_inner": 512}
RECIPE = {"steps": 12, "rows": 2, "segment": 8, "schedule": {"warmup": 2}, "memory": 8}


class Pool(Service):
    """The service with a data folder, and a pool whose worker trains when the test says so."""

    def __init__(self, database: Database, home: Path) -> None:
        super().__init__(database)
        self.settings = Settings(home=home)

    @property
    def asked(self) -> list[str]:
        """Queues of the trainings that workers were sent for."""
        return [arguments["queue"] for task, arguments in self.tasks.others if task == TRAIN]

    def claim(self) -> TrainingClaim | None:
        with self.database.write() as session:
            return training_claims.claim(session, MACHINE, "cpu", self.database.now(session), 60.0)

    def finish(self, claim: TrainingClaim, outcome: FinishedRun) -> None:
        with self.database.write() as session:
            now = self.database.now(session)
            training_claims.finish(session, claim.training_id, claim.fence, RunReport(), outcome, now)

    def train(self, folder: Path) -> Training:
        """Claims the training that waits and trains it to its end, as a worker does."""
        claim = self.claim()
        assert claim is not None
        with self.database.read() as session:
            training = training_queries.find(session, claim.training_id)
            assert training is not None
        spec = RunSpec(
            kind="supernet",
            data=str(find_dataset(training.dataset, self.settings.data_folder)),
            recipe=training.recipe,
            budget=training.budget,
            seed=training.seed,
            supernet=training.supernet,
        )
        folder.mkdir()
        assert run(spec, folder) == EXIT_DONE
        self.finish(claim, FinishedRun("done", result=json.loads((folder / RESULT / SUMMARY).read_text())))
        return training

    def supernet(self, job: JobView) -> Training | None:
        with self.database.read() as session:
            return training_queries.supernet_of(session, job.targets[0].id)

    def proposed(self, job: JobView) -> list[Candidate]:
        with self.database.read() as session:
            query = select(Candidate).where(Candidate.job_id == job.id, Candidate.role == "search")
            return list(session.scalars(query.order_by(Candidate.number)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service's home with a small text, prepared."""
    home = tmp_path_factory.mktemp("home")
    text = home / DATA
    text.write_text("".join(f"line {number} says {number * 7 % 13} to all.\n" for number in range(200)))
    prepare(str(text), home / "data", settings=Preparation(level="characters"))
    torch.set_num_threads(1)
    return home


@pytest.fixture
def pool(sqlite_url: str, open_database: Callable[..., Database], home: Path) -> Pool:
    return Pool(open_database(sqlite_url), home)


@pytest.fixture
def any_pool(database: Database, home: Path) -> Pool:
    """On SQLite and on Postgres."""
    return Pool(database, home)


def asked(settings: dict[str, Any] | None = None, **changes: Any) -> JobRequest:
    chosen = {"dataset": DATA, "overrides": RECIPE, "samples": 3, "seeds": 2, **(settings or {})}
    return JobRequest.model_validate(
        {
            "space": {"name": "par-32", "narrow": SPACE},
            "targets": [{"device_class": CLASS}],
            "algorithm": {"name": "par-supernet", "settings": chosen},
            "baseline_layers": [1, 2],
            "seed": 7,
            **changes,
        }
    )


def waiting(pool: Pool, request: JobRequest) -> tuple[JobView, SimulatedAgent]:
    """A job whose baselines are measured, so that its supernet waits for a worker."""
    agent = SimulatedAgent(pool.database)
    job = pool.submit(request)
    pool.run(agent)
    return pool.get(job.id), agent


@ON_BOTH
def test_the_found_stacks_enter_the_job_and_are_measured(any_pool: Pool, tmp_path: Path) -> None:
    pool = any_pool
    job, agent = waiting(pool, asked())
    supernet = pool.supernet(job)
    assert supernet is not None
    assert (supernet.kind, supernet.state, supernet.queue, pool.asked) == ("supernet", "queued", "cpu", ["cpu"])
    assert (supernet.job_id, supernet.dataset) == (job.id, DATA)
    assert job.targets[0].state == "searching"
    assert f"The supernet is trained first: {supernet.id}." in job.targets[0].note
    pool.train(tmp_path / "run")
    assert pool.run(agent) > 0
    job = pool.get(job.id)
    assert (job.state, job.targets[0].state) == ("finished", "finished")
    assert "The search ended: " in job.targets[0].note
    found = pool.proposed(job)
    operators = [candidate.operator for candidate in found]
    assert set(operators) <= {"supernet", "par_rule", "supernet_sample"}
    assert operators[0] == "supernet"
    assert "supernet_sample" in operators
    assert {candidate.generation for candidate in found} == {0}
    assert {candidate.state for candidate in found} == {"measured"}
    with pool.database.read() as session:
        assert trainings.get_training(session, pool.user, supernet.id).kind == "supernet"


def test_probes_come_first_where_latency_counts(pool: Pool, tmp_path: Path) -> None:
    agent = SimulatedAgent(pool.database)
    job = pool.submit(asked({"latency_weight": 0.1, "seeds": 1}))
    pool.run(agent)
    probes = pool.proposed(job)
    assert {candidate.operator for candidate in probes} == {"probe"}
    supernet = pool.train(tmp_path / "run")
    assert supernet.supernet is not None
    assert supernet.supernet["latency"]["attention_ms"] > 0
    assert supernet.supernet["latency"]["feed_forward_ms"] > 0
    pool.run(agent)
    assert pool.get(job.id).state == "finished"
    assert {candidate.generation for candidate in pool.proposed(job)} == {0, 1}


def test_one_supernet_is_trained_however_often_the_target_is_moved_on_and_not_deleted_under_it(pool: Pool) -> None:
    job, _ = waiting(pool, asked())
    first = pool.supernet(job)
    for _ in range(3):
        sweep_once(pool.database)
        pool.work()
    assert first is not None
    assert pool.asked == ["cpu"]
    with pool.database.read() as session:
        assert [training.id for training in newest_page(session, Training, None, 10, job_id=job.id)[0]] == [first.id]
    with pytest.raises(Conflict, match=job.id), pool.database.write() as session:
        trainings.delete_training(session, pool.user, first.id)
    pool.act("delete", job.id)
    with pool.database.write() as session:
        assert trainings.delete_training(session, pool.user, first.id)


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (FinishedRun("invalid", "the data is damaged"), "failed: the data is damaged"),
        (FinishedRun("done", result=None), "left no readable result"),
        (FinishedRun("done", result={"searches": []}), "left no readable result"),
    ],
)
def test_a_supernet_that_failed_ends_the_search_and_says_why(pool: Pool, outcome: FinishedRun, says: str) -> None:
    job, _ = waiting(pool, asked())
    claim = pool.claim()
    assert claim is not None
    pool.finish(claim, outcome)
    pool.work()
    job = pool.get(job.id)
    assert job.state == "failed"
    assert says in job.targets[0].note


def test_a_supernet_that_was_cancelled_ends_the_search(pool: Pool) -> None:
    job, _ = waiting(pool, asked())
    supernet = pool.supernet(job)
    assert supernet is not None
    with pool.database.write() as session:
        trainings.cancel_training(session, pool.user, supernet.id, pool.database.now(session))
    sweep_once(pool.database)
    pool.work()
    assert f"training {supernet.id}, cancelled" in pool.get(job.id).targets[0].note


@pytest.mark.parametrize("claimed", [True, False])
def test_a_paused_job_pauses_its_supernet(pool: Pool, claimed: bool) -> None:
    job, _ = waiting(pool, asked())
    if claimed:
        pool.claim()

    def stands() -> tuple[str, str]:
        found = pool.supernet(job)
        assert found is not None
        return found.state, found.wanted

    before = stands()
    pool.act("pause", job.id)
    assert stands() == ("starting" if claimed else "paused", "pause")
    pool.act("resume", job.id)
    assert stands() == before


@ON_BOTH
@pytest.mark.parametrize(("act", "claimed"), [("cancel", True), ("delete", False)])
def test_ending_a_job_ends_its_supernet(any_pool: Pool, act: str, claimed: bool) -> None:
    pool = any_pool
    job, _ = waiting(pool, asked())
    supernet = pool.supernet(job)
    assert supernet is not None
    if claimed:
        pool.claim()
    pool.act(act, job.id)
    with pool.database.read() as session:
        found = training_queries.find(session, supernet.id)
        assert found is not None
        assert (found.state, found.wanted) == ("starting" if claimed else "cancelled", "cancel")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"dataset": "nothing"}, "algorithm.settings.dataset"),
        ({"dataset": "../../etc"}, "algorithm.settings.dataset"),
        ({"recipe": "slow"}, "algorithm.settings.recipe"),
        ({"recipe": "par-bert-phase1"}, "algorithm.settings.recipe"),
        ({"overrides": {"distil": {}}}, "algorithm.settings.recipe"),
        ({"overrides": {"stepz": 3}}, "algorithm.settings.overrides.stepz"),
        ({"weight_steps": 12}, "algorithm.settings.weight_steps"),
        ({"temperature": -1.0}, "algorithm.settings.temperature"),
        ({"seedz": 2}, "algorithm.settings.seedz"),
    ],
)
def test_a_supernet_that_could_not_be_trained_is_refused_with_the_job(
    pool: Pool, settings: dict[str, Any], field: str
) -> None:
    SimulatedAgent(pool.database)
    with pytest.raises(InvalidInput) as caught:
        pool.submit(asked(settings))
    assert caught.value.field == field
    assert pool.asked == []
