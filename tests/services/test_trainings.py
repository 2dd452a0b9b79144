"""Trainings as rows: created once, claimed by one, taken in as told, given back when their worker is lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_agent import SimulatedAgent, principal
from simulated_pool import ARCHITECTURE, DATA, Pool, asked, settings_for
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput, NotFound
from edgefront.core.common.states import LIVE_TRAININGS
from edgefront.core.services.fleet.overview import overview
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import FinishedRun, Machine, ReportedScore, RunReport, TrainingClaim
from edgefront.core.services.trainings.views import card_facts
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Evaluation, Training
from edgefront.core.training.run_folder import with_vocabulary


def say(pool: Pool, claim: TrainingClaim, said: RunReport) -> str:
    with pool.database.write() as session:
        now = pool.database.now(session)
        return training_claims.report(session, claim.training_id, claim.fence, said, now, 60)


def finish(pool: Pool, claim: TrainingClaim, outcome: FinishedRun, said: RunReport | None = None) -> str:
    with pool.database.write() as session:
        now = pool.database.now(session)
        return training_claims.finish(session, claim.training_id, claim.fence, said or RunReport(), outcome, now)


def expire(pool: Pool, seconds: float) -> None:
    with pool.database.write() as session:
        training_claims.return_expired(session, pool.database.now(session) + timedelta(seconds=seconds))


def metric(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"step": step, "tokens": 10 * step, "seconds": 0.5 * step, "loss": loss}


# Claims --------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_workers_that_claim_at_once_get_one_each(pool: Pool) -> None:
    ids = {pool.submit() for _ in range(5)}

    def claims(name: str) -> list[TrainingClaim | None]:
        return [pool.claim(Machine(name, 1, 1 << 40)) for _ in range(2)]

    # Two workers, each with two processes and one slot.
    found = at_once(*(partial(claims, name) for name in ("a", "b", "a", "b")))
    taken = [item.training_id for items in found for item in items if item is not None]
    assert len(taken) == len(set(taken)) == 2
    assert set(taken) < ids


def test_slots_memory_and_gpus(pool: Pool) -> None:
    large = pool.create(asked(requires={"memory_gb": 64.0}))[0].id
    small = pool.submit()
    machine = Machine("w", 1, 8 << 30, {0: 24 << 30, 1: 24 << 30, 2: 80 << 30})
    claim = pool.claimed(machine)
    assert claim.training_id == small  # the one before it needs more than this machine has
    assert pool.claim(machine) is None
    assert "before it" not in pool.get(large).note
    assert "needs a worker with 64 GiB" in pool.get(large).note
    one, four, two, last = (
        pool.create(asked(requires={"device": "cuda", "gpus": gpus}))[0].id for gpus in (1, 4, 2, 1)
    )
    first = pool.claim(machine, "gpu")
    both = pool.claim(machine, "gpus")
    assert first is not None
    assert both is not None
    assert (first.training_id, both.training_id) == (one, two)
    assert (pool.row(one).gpu_numbers, pool.row(two).gpu_numbers) == ([0], [1, 2])
    assert pool.claim(machine, "gpu") is None
    assert finish(pool, first, FinishedRun("done")) == "done"
    again = pool.claimed(machine, "gpu")
    assert again.training_id == last
    assert pool.get(four).state == "queued"


def test_gpus_are_chosen_by_what_a_training_needs(pool: Pool) -> None:
    """A small GPU neither keeps a large training waiting, nor gets it; small ones leave the large GPUs alone."""
    machine = Machine("w", 1, 8 << 30, {0: 8 << 30, 1: 80 << 30, 2: 24 << 30, 3: 80 << 30})

    def claimed(queue: str, gpus: int, memory_gb: float) -> list[int] | None:
        training = pool.create(asked(requires={"device": "cuda", "gpus": gpus, "memory_gb": memory_gb}))[0].id
        claim = pool.claim(machine, queue)
        return None if claim is None else list(pool.row(training).gpu_numbers)

    assert claimed("gpus", 3, 30.0) is None  # two have so much
    assert claimed("gpu", 1, 20.0) == [2]
    assert claimed("gpus", 2, 40.0) == [1, 3]
    assert claimed("gpu", 1, 10.0) is None
    assert claimed("gpu", 1, 8.0) == [0]


def test_what_runs_on_the_processor_takes_its_memory_from_the_next(pool: Pool) -> None:
    machine = Machine("w", 3, 16 << 30)
    for _ in range(2):
        pool.create(asked(requires={"memory_gb": 10.0}))
    small = pool.create(asked(requires={"memory_gb": 6.0}))[0].id
    first, second = pool.claim(machine), pool.claim(machine)
    assert first is not None
    assert second is not None
    assert second.training_id == small
    assert pool.claim(machine) is None
    finish(pool, first, FinishedRun("done"))
    assert pool.claim(machine) is not None


@ON_BOTH
def test_messages_with_an_older_fence_are_refused(pool: Pool) -> None:
    training = pool.submit()
    old = pool.claimed()
    expire(pool, 61)
    assert pool.get(training).state == "queued"
    assert pool.get(training).attempts == 0  # its run had not started
    new = pool.claimed()
    assert new.fence == old.fence + 1
    for late in (
        lambda: say(pool, old, RunReport(state="training", step=9)),
        lambda: finish(pool, old, FinishedRun("done")),
    ):
        with pytest.raises(Conflict):
            late()
    assert say(pool, new, RunReport(state="training", step=1, steps=4)) == "run"
    assert pool.get(training).step == 1
    assert finish(pool, new, FinishedRun("stopped")) == "queued"
    with pytest.raises(Conflict):
        say(pool, new, RunReport(state="training", step=2))
    pool.delete(training)
    with pytest.raises(NotFound):
        say(pool, new, RunReport())


@ON_BOTH
def test_a_lost_worker_costs_a_started_run_an_attempt(pool: Pool) -> None:
    training = pool.submit()
    for attempt in (1, 2, 3):
        claim = pool.claimed()
        with pool.database.write() as session:
            now = pool.database.now(session)
            training_claims.start(session, training, claim.fence, None, "0" * 64, now, 60)
        expire(pool, 30)
        assert pool.get(training).state == "starting"
        expire(pool, 61)
        assert pool.get(training).attempts == attempt
    view = pool.get(training)
    assert (view.state, view.reason) == ("failed", f"3 attempts; the last: {training_claims.LOST}")
    assert view.finished_at is not None


# Reports -------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_reports_that_were_withdrawn_are_shown_once(pool: Pool) -> None:
    training = pool.submit()
    claim = pool.claimed()

    def tell(step: int, *metrics: dict[str, Any], state: str = "training", **more: Any) -> tuple[Any, ...]:
        say(pool, claim, RunReport(state=state, step=step, steps=9, metrics=list(metrics), **more))
        last = pool.get(training).last_metric
        assert last is not None
        return last.step, last.loss, last.valid_loss

    tell(3, metric(1), metric(2), metric(3), whole=True)
    assert tell(3, {**metric(3), "valid_loss": 2.0}, checkpoint=2) == (3, 1.0, 2.0)
    assert pool.steps(training) == [1, 2, 3]
    # A figure stands until there is a newer one.
    assert tell(4, metric(4, 0.9), checkpoint=2) == (4, 0.9, 2.0)
    tell(3, metric(1), metric(2), whole=True, checkpoint=2)
    assert tell(3, metric(3, float("nan")), state="evaluating", checkpoint=2)[1] is None
    events = [(event.kind, event.data.get("step")) for event in pool.events(training) if event.kind != "state"]
    assert events == [
        *(("metric", step) for step in (1, 2, 3, 3)),
        ("checkpoint", 2),
        ("metric", 4),
        ("rewound", 2),
        ("metric", 3),
    ]
    assert pool.states(training) == ["queued", "starting", "training", "evaluating"]


@ON_BOTH
def test_scores_belong_to_the_digest_and_outlive_the_training(pool: Pool) -> None:
    training = pool.submit()
    claim = pool.claimed()
    finish(pool, claim, FinishedRun("done", result={"steps": 3}, scores=[ReportedScore("test", "perplexity", 9.5)]))
    digest = pool.get(training).digest
    assert pool.delete(training)
    with pool.database.read() as session:
        (row,) = session.scalars(select(Evaluation)).all()
        assert (row.digest, row.training_id, row.dataset, row.value) == (digest, None, DATA, 9.5)


def test_the_card_has_the_measurements_of_the_trained_model_itself(pool: Pool) -> None:
    """Where one of the owner's jobs measured it with the vocabulary of the data; else those of the candidate."""
    service = Service(pool.database)
    SimulatedAgent(pool.database)
    service.submit()
    with pool.database.write() as session:
        one, other = session.scalars(select(Candidate).order_by(Candidate.number).limit(2))
        for candidate, latency in ((one, 1.5), (other, 2.5)):
            candidate.latency_ms, candidate.memory_bytes, candidate.state = latency, 1000, "measured"
        asked_for, exactly = one.id, other.digest
    (made,) = pool.create(asked(architecture=None, candidate=asked_for, licence="mit"))
    assert made.licence == "mit"
    with pool.database.read() as session:
        training = session.get(Training, made.id)
        assert training is not None
        cards = [card_facts(session, training, digest) for digest in ("0" * 64, exactly)]
        training.owner = "another"  # whose jobs measured nothing
        cards.append(card_facts(session, training, exactly))
        session.rollback()
    assert [[item["latency_ms"] for item in card["measurements"]] for card in cards] == [[1.5], [2.5], [1.5]]
    assert cards[1]["measurements"][0]["digest"] == exactly
    assert "with onnxruntime, 1 thread" in cards[1]["measurements"][0]["protocol"]
    assert cards[0]["licence"] == "mit"


