"""Requests for parts of a trained model, and with a teacher: what they need, and what the card says of their parent."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_pool import ARCHITECTURE, Pool, asked
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import FinishedRun, ReportedScore, RunReport
from edgefront.core.services.trainings.views import card_facts
from edgefront.core.store.tables import Evaluation, Training
from edgefront.core.training.evaluation.model_card import forbids_derivatives
from edgefront.core.training.run_folder import with_vocabulary

CHILD = ARCHITECTURE | {"blocks": [{"kind": "attention", "n_head": 1, "d_head": 8}]}
PLAIN: dict[str, Any] = {"overrides": {"steps": 3, "schedule": {"warmup": 0}}}


def done(pool: Pool, **changes: Any) -> str:
    """A training that has ended."""
    (training,) = pool.create(asked(**changes))
    claim = pool.claimed()
    trained = with_vocabulary(Architecture.parse(changes.get("architecture", ARCHITECTURE)), 28)
    pool.change(training.id, trained=dict(trained.canonical))
    scores = [ReportedScore("test", "perplexity", 9.5)]
    with pool.database.write() as session:
        outcome = FinishedRun("done", result={"steps": 3}, scores=scores)  # type: ignore[arg-type]
        now = pool.database.now(session)
        training_claims.finish(session, claim.training_id, claim.fence, RunReport(), outcome, now)
    return training.id


def facts(pool: Pool, training_id: str) -> dict[str, Any]:
    with pool.database.read() as session:
        training = session.get(Training, training_id)
        assert training is not None
        return card_facts(session, training, None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"inherit": True}, r"start is missing \(inherit uses a submodel of its model\)"),
        ({"recipe": "distil", **PLAIN}, r"start is missing \(recipe distil: its model teaches\)"),
        ({"overrides": {"distil": {}}}, r"start is missing \(recipe quick: its model teaches\)"),
    ],
)
def test_without_a_start_there_is_no_whole_and_no_teacher(pool: Pool, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        pool.submit(**changes)
    assert caught.value.field == "start"


@pytest.mark.parametrize("licence", ["cc-by-nd-4.0", "CC-BY-NC-ND-4.0"])
def test_a_licence_that_forbids_derivatives_is_refused_by_name(pool: Pool, licence: str) -> None:
    parent = done(pool, licence=licence)
    for changes in ({"inherit": True}, {"recipe": "distil", **PLAIN}):
        with pytest.raises(InvalidInput, match=f"is under {licence}, which forbids derivatives") as caught:
            pool.submit(start=parent, **changes)
        assert caught.value.field == "start"
    pool.submit(start=parent)  # one's own training goes on


def test_which_licences_forbid_derivatives() -> None:
    assert [forbids_derivatives(name) for name in ("cc-by-nd-4.0", "cc-by-nc-nd-3.0")] == [True, True]
    assert not any(forbids_derivatives(name) for name in ("apache-2.0", "cc-by-sa-4.0", "openrail", "bsd-2-clause"))


def test_the_parent_s_licence_is_carried_over_unless_another_is_stated(pool: Pool) -> None:
    parent = done(pool, name="big", licence="apache-2.0")
    child = done(pool, architecture=CHILD, start=parent, inherit=True, recipe="distil", **PLAIN)
    named = {"training": parent, "name": "big"}
    assert facts(pool, child) == {
        "name": pool.get(child).name,
        "training": child,
        "start": {"training": parent},
        "parent": {**named, "licence": "apache-2.0"},
        "teacher": named,
        "licence": "apache-2.0",
    }
    assert pool.get(child).licence == "apache-2.0"
    grandchild = pool.submit(architecture=CHILD, start=child, inherit=True)
    assert facts(pool, grandchild)["licence"] == facts(pool, grandchild)["parent"]["licence"] == "apache-2.0"
    other = pool.submit(architecture=CHILD, start=parent, inherit=True, licence="mit")
    assert (facts(pool, other)["licence"], facts(pool, other)["parent"]["licence"]) == ("mit", "apache-2.0")
    alike = pool.submit(start=parent)
    assert not {"parent", "teacher"} & facts(pool, alike).keys()


def test_parts_are_not_compared_with_what_begins_with_the_whole(pool: Pool) -> None:
    parent = done(pool)
    for inherit in (False, True):
        done(pool, start=parent, inherit=inherit)
    with pool.database.read() as session:
        rows = session.scalars(select(Evaluation).where(Evaluation.training_id != parent)).all()
        assert len({row.details["comparability_key"] for row in rows}) == 2
