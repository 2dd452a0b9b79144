"""The API's views of candidates, from their rows; of one in full with its blocks, its ancestors and its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateState, JobEventKind
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.model_file import NUMBERS, formats_of
from edgefront.core.schemas.candidates import BlockView, CandidateDetails, CandidateView, DownloadView, TrainedView
from edgefront.core.schemas.predictions import PredictedView
from edgefront.core.search.pareto.baseline import Baseline
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, target_of
from edgefront.core.services.event_log import Entry
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.jobs.comparison import baseline_of, versus_baseline
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.stored import PROTOCOL, RowReader, described
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate


def candidate_view(candidate: Candidate, baseline: Baseline | None) -> CandidateView:
    """A candidate; compared with the target's baseline if it is measured and not a baseline itself.

    Rows were validated when they were written; validating thousands of them again would be slow. What has not even the
    form of an architecture or a prediction is left out, and the reason says so.
    """
    reader = RowReader()

    def parents() -> tuple[str, ...]:
        if not isinstance(candidate.parents, list) or not all(isinstance(id_, str) for id_ in candidate.parents):
            raise InvalidInput("parents are no identifiers", field="parents")
        return tuple(candidate.parents)

    return CandidateView.model_construct(
        **{name: getattr(candidate, name) for name in _AS_STORED},
        architecture=reader.read(lambda: described(candidate.architecture)) or {},
        predicted=reader.read(lambda: _predicted(candidate.predicted)),
        parents=reader.read(parents) or (),
        state=CandidateState(candidate.state),
        reason=reader.note(candidate.reason),
        versus_baseline=versus_baseline(candidate, baseline),
    )


_AS_STORED = tuple(
    CandidateView.model_fields.keys() - {"architecture", "predicted", "parents", "state", "versus_baseline", "reason"}
)


def predicted_of(stored: Document | None) -> Document:
    """A candidate's stored prediction; empty where that is nothing, or cannot be read."""
    return stored if isinstance(stored, dict) else {}


def _predicted(stored: Document | None) -> PredictedView | None:
    if stored is None:
        return None
    if unknown := stored.keys() - PredictedView.model_fields.keys():
        raise InvalidInput(f"predicted has {', '.join(sorted(unknown))}", field="predicted")
    return PredictedView.model_construct(**{**stored, "label": label_of(stored)})


def candidate_entry(candidate: Candidate) -> Entry:
    """An event with the candidate's state; its figures are read where they are."""
    data = {
        "id": candidate.id,
        "number": candidate.number,
        "role": candidate.role,
        "state": candidate.state,
        "reason": candidate.reason,
    }
    return Entry(JobEventKind.CANDIDATE, data, candidate.target_id)


def trained_views(trained: Sequence[Trained]) -> tuple[TrainedView, ...]:
    """What candidates scored on held-out text once they were trained."""
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
    """NotFound if there is none or it is another owner's."""
    candidate, job = candidate_of(session, principal, candidate_id)
    target = target_of(session, job, candidate.target_id)
    baseline = baseline_of(session, candidate.target_id)
    reader = RowReader()
    protocol = reader.read(lambda: PROTOCOL.read(target.protocol)) or MeasurementProtocol()
    architecture = reader.read(lambda: Architecture.parse(candidate.architecture))
    # Parents, then theirs; of each generation by their number.
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
    """What a description says; nothing of one that cannot be read."""
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
    """The source's, then its own, in the order of their `parameters`."""
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
    """Width inside, heads of queries, heads of keys and values."""
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
