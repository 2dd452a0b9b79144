"""API views of a frontier, and of one candidate with all details: blocks, ancestors and files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.model_file import NUMBERS, formats_of
from edgefront.core.schemas.candidates import BlockView, CandidateDetails, DownloadView, FrontierView, TrainedView
from edgefront.core.schemas.jobs import NO_LIMITS, Limits, ProxyTrust, Quality
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, job_of, target_of
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.jobs.candidates import candidate_view, predicted_of
from edgefront.core.services.jobs.comparison import as_baseline, baseline_of, starts_from_model, summary_of
from edgefront.core.services.jobs.frontier import point_of, points_of
from edgefront.core.services.jobs.progress import added_note
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.quality.expected import perplexity_of
from edgefront.core.services.quality.laws import readable_law_of
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.quality.trust import trained_of, trust_of
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL, REFERENCE, RowReader
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
        )
        for score in trained
    )


ANCESTORS = 24


def candidate_details(session: Session, principal: Principal, candidate_id: str) -> CandidateDetails:
    """Returns a candidate with all details. Raises `NotFound` for an unknown candidate or another owner's candidate."""
    candidate, job = candidate_of(session, principal, candidate_id)
    target = target_of(session, job, candidate.target_id)
    baseline = baseline_of(session, candidate.target_id)
    reader = RowReader()
    protocol = reader.read(lambda: PROTOCOL.read(target.protocol)) or MeasurementProtocol()
    architecture = reader.read(lambda: Architecture.parse(candidate.architecture))
    # Parents first, then grandparents and so on, each generation in the order of candidate numbers.
    ancestors: dict[str, Candidate] = {}
    parents = list(candidate.parents)
    while parents and len(ancestors) < ANCESTORS:
        generation = candidate_queries.by_ids(session, parents)[: ANCESTORS - len(ancestors)]
        ancestors |= {ancestor.id: ancestor for ancestor in generation}
        parents = [parent for ancestor in generation for parent in ancestor.parents if parent not in ancestors]
    view = candidate_view(candidate, baseline)
    return CandidateDetails(
        candidate=view.model_copy(update={"reason": reader.note(view.reason)}),
        job_name=job.name,
        target=target.name,
        device=device_queries.name_of(session, target.device_key),
        protocol=protocol,
        ancestors=tuple(candidate_view(ancestor, baseline) for ancestor in ancestors.values()),
        **_facts(architecture),
    )


def _facts(architecture: Architecture | None) -> dict[str, Any]:
    """Returns the fields of `CandidateDetails` that follow from an architecture; empty fields for None (unreadable)."""
    if architecture is None:
        return {"d_model": 0, "blocks": (), "position_parameters": 0, "embedding_parameters": 0, "downloads": ()}
    counted = count(architecture)
    return {
        "d_model": architecture.d_model,
        "blocks": tuple(_blocks(architecture, iter(Shapes.of([architecture]).parameters[0].tolist()))),
        "position_parameters": counted.position,
        "embedding_parameters": counted.embedding,
        "downloads": tuple(
            DownloadView(format=format_, numbers=NUMBERS.get(format_, ("float32",)))
            for format_ in formats_of(architecture)
        ),
    }


def _blocks(architecture: Architecture, parameters: Iterator[int]) -> Iterator[BlockView]:
    """Yields views of the encoder's, then the decoder's blocks. `parameters` has their sizes in the same order."""
    if architecture.source is not None:
        for view in _blocks(architecture.source, parameters):
            yield view.model_copy(update={"of_source": True})
    for block in architecture.blocks:
        width, heads, kv_heads = _sizes(block, architecture)
        yield BlockView(
            kind=block.kind,
            width=width,
            heads=heads,
            kv_heads=None if kv_heads == heads else kv_heads,
            notes=tuple(_notes(block)),
            parameters=next(parameters),
        )


def _sizes(block: Block, architecture: Architecture) -> tuple[int, int | None, int | None]:
    """Returns a block's inner width, number of query heads, and number of key and value heads."""
    if isinstance(block, Attention):
        return block.n_head * architecture.d_head(block), block.n_head, block.kv_heads
    if isinstance(block, FeedForward):
        return block.d_inner, None, None
    if isinstance(block, Srupp):
        heads = None if block.attends == "none" else block.n_head
        return block.d_attn, heads, heads
    if isinstance(block, Sru):
        return block.d_proj or architecture.d_model, None, None
    return architecture.d_model, None, None


def _notes(block: Block) -> Iterator[str]:
    attends = getattr(block, "attends", "self")
    if attends == "none":
        yield "without attention"
    elif attends != "self":
        yield f"attends to {'the source' if attends == 'source' else 'itself and the source'}"
    if isinstance(block, Attention):
        if block.window is not None:
            yield f"window of {block.window} tokens"
        if block.qk_norm:
            yield "norms of queries and keys" if block.qk_norm is True else "norms of all queries and all keys"
        if not block.rope:
            yield "without positions"
        if block.theta is not None:
            yield f"rotary base {block.theta}"
        if block.scale is not None:
            yield f"scores times {block.scale}"
    if isinstance(block, FeedForward):
        if block.gated:
            yield "gated"
        if block.parallel is not None:
            yield "beside the attention before it"
    if isinstance(block, ShortConv):
        yield f"kernel of {block.kernel}"


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
    trained = trained_of(session, row.id, dataset)
    request = JOB_REQUEST.read_or(job.request, None)
    epsilon = 0.0 if request is None else request.epsilon
    reader = RowReader()
    reference = reader.read(lambda: REFERENCE.validate_python(row.reference))
    points = _by_perplexity(session, trained, epsilon) if by == "perplexity" else members
    beside = candidate_queries.baselines(session, row.id)
    baseline = as_baseline(points_of(beside))
    shown = [point for point in points if _is_within(point, limits)]
    return FrontierView(
        job_id=job.id,
        target_id=row.id,
        target=row.name,
        hypervolume=row.hypervolume,
        reference=reference,
        points=tuple(candidate_view(point, baseline) for point in shown),
        baseline=tuple(candidate_view(candidate, baseline) for candidate in beside),
        summary=summary_of(points_of(members), baseline, row, request),
        own_model=starts_from_model(request),
        note=reader.note("" if request is None else added_note(session, request, row)) or "",
        perplexity_of=perplexity_of(
            {predicted_of(point.predicted).get("law") for point in (*shown, *beside)},
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