def test_trainings_are_counted_for_the_dashboard(pool: Pool) -> None:
    pool.submit()
    pool.submit()
    claim = pool.claimed()
    say(pool, claim, RunReport("training", step=1, steps=3, metrics=[metric(1) | {"tokens_per_s": 250.0}]))
    with pool.database.read() as session:
        gauges = overview(session, pool.database.now(session) + timedelta(seconds=60))
    found = {gauge.name: gauge.values for gauge in gauges}
    assert {state: count for state, count in found["trainings"].items() if count} == {"queued": 1, "training": 1}
    assert found["training_tokens_per_second"] == {"cpu": 250.0, "cuda": 0.0}
    assert 60 <= found["training_wait_seconds"][""] < 120
    assert found["reports_waiting"] == found["settling_lag_seconds"] == {"": 0}


def test_scores_show_which_of_them_are_comparable(pool: Pool) -> None:
    for changes in ({}, {"title": "looked at by others", "seed": 1}, {"steps": 5}, {"budget": {"steps": 2}}):
        pool.submit(**changes)
        claim = pool.claimed()
        finish(pool, claim, FinishedRun("done", result={"steps": 3}, scores=[ReportedScore("test", "perplexity", 9.5)]))
    with pool.database.read() as session:
        rows = session.scalars(select(Evaluation).order_by(Evaluation.created_at, Evaluation.id)).all()
    first, alike, longer, shorter = (row.details["comparability_key"] for row in rows)
    assert first == alike
    assert len({first, longer, shorter}) == 3


