"""How far a supernet's search is, over HTTP, for its owner only."""

from __future__ import annotations

from typing import Any

import pytest
from running_api import Service, problem

from edgefront.core.schemas.trainings import ProbabilitiesView
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.claims import Machine, RunReport
from edgefront.core.services.trainings.lifecycle import SupernetRequest

MACHINE = Machine("tester", slots=1, memory_bytes=1 << 40)


def row(sure: float) -> list[float]:
    return [round(sure, 4), round((1 - sure) / 2, 4), round((1 - sure) / 2, 4)]


def metric(step: int, seed: int, sure: float) -> dict[str, Any]:
    extra = {"seed": seed, "phase": "weights" if step <= 2 else "tuning", "temperature": 5.0 / step, "pattern": "(sf)"}
    return {
        "step": step,
        "tokens": 64 * step,
        "seconds": 0.5 * step,
        "loss": 3.0,
        "extra": {**extra, "probabilities": [row(sure), row(1 - sure)]},
    }


@pytest.fixture
def supernet(service: Service) -> str:
    """A supernet's training of bob's that waits."""
    with service.database.write() as session:
        training = trainings.create_supernet(
            session,
            SupernetRequest("bob", "a search", "tiny", "quick", seed=3),
            service.settings,
            service.database.now(session),
        )
        return training.id


def report(service: Service, metrics: list[dict[str, Any]]) -> None:
    with service.database.write() as session:
        now = service.database.now(session)
        claim = training_claims.claim(session, MACHINE, "cpu", now, 60.0)
        assert claim is not None
        said = RunReport("training", step=metrics[-1]["step"], steps=20, metrics=metrics)
        training_claims.report(session, claim.training_id, claim.fence, said, now, 60.0)


def test_probabilities_over_the_steps(service: Service, supernet: str) -> None:
    client, path = service.client("user", "bob"), f"/v1/trainings/{supernet}/probabilities"
    empty = ProbabilitiesView.model_validate_json(client.get(path).content)
    assert (empty.training_id, empty.choices) == (supernet, ("attention", "feed_forward", "identity"))
    assert empty.searches == ()
    seeds = [metric(step, 3 + step // 11, 0.5 + step / 50) for step in range(1, 16)]
    report(service, [{"step": 0, "tokens": 0, "seconds": 0.0}, *seeds])
    view = ProbabilitiesView.model_validate_json(client.get(path).content)
    assert [(search.seed, search.pattern, search.phase) for search in view.searches] == [
        (3, "(sf)", "ended"),
        (4, "(sf)", "tuning"),
    ]
    assert [record.step for record in view.searches[0].records] == list(range(1, 11))
    assert view.searches[1].records[-1].probabilities[0] == tuple(row(0.8))
    few = ProbabilitiesView.model_validate_json(client.get(path, params={"records": 3}).content)
    assert [record.step for record in few.searches[0].records] == [1, 5, 10]
    problem(client.get(path, params={"records": 0}), 422)
