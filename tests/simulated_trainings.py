"""Trainings of a job's candidates that end with a perplexity: stored and ended by the services, nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulated_pool import Pool, asked
from sqlalchemy import delete, select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.states import WorkKind
from edgefront.core.quality.shipped import law_named
from edgefront.core.services.quality import learning
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import FinishedRun, ReportedScore, RunReport
from edgefront.core.store.tables import Candidate, OwnerLaw, WorkItem

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

    def end(self, model: Candidate | Architecture, perplexity: float | None = None, **changes: Any) -> str:
        """A training that has ended, with (tokens, validation loss) on its way as `curve`; returns its id. `read`: its
        steps, so that it may be too short.
        """
        if isinstance(model, Candidate):
            architecture = Architecture.model_validate(model.architecture)
            subject: dict[str, Any] = {"architecture": None, "candidate": model.id}
        else:
            architecture, subject = model, {"architecture": model.canonical}
        return self._end(perplexity_of(architecture) if perplexity is None else perplexity, **subject, **changes)

    def _end(
        self,
        value: float,
        *,
        ending: Any = "done",
        curve: Sequence[tuple[int, float]] = (),
        read: int = 0,
        **changes: Any,
    ) -> str:
        (made,) = self.pool.create(asked(**changes))
        claim = self.pool.claim()
        assert claim is not None
        with self.database.write() as session:
            now = self.database.now(session)
            training_claims.start(session, claim.training_id, claim.fence, None, DIGEST, now, 60)
        scores = [ReportedScore("valid", "perplexity", value), ReportedScore("test", "perplexity", 1.1 * value)]
        metrics = tuple(
            {"step": step, "tokens": tokens, "seconds": float(step), "valid_loss": loss}
            for step, (tokens, loss) in enumerate(curve, 1)
        )
        report = RunReport(metrics=metrics)
        if read:
            report = RunReport(metrics=metrics, state="training", step=read, steps=read)
        with self.database.write() as session:
            now = self.database.now(session)
            outcome = FinishedRun(ending, reason="", result={}, scores=scores if ending == "done" else ())
            training_claims.finish(session, claim.training_id, claim.fence, report, outcome, now)
        return made.id

    def end_all(self, models: Sequence[Candidate | Architecture]) -> None:
        for model in models:
            self.end(model)

    def learn(self) -> None:
        """Does the learning that waits, as a worker would."""
        with self.database.write() as session:
            waiting = list(session.scalars(select(WorkItem.subject).where(WorkItem.kind == WorkKind.LEARN)))
            session.execute(delete(WorkItem).where(WorkItem.kind == WorkKind.LEARN))
        for subject in waiting:
            learning.learn(self.database, subject)

    def laws(self) -> list[OwnerLaw]:
        with self.database.read() as session:
            return list(session.scalars(select(OwnerLaw).order_by(OwnerLaw.owner, OwnerLaw.name)))