def test_a_training_is_initialised_with_the_weights_of_one_that_is_done(pool: Pool) -> None:
    first, open_one = pool.submit(), pool.submit()
    claim = pool.claimed()
    trained = with_vocabulary(Architecture.parse(ARCHITECTURE), 28).canonical
    pool.change(first, trained=dict(trained))
    finish(pool, claim, FinishedRun("done", result={"steps": 3}))
    (second,) = pool.create(asked(start=first))
    assert (second.start, pool.get(first).start) == (first, None)
    wider = ARCHITECTURE | {"d_model": 32}
    for start, changes, error, said in (
        (open_one, {}, InvalidInput, "is queued and has no weights"),
        (first, {"architecture": wider}, InvalidInput, "a different architecture"),
        ("trn_none", {}, NotFound, "no training"),
    ):
        with pytest.raises(error, match=said):
            pool.create(asked(start=start, **changes))
    pool.user = principal(pool.database, "eve")
    with pytest.raises(NotFound):
        pool.create(asked(start=first))


def test_an_admin_cancels_the_trainings_of_others(pool: Pool) -> None:
    training = pool.submit()
    pool.user = principal(pool.database, "root", "admin")
    assert pool.act("cancel", training).state == "cancelled"


# Whatever happens in whatever order ----------------------------------------------------------------------------------

STEPS = st.lists(
    st.sampled_from(["claim", "report", "done", "stopped", "invalid", "failed", "expire", "pause", "resume", "cancel"]),
    max_size=14,
)


@pytest.fixture(scope="module")
def lasting_pool(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    home = tmp_path_factory.mktemp("pool")
    url = f"sqlite:///{home / 'pool.db'}"
    (home / "pool.db").write_bytes(sqlite_template.read_bytes())
    database = Database(url)
    yield Pool(database, settings_for(url, home))
    database.dispose()


@given(steps=STEPS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_messages_leaves_a_consistent_row(lasting_pool: Pool, steps: list[str]) -> None:
    pool = lasting_pool
    training, claim = pool.submit(), TrainingClaim("", 0)
    for step in steps:
        before = pool.get(training)
        try:
            if step == "claim":
                claim = pool.claim(Machine(training, 1, 1 << 40)) or claim
            elif step == "report":
                say(pool, claim, RunReport(state="training", step=1, steps=2))
            elif step == "expire":
                expire(pool, 61)
            elif step in ("done", "stopped", "invalid", "failed"):
                finish(pool, claim, FinishedRun(step))  # type: ignore[arg-type]
            else:
                pool.act(step, training)
        except EdgefrontError:
            after = pool.get(training)
            assert (after.state, after.wanted) == (before.state, before.wanted)
        row = pool.row(training)
        assert (row.lease_expires_at is not None) == (row.state in LIVE_TRAININGS)
        assert (row.finished_at is not None) == (row.state in ("done", "failed", "cancelled"))
        assert row.attempts <= training_claims.TRAINING_ATTEMPTS
        if before.state in ("done", "cancelled"):
            assert row.state == before.state
        if row.state in ("queued", "done"):
            assert row.wanted == "run"
    assert pool.states(training)[-1] == pool.get(training).state
    with pool.database.write() as session:
        session.delete(session.get_one(Training, training))
