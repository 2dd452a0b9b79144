"""Trainings of a job's candidates that end with a perplexity: stored and ended by the services, nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulated_pool import Pool, asked
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.shipped import law_named
from edgefront.core.services.quality import refits
from edgefront.core.services.tasks import REFIT
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import Outcome, Report, Score
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.tables import Candidate, LawVersion

BASE = "own-data-gpt2"
TRUTH = "lts-gpt2-wikitext103"
"""The law by which trainings come out."""
DIGEST = "d" * 64


def perplexity_of(architecture: Architecture) -> float:
    """What these trainings come to: the base law's perplexity to a power, and a share of it for wide models."""
    predicted = law_named(TRUTH).predict(Shapes.of([architecture])).log_perplexity[0]
    return math.exp(1.0 + 1.1 * float(predicted) + 0.02 * math.sin(architecture.d_model))


class Trainings:
    """Trains candidates of jobs, in short words."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.database = pool, pool.database

    def candidates(self, job_id: str, count: int) -> list[Candidate]:
        """So many candidates of different architectures, in the order of proposal."""
        with self.database.read() as session:
            query = select(Candidate).where(Candidate.job_id == job_id).order_by(Candidate.number)
            return list({candidate.digest: candidate for candidate in session.scalars(query)}.values())[:count]

    def end(
        self, candidate: Candidate, perplexity: float | None = None, *, ending: Any = "done", **changes: Any
    ) -> str:
        """A training of the candidate that has ended; returns its id."""
        value = perplexity_of(Architecture.model_validate(candidate.architecture)) if perplexity is None else perplexity
        (made,) = self.pool.create(asked(architecture=None, candidate=candidate.id, **changes))
        claim = self.pool.claim()
        assert claim is not None
        with self.database.write() as session:
            now = self.database.now(session)
            training_claims.start(session, claim.training_id, claim.fence, None, DIGEST, now, 60)
        scores = [Score("valid", "perplexity", value), Score("test", "perplexity", 1.1 * value)]
        with self.database.write() as session:
            now = self.database.now(session)
            outcome = Outcome(ending, reason="", result={}, scores=scores if ending == "done" else ())
            training_claims.finish(session, claim.training_id, claim.fence, Report(), outcome, now)
        return made.id

    def end_all(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            self.end(candidate)

    def learn(self, service: Service) -> None:
        """Does the tasks that wait, as a worker would."""
        waiting = [arguments["comparability_key"] for task, arguments in service.tasks.others if task == REFIT]
        service.tasks.others[:] = [other for other in service.tasks.others if other[0] != REFIT]
        for key in dict.fromkeys(waiting):
            refits.refit(self.database, key)

    def versions(self) -> list[LawVersion]:
        with self.database.read() as session:
            return list(session.scalars(select(LawVersion).order_by(LawVersion.name, LawVersion.version)))
