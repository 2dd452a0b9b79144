"""Genes and objectives of a target's candidates, and how much each gene decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from edgefront.core.pareto.baseline import in_words
from edgefront.core.prediction.importance import MIN_CANDIDATES, Importance, importance
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.spaces.columns import Column, gene_columns
from edgefront.core.states import CandidateState
from edgefront.core.units import MB
from edgefront.core.wire.genes import GenesView, GeneView, ImportanceView, ObjectiveName, ObjectiveView
from edgefront.core.wire.jobs import JobRequest

MAX_CANDIDATES = 1000
"""Candidates that are given, beside the frontier."""
METHOD = (
    "Importance is that of permutation in a random forest which learnt {objectives} from the genes of {count} "
    "candidates (Breiman 2001), judged on those left out. Genes that vary together share it."
)


@dataclass(frozen=True)
class Known:
    """What was read of a target."""

    job_id: str
    target_id: str
    target: str
    proxy: str
    request: JobRequest | None
    """It is None where it cannot be read."""
    measured: int
    candidates: Sequence[rows.MeasuredGenome]

    def genes(self) -> GenesView:
        """Computed without a session, in up to about a second."""
        columns = [] if self.request is None else self._columns(self.request)
        objectives = self._objectives()
        judged = [
            objective for objective in objectives if None not in objective.values and len(set(objective.values)) > 1
        ]
        importances = self._importance(columns, judged)
        return GenesView(
            job_id=self.job_id,
            target_id=self.target_id,
            target=self.target,
            measured=self.measured,
            ids=tuple(candidate.id for candidate in self.candidates),
            numbers=tuple(candidate.number for candidate in self.candidates),
            on_frontier=tuple(candidate.on_frontier for candidate in self.candidates),
            out_of_bounds=tuple(candidate.state == CandidateState.OUT_OF_BOUNDS for candidate in self.candidates),
            objectives=tuple(_explained(objective, judged, importances) for objective in objectives),
            genes=tuple(_gene(column, at, judged, importances) for at, column in enumerate(columns)),
            note=self._note(judged, importances),
        )

    def _columns(self, request: JobRequest) -> list[Column]:
        return (
            gene_columns(space_of(request.space), [candidate.genome for candidate in self.candidates])
            if self.candidates
            else []
        )

    def _objectives(self) -> list[ObjectiveView]:
        quality = _objective("perplexity", "predicted perplexity", "", self.candidates, _perplexity)
        if None in quality.values:
            named = in_words(self.proxy)
            quality = _objective(
                "proxy", named, "", self.candidates, lambda candidate: candidate.proxy, low_is_better=False
            )
        objectives = [
            quality,
            _objective("latency", "latency", "ms", self.candidates, lambda candidate: candidate.latency_ms),
            _objective("memory", "peak memory", "MB", self.candidates, lambda candidate: candidate.memory_bytes / MB),
            _objective("first_token", "first token", "ms", self.candidates, lambda candidate: candidate.first_token_ms),
            _objective("token", "further token", "ms", self.candidates, lambda candidate: candidate.token_ms),
        ]
        latency = objectives[1]  # of a generation it is one of the other times, or all of them
        objectives = [
            objective for objective in objectives if objective is latency or objective.values != latency.values
        ]
        return [objective for objective in objectives if any(value is not None for value in objective.values)]

    def _importance(self, columns: Sequence[Column], judged: Sequence[ObjectiveView]) -> Importance | None:
        if not columns or not judged:
            return None
        genes = np.array([column.values for column in columns], dtype=np.float64).T
        return importance(genes, np.array([objective.values for objective in judged], dtype=np.float64).T)

    def _note(self, judged: Sequence[ObjectiveView], importances: Importance | None) -> str:
        return " ".join(text for text in (self._predicted(), self._judged(judged, importances)) if text)

    def _predicted(self) -> str:
        """What the predicted perplexities are of."""
        labels = dict.fromkeys(text for each in self.candidates if (text := label_of(each.predicted)))
        return f"Predicted perplexity: {' or '.join(labels)}." if labels else ""

    def _judged(self, judged: Sequence[ObjectiveView], importances: Importance | None) -> str:
        if importances is not None:
            return METHOD.format(
                objectives=_listed([objective.title for objective in judged]), count=len(self.candidates)
            )
        if len(self.candidates) < MIN_CANDIDATES:
            return f"How much each gene decides is judged from {MIN_CANDIDATES} measured candidates on."
        return "The candidates differ in no gene." if self.request else "The job's request cannot be read."


def read(session: Session, principal: Principal, job_id: str, target: str | None = None) -> Known:
    """What is known of a target (by id or name; None: the job's first). NotFound if there is no such job or target."""
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    measured, genomes = rows.measured_genomes(session, row.id, MAX_CANDIDATES)
    request = JOB_REQUEST.read_or(job.request, None)
    return Known(
        job.id, row.id, row.name, row.proxy, request, measured, [candidate for candidate in genomes if candidate.genome]
    )


def _objective(
    name: ObjectiveName,
    title: str,
    unit: str,
    candidates: Sequence[rows.MeasuredGenome],
    read: Callable[[rows.MeasuredGenome], float | None],
    *,
    low_is_better: bool = True,
) -> ObjectiveView:
    values = tuple(read(candidate) for candidate in candidates)
    return ObjectiveView(name=name, title=title, unit=unit, values=values, low_is_better=low_is_better)


def _perplexity(candidate: rows.MeasuredGenome) -> float | None:
    return (candidate.predicted or {}).get("perplexity")


def _explained(
    objective: ObjectiveView, judged: Sequence[ObjectiveView], importances: Importance | None
) -> ObjectiveView:
    if importances is None or objective not in judged:
        return objective
    return objective.model_copy(update={"explained": float(importances.explained[judged.index(objective)])})


def _gene(column: Column, at: int, judged: Sequence[ObjectiveView], importances: Importance | None) -> GeneView:
    views = () if importances is None else tuple(
        ImportanceView(
            objective=objective.name,
            share=float(importances.shares[at, to]),
            correlation=float(importances.correlations[at, to]),
        )
        for to, objective in enumerate(judged)
    )  # fmt: skip
    return GeneView(name=column.name, title=column.title, values=column.values, words=column.words, importance=views)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
