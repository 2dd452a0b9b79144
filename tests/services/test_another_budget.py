"""What is recommended for another training than the job's: the best of all that were measured, however many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from job_rows import evaluation
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import Service
from sqlalchemy import select, update

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.space import Genome
from edgefront.core.quality.shipped import law_named
from edgefront.core.schemas.jobs import JobRequest, JobView, Limits, PredictionBudget
from edgefront.core.search.population_shapes import PopulationShapes
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.quality.expected import perplexities
from edgefront.core.store.tables import Candidate

pytestmark = pytest.mark.slow

OWN, OTHER = 10**10, 10**9
LLAMA = space("llama")
LAW = law_named("llama-dolma-cooled")


MOST = 100
"""Models that an answer compares, for these tests."""


@pytest.fixture(autouse=True)
def few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "MAX_CANDIDATES", MOST)


@pytest.fixture
def job(service: Service) -> JobView:
    request = {
        "space": {"name": "llama"},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"name": "random"},
        "proxy": "quality_law",
        "proxy_settings": {"law": "llama-dolma-cooled"},
        "train_tokens": OWN,
        "epsilon": 0.0,
        "budget": {"candidates": 3, "refinement": 0},
        "seed": 7,
    }
    return service.finish(SimulatedAgent(service.database, by_work), JobRequest.model_validate(request))


def overtaken() -> tuple[Genome, list[Genome]]:
    """A model that is the best of these after few tokens, and more others than are compared, each better after many."""
    random = np.random.default_rng(0)
    drawn = list({LLAMA.architecture(genome).digest: genome for genome in LLAMA.samples(4000, random)}.values())
    shapes = PopulationShapes(LLAMA).of_genomes(drawn)
    own, other = (LAW.at_tokens(float(tokens)).expected(shapes) for tokens in (OWN, OTHER))
    passed = (own[None, :] < own[:, None]) & (other[None, :] > other[:, None])
    best = int(passed.sum(axis=1).argmax())
    others = [drawn[place] for place in np.flatnonzero(passed[best])]
    assert len(others) > MOST
    return drawn[best], others


def measure(service: Service, job: JobView, genomes: list[Genome], *, is_described: bool) -> list[str]:
    """Stores these models as the only measured ones of the job's search; their ids. Else they have no genome."""
    architectures = [LLAMA.architecture(genome) for genome in genomes]
    predicted = perplexities(LAW.at_tokens(float(OWN)), architectures)
    counts = Shapes.of(architectures).decoder_parameters.tolist()
    with service.database.write() as session:
        model = session.scalars(select(Candidate).where(Candidate.role == "search").order_by(Candidate.number)).first()
        assert model is not None
        shared = {column.key: getattr(model, column.key) for column in Candidate.__table__.columns}
        # The stock models, too: one of them may be the answer, where no other is better for sure.
        session.execute(update(Candidate).values(state="failed", latency_ms=None))
        for number, (genome, architecture, quality) in enumerate(zip(genomes, architectures, predicted, strict=True)):
            own: dict[str, Any] = {
                "id": f"cnd_{number:04}",
                "number": 1000 + number,
                "genome": genome if is_described else {},
                "architecture": architecture.canonical,
                "digest": architecture.digest,
                "decoder_parameters": counts[number],
                "predicted": quality,
                "predicted_perplexity": quality["perplexity"],
                "proxy": -float(np.log(quality["perplexity"])),
                "latency_ms": 5.0 + number / 1000,
            }
            session.add(Candidate(**shared | own))
    return [f"cnd_{number:04}" for number in range(len(genomes))]


@pytest.mark.parametrize("is_described", [True, False])
def test_the_best_for_another_training_is_found_behind_any_number_of_others(
    service: Service, job: JobView, is_described: bool
) -> None:
    best, others = overtaken()
    *_, last = measure(service, job, [*others, best], is_described=is_described)

    def answer(tokens: int | None, **limits: float) -> str | None:
        view = recommendation.answer(
            service.database,
            service.user,
            job.id,
            limits=Limits(**limits),
            budget=PredictionBudget(train_tokens=tokens),
        )
        return None if view.recommended is None else view.recommended.id

    assert answer(OTHER) == last
    assert answer(None) != last
    assert answer(None) == answer(OWN)
    assert answer(OTHER, latency_ms=5.0 + (len(others) - 0.5) / 1000) not in (last, None)


def test_trained_models_are_compared_however_many_are_predicted_to_be_better(service: Service, job: JobView) -> None:
    best, others = overtaken()
    ids = measure(service, job, [*others, best], is_described=True)
    first = recommendation.answer(service.database, service.user, job.id).recommended
    assert first is not None
    with service.database.write() as session:
        digests = {row.id: row.digest for row in session.scalars(select(Candidate).where(Candidate.id.in_(ids)))}
        for id_, perplexity in ((first.id, 30.0), (ids[-1], 20.0)):
            session.add(evaluation(digests[id_], perplexity, first.created_at))
    view = recommendation.answer(service.database, service.user, job.id)
    assert view.by == "trained"
    assert view.recommended is not None
    assert view.recommended.id == ids[-1]
