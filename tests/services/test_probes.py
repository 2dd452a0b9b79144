"""Probes of a job: trainings are chosen and stored once; when they have ended, the job moves to the law they refine."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_SQLITE
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import SMALL, Service
from simulated_trainings import BASE, Trainings
from sqlalchemy import func, select

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import Conflict, InvalidInput, NotFound
from edgefront.core.quality.shipped import law_named
from edgefront.core.recipes.papers import recipe
from edgefront.core.services.jobs import law, probes
from edgefront.core.services.quality import refits
from edgefront.core.services.sweep import sweep
from edgefront.core.services.tasks import MOVE_LAW, REFIT
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import Outcome, Report, Score
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import ProbeState
from edgefront.core.store.tables import Probe, Training
from edgefront.core.wire.jobs import JobRequest, JobView
from edgefront.core.wire.probes import ProbeRequest, ProbeView
from edgefront.workers import laws as law_worker

pytestmark = pytest.mark.slow

HOW: dict[str, Any] = {
    "dataset": "letters",
    "recipe": "quick",
    "overrides": {"steps": 3, "checkpoint_every": 2, "segment": 8, "schedule": {"warmup": 0}},
}


class World:
    """A finished job and its probes, in short words."""

    def __init__(self, service: Service, trainings: Trainings) -> None:
        self.service, self.pool, self.database = service, trainings.pool, service.database
        value = {
            "space": {"name": "lts-gpt2", "narrow": SMALL},
            "targets": [{"device_class": CLASS}],
            "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 10}},
            "budget": {"refinement": 0.0},
            "proxy": "quality_law",
            "seed": 7,
        }
        agent = SimulatedAgent(service.database, by_work)
        made = service.submit(JobRequest.model_validate(value))
        service.run(agent)
        self.job: JobView = service.get(made.id)

    def start(self, key: str | None = None, **changes: Any) -> ProbeView:
        asked = ProbeRequest.model_validate({**HOW, "trainings": 3, **changes})
        return probes.start(self.database, self.service.user, self.job.id, asked, self.pool.settings, key)

    def view(self) -> ProbeView:
        return probes.view(self.database, self.service.user, self.job.id)

    def end_next(self, ending: Any = "done") -> None:
        """The next training of the pool ends."""
        claim = self.pool.claim()
        assert claim is not None
        with self.database.write() as session:
            now = self.database.now(session)
            training = session.get_one(Training, claim.training_id)
            architecture, data = Architecture.model_validate(training.architecture), str(training.dataset_digest)
            training_claims.start(session, claim.training_id, claim.fence, None, data, now, 60)
        as_expected = 30 * float(law_named(BASE).predict(Shapes.of([architecture])).perplexity[0])
        scores = [Score("valid", "perplexity", as_expected)] if ending == "done" else []
        with self.database.write() as session:
            outcome = Outcome(ending, reason="wrong", result={}, scores=scores)
            now = self.database.now(session)
            report = Report(metrics=[{"step": 3, "tokens": 1000, "seconds": 2.0, "loss": 3.0}])
            training_claims.finish(session, claim.training_id, claim.fence, report, outcome, now)

    def refit(self) -> None:
        """Does the refits that wait, as a worker would."""
        for task, arguments in list(self.service.tasks.others):
            if task == REFIT:
                law_worker.refit(self.database, arguments["comparability_key"])

    def move(self) -> None:
        """Does the moves that wait, as a worker would."""
        for task, arguments in list(self.service.tasks.others):
            if task == MOVE_LAW:
                law.carry_out(self.database, arguments["job_id"])

    def sweep(self) -> None:
        with self.database.write() as session:
            sweep(session, self.database.now(session))

    def count(self, table: type[Probe] | type[Training]) -> int:
        with self.database.read() as session:
            return session.scalar(select(func.count()).select_from(table)) or 0


@pytest.fixture
def world(service: Service, trainings: Trainings) -> World:
    return World(service, trainings)


def width(view: ProbeView, which: str) -> float:
    answer = getattr(view, which)
    ratio = answer if which == "expected" else answer.ratio
    assert ratio is not None
    return float(ratio.high / ratio.low)


def test_a_job_moves_to_the_law_that_its_probes_refine(world: World) -> None:
    planned = world.start(dry_run=True)
    assert (planned.state, planned.id, planned.seconds) == (ProbeState.PLANNED, None, None)
    assert world.count(Probe) == world.count(Training) == 0
    assert len({each.candidate_id for each in planned.trainings}) == 3
    assert planned.tokens == 3 * 8 * recipe("quick").rows
    assert width(planned, "expected") < width(planned, "before")

    started = world.start()
    assert started.state == ProbeState.TRAINING
    assert [each.candidate_id for each in started.trainings] == [each.candidate_id for each in planned.trainings]
    assert all(each.state == "queued" and each.training_id for each in started.trainings)
    with pytest.raises(Conflict, match="under way already"):
        world.start(seed=1)

    for _ in range(2):
        world.end_next()
        world.refit()
        assert world.view().state == ProbeState.TRAINING
        assert world.view().law is None
    world.end_next()
    assert world.view().state == ProbeState.LEARNING
    world.refit()
    moving = world.view()
    assert moving.state == ProbeState.MOVING
    assert law.law_view(world.database, world.service.user, world.job.id).moving_to == moving.law
    world.move()

    done = world.view()
    assert (done.state, done.reason) == (ProbeState.DONE, None)
    assert done.after is not None
    assert done.after.ratio is not None
    assert done.after.ratio.law == done.law
    assert width(done, "after") < width(done, "before")
    shown = law.law_view(world.database, world.service.user, world.job.id)
    assert shown.law is not None
    assert (shown.law.law, shown.law.models) == (done.law, 3)
    assert shown.agreement is not None
    assert shown.agreement.models == 3

    again = world.start(dry_run=True)  # what was trained tells what others take, and is not trained again
    assert again.seconds is not None
    assert again.seconds > 0
    trained = {each.candidate_id for each in done.trainings}
    assert trained.isdisjoint({each.candidate_id for each in again.trainings})


@ON_SQLITE
def test_the_same_key_starts_once(world: World) -> None:
    first = world.start("key")
    assert world.start("key") == first
    assert (world.count(Probe), world.count(Training)) == (1, 3)
    with pytest.raises(Conflict, match="Idempotency-Key"):
        world.start("key", seed=2)


@ON_SQLITE
def test_the_sweep_moves_a_job_whose_worker_died(world: World) -> None:
    world.start(trainings=1)
    world.end_next()
    for task, arguments in world.service.tasks.others:
        if task == REFIT:
            refits.refit(world.database, arguments["comparability_key"])  # and the worker is killed
    assert world.view().state == ProbeState.LEARNING
    world.sweep()
    assert world.view().state == ProbeState.MOVING
    world.sweep()
    world.move()
    assert world.view().state == ProbeState.DONE


@ON_SQLITE
def test_failed_trainings_are_named(world: World) -> None:
    world.start(trainings=2)
    world.end_next("invalid")
    world.end_next()
    world.refit()
    world.move()
    done = world.view()
    assert done.state == ProbeState.DONE
    assert done.reason == "1 of 2 trainings ended without a perplexity"
    world.start(trainings=1, seed=5)
    world.end_next("invalid")
    world.sweep()
    failed = world.view()
    assert failed.state == ProbeState.FAILED
    assert "is failed: wrong" in str(failed.reason)


@ON_SQLITE
def test_a_deleted_job_or_training_is_waited_for_no_longer(world: World) -> None:
    started = world.start(trainings=1)
    world.pool.delete(str(started.trainings[0].training_id))
    world.sweep()
    assert world.view().reason == "no training ended with a perplexity: all were deleted"
    world.start(trainings=1)
    world.service.act("delete", world.job.id)
    assert world.count(Probe) == 0
    world.sweep()


@ON_SQLITE
def test_what_cannot_be_probed_is_refused(world: World) -> None:
    with pytest.raises(NotFound, match="has no probe"):
        world.view()
    with pytest.raises(Conflict, match="Nothing that was measured is within"):
        world.start(limits={"latency_ms": 1e-6})
    with pytest.raises(InvalidInput) as caught:
        world.start(dataset="nothing")
    assert caught.value.field == "dataset"
    assert world.count(Training) == 0
