"""Requests for trainings: planned without a transaction, made once for a key, refused by field, queued by need."""

from __future__ import annotations

from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from simulated_agent import SimulatedAgent
from simulated_pool import ARCHITECTURE, Pool, asked
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.common.errors import Conflict, InvalidInput, NotFound
from edgefront.core.services.datasets import check_dataset
from edgefront.core.services.dispatch import queue_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import plan
from edgefront.core.services.trainings.plan import evenly
from edgefront.core.store.tables import Candidate


@ON_BOTH
def test_nothing_is_held_while_trainings_are_planned(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate may be deleted meanwhile: the request is then answered as if it had come after that."""
    service = Service(pool.database)
    SimulatedAgent(pool.database)
    job = service.submit()
    service.user = pool.user
    with pool.database.read() as session:
        candidate = session.scalars(select(Candidate.id)).first()
    seen: list[int] = []

    def check(*arguments: Any, **options: Any) -> str | None:
        seen.append(pool.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        if len(seen) == 2:
            service.act("delete", job.id)
        return check_dataset(*arguments, **options)

    monkeypatch.setattr(plan, "check_dataset", check)
    request = asked(architecture=None, candidate=candidate)
    pool.create(request)
    with pytest.raises(NotFound, match="was deleted meanwhile"):
        pool.create(request)
    assert seen == [0, 0]


def test_a_training_without_a_recipe_takes_the_one_for_its_model(pool: Pool) -> None:
    for positions, chosen in (("learned", "modern"), ("relative", "quick")):
        architecture = {**ARCHITECTURE, "positions": {"kind": positions}}
        assert pool.get(pool.submit(architecture=architecture, recipe=None)).recipe["name"] == chosen


@ON_BOTH
def test_the_same_key_makes_the_same_trainings(pool: Pool) -> None:
    (first,) = pool.create(key="k")
    assert pool.create(key="k")[0].id == first.id
    assert pool.create(key="other")[0].id != first.id
    assert pool.create(key="k")[0].id == first.id, "its own, not the newest"
    with pytest.raises(Conflict, match=first.id):
        pool.create(asked(seed=5), key="k")
    assert pool.inbox == [("edgefront.train", {"queue": "cpu"})] * 2
    assert len(set(at_once(*[lambda: pool.create(key="race")[0].id] * 3))) == 1


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"recipe": "par-bert-phase1"}, "recipe", "encoder"),
        ({"recipe": "iwslt"}, "dataset", "parallel text"),
        ({"overrides": {"segment": 5000}}, "overrides.segment", "4096 positions"),
        ({"overrides": {"evaluation": {"segment": 64, "memory": 4040}}}, "overrides.evaluation.segment", "4104 tokens"),
        ({"overrides": {"name": "mine"}}, "overrides.name", "cannot be changed"),
        ({"overrides": {"rows": "8"}}, "overrides.rows", "integer"),
        ({"overrides": {"schedule": {"warmup": 10**6}}}, "overrides.schedule.warmup", "longer than the training"),
        ({"dataset": "enwik8"}, "dataset", "letters, python"),
        ({"requires": {"memory_gb": 1e12}}, "requires.memory_gb", "no machine"),
        ({"architecture": {**ARCHITECTURE, "d_model": 0}}, "architecture.d_model", "1"),
    ],
)
def test_invalid_input_is_named(pool: Pool, changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        pool.create(asked(**changes))
    assert caught.value.field == field
    assert words in f"{caught.value.detail} {caught.value.allowed}"
    assert pool.inbox == []


def test_points_are_spread_evenly() -> None:
    assert evenly("abcdefg", 3) == ["a", "d", "g"]
    assert evenly("abcdefg", 1) == ["g"]
    assert evenly("ab", 5) == ["a", "b"]


def test_queues_by_what_is_needed(pool: Pool) -> None:
    requires = ({}, {"device": "cuda"}, {"device": "cuda", "gpus": 4})
    views = [pool.create(asked(requires=item))[0] for item in requires]
    assert [view.queue for view in views] == ["train-cpu", "train-gpu", "train-gpus"]
    team = Settings(home=pool.settings.home, broker={"url": "redis://somewhere/0"})
    assert queue_of(team, "edgefront.train", {"queue": "gpus"}) == "edgefront-train-gpus"
    assert queue_of(team, "edgefront.sweep", {}) == "edgefront"


def test_gpus_that_the_only_worker_lacks_are_refused(pool: Pool) -> None:
    for has, gpus in ((0, 1), (0, 2), (1, 2)):
        pool.settings.training.gpus = has
        with pytest.raises(InvalidInput, match=f"this service's worker has {'one' if has else 'none'}") as caught:
            pool.create(asked(requires={"device": "cuda", "gpus": gpus}))
        assert caught.value.field == "requires.device"
    pool.settings.broker.url = "redis://somewhere/0"  # workers of their own may come later
    assert pool.create(asked(requires={"device": "cuda", "gpus": 2}))[0].queue == "train-gpus"
