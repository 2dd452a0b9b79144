"""API view of one candidate with all details: blocks, ancestors and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.cost.costs import BYTES, CostOptions, costs
from edgefront.core.architectures.cost.passes import Pass
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.model_file import LOGITS, NUMBERS, ModelFormat, formats_of
from edgefront.core.schemas.candidates import BlockView, CandidateDetails, DownloadView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, target_of
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.jobs.answers.candidates import candidate_view
from edgefront.core.services.jobs.comparison import baseline_of
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.stored import PROTOCOL, RowReader
from edgefront.core.store.tables import Candidate

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
        **_facts(architecture, protocol),
    )


def _facts(architecture: Architecture | None, protocol: MeasurementProtocol) -> dict[str, Any]:
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
            download for format_ in formats_of(architecture) for download in _downloads(architecture, format_, protocol)
        ),
    }


def _downloads(
    architecture: Architecture, format_: ModelFormat, protocol: MeasurementProtocol
) -> Iterator[DownloadView]:
    """Yields a view of a format's file for each choice of logits, the protocol's choice first."""
    numbers = NUMBERS.get(format_, ("float32",))
    if len(LOGITS.get(format_, ())) < 2:
        yield DownloadView(format=format_, numbers=numbers)
        return
    for logits in dict.fromkeys((protocol.logits, "last", "all")):
        length, batch = protocol.sequence_length, protocol.batch
        pass_ = Pass(batch, length, protocol.memory_length if format_ == "onnx-segment" else 0, logits=logits)
        counted = costs(architecture, CostOptions(length, batch, logits=logits, memory_length=pass_.memory))
        yield DownloadView(
            format=format_,
            numbers=numbers,
            logits=logits,
            flops=counted.flops,
            logits_bytes=pass_.positions * architecture.embedding.vocab_size * BYTES["float32"],
        )


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
