"""API view of a frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.schemas.candidates import FrontierView, TrainedView
from edgefront.core.schemas.jobs import NO_LIMITS, Limits, ProxyTrust, Quality
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.search.pareto.options import OptionLimits
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.answers.candidates import candidate_view, document_of
from edgefront.core.services.jobs.answers.measured_models import option_of
from edgefront.core.services.jobs.comparison import as_baseline, starts_from_model, summary_of
from edgefront.core.services.jobs.frontier import point_of, points_of
from edgefront.core.services.jobs.progress import added_note
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.quality.expected import perplexity_of
from edgefront.core.services.quality.laws import readable_law_of
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.quality.trust import trained_of, trust_of
from edgefront.core.services.spaces import score_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, REFERENCE, RowReader
from edgefront.core.services.trainings.queries import frontier as frontier_of
from edgefront.core.store.tables import Candidate


def trained_views(trained: Sequence[Trained]) -> tuple[TrainedView, ...]:
    """Returns the views of perplexities that trained candidates reached on held-out text."""
    return tuple(
        TrainedView(
            candidate_id=score.candidate_id,
            training_id=score.training_id,
            dataset=score.dataset,
            split=score.split,
            recipe=score.recipe,
            perplexity=score.value,
            ranks=score.alike and not score.too_short,
        )
        for score in trained
    )


def frontier_view(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    limits: Limits = NO_LIMITS,
    *,
    by: Quality = "proxy",
    dataset: str | None = None,
) -> FrontierView:
    """Returns the frontier of one target (an id or name; None: the job's first), by rising decoder parameters.

    Points beyond `limits` are left out, but hypervolume and summary describe the whole frontier. With `by` perplexity,
    the frontier of the trained candidates is returned, evaluated on `dataset` or by default on the data set with most
    trained candidates. Raises `NotFound` if there is no such job or target.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    members = frontier_of(session, row.id)
    trained = [score for score in trained_of(session, row.id, dataset) if score.alike]
    request = JOB_REQUEST.read_or(job.request, None)
    epsilon = 0.0 if request is None else request.epsilon
    reader = RowReader()
    reference = reader.read(lambda: REFERENCE.validate_python(row.reference))
    points = _by_perplexity(session, trained, epsilon) if by == "perplexity" else members
    beside = candidate_queries.baselines(session, row.id)
    baseline = as_baseline(points_of(beside))
    shown = [point for point in points if _is_within(point, limits)]
    views = [candidate_view(point, baseline) for point in shown]
    within = OptionLimits(**LIMITS.read_or(row.limits, Limits()).model_dump() | limits.model_dump(exclude_none=True))
    return FrontierView(
        job_id=job.id,
        target_id=row.id,
        target=row.name,
        hypervolume=row.hypervolume,
        reference=reference,
        points=tuple(views),
        score="" if request is None else score_of(request.space),
        standings={view.id: within.standings(option_of(view, None, "", None, view.id)) for view in views},
        baseline=tuple(candidate_view(candidate, baseline) for candidate in beside),
        summary=summary_of(points_of(members), baseline, row, request),
        own_model=starts_from_model(request),
        note=reader.note("" if request is None else added_note(session, request, row)) or "",
        perplexity_of=perplexity_of(
            {document_of(point.predicted).get("law") for point in (*shown, *beside)},
            readable_law_of(session, job, request),
        ),
        epsilon=epsilon,
        proxy_trust=ProxyTrust() if request is None else trust_of(session, job, request, row),
        by=by,
        trained=trained_views(trained),
    )


def _by_perplexity(session: Session, trained: Sequence[Trained], epsilon: float) -> list[Candidate]:
    """Returns the trained candidates on the frontier of perplexity, latency and memory, by rising parameter count."""
    scores = {score.candidate_id: score.value for score in trained if score.joins_frontiers}
    candidates = [candidate for candidate in candidate_queries.by_ids(session, scores) if point_of(candidate)]
    rows = [
        (-math.log(scores[candidate.id]), candidate.latency_ms or 0.0, float(candidate.memory_bytes or 0))
        for candidate in candidates
    ]
    mask = Dominance(epsilon, logarithmic=True).frontier(rows, [candidate.digest for candidate in candidates])
    kept = [candidate for candidate, keep in zip(candidates, mask, strict=True) if keep]
    return sorted(kept, key=lambda candidate: (candidate.decoder_parameters, candidate.id))


def _is_within(candidate: Candidate, limits: Limits) -> bool:
    """Whether all limited figures of the candidate are measured and within the limits."""
    values = [(getattr(candidate, column.key), limit) for column, limit in candidate_queries.bounds(limits)]
    return all(value is not None and value <= limit for value, limit in values)
