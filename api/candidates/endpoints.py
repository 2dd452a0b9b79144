"""`/v1/jobs/{id}/candidates`, `/v1/jobs/{id}/frontier`, `/v1/candidates/{id}`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from edgefront.api.candidates import tables
from edgefront.api.context import Context
from edgefront.api.docs import examples
from edgefront.api.docs.openapi import answer, errors, kept
from edgefront.api.http.auth import Here, Person
from edgefront.api.http.parameters import (
    CandidateId,
    Cursor,
    JobId,
    LatencyBound,
    MemoryBound,
    TargetName,
)
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import candidates, frontier
from edgefront.core.services.jobs.candidates import SORTABLE, CandidateFilter
from edgefront.core.states import CandidateState
from edgefront.core.wire.jobs import (
    CandidatePage,
    CandidateView,
    FrontierView,
    LaunchView,
    Quality,
)

router = APIRouter(prefix="/v1", tags=["candidates"])

Number = Annotated[int | None, Query(ge=0, le=1 << 53)]
_BINARY = {"type": "string", "format": "binary"}


async def _filter(
    target: TargetName = None,
    state: CandidateState | None = None,
    role: Literal["baseline", "search"] | None = None,
    on_frontier: Annotated[bool | None, Query(description="Only members of the frontier, or only the others")] = None,
    generation: Annotated[int | None, Query(ge=-1, le=1 << 30, description="-1: baselines")] = None,
    max_latency_ms: LatencyBound = None,
    max_memory_mb: MemoryBound = None,
    min_decoder_parameters: Number = None,
    max_decoder_parameters: Number = None,
) -> CandidateFilter:
    return CandidateFilter(
        target=target,
        state=state,
        role=role,
        on_frontier=on_frontier,
        generation=generation,
        max_latency_ms=max_latency_ms,
        max_memory_mb=max_memory_mb,
        min_decoder_parameters=min_decoder_parameters,
        max_decoder_parameters=max_decoder_parameters,
    )


Filter = Annotated[CandidateFilter, Depends(_filter)]
Sort = Annotated[
    str,
    Query(
        pattern=f"^-?({'|'.join(SORTABLE)})$",
        description="A column, with `-` before it for descending order; unmeasured candidates always come last",
        examples=["-proxy"],
    ),
]


@router.get(
    "/jobs/{job_id}/candidates",
    operation_id="list_candidates",
    summary="Candidates of a job: filtered, sorted, paged or exported",
    response_model=CandidatePage,
    responses={
        200: {
            "description": "A page, or with format=csv or parquet all of them as a file",
            "content": {
                "application/json": {"example": kept(examples.CANDIDATE_PAGE)},
                "text/csv": {"schema": {"type": "string"}, "example": "id,number,state\r\ncnd_01,17,measured\r\n"},
                tables.PARQUET: {"schema": _BINARY, "example": "PAR1..."},
            },
        },
        **errors(404),
    },
)
async def list_candidates(
    job_id: JobId,
    person: Person,
    here: Here,
    filters: Filter,
    sort: Sort = "number",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    format: Annotated[  # noqa: A002  (the name on the wire)
        Literal["json", "csv", "parquet"], Query(description="csv and parquet contain every candidate, without pages")
    ] = "json",
) -> Any:
    """The filters are combined by and, as in "measured, on the frontier, under 50 ms and 300 MB"."""
    if format == "json":
        return await run_in_threadpool(_page, here, person, job_id, filters, sort, cursor, limit)
    rows = partial(candidates.export_rows, principal=person, job_id=job_id, filters=filters, sort=sort)
    write = partial(tables.write_export, here.database, rows, format)
    # Written whole before it is sent: a slow reader must not hold a database connection.
    file = await anyio.to_thread.run_sync(write, limiter=here.slow)
    return StreamingResponse(
        tables.chunks(file),
        media_type=tables.MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="{job_id}-candidates.{format}"'},
    )


def _page(
    here: Context, person: Principal, job_id: str, filters: CandidateFilter, sort: str, cursor: str | None, limit: int
) -> CandidatePage:
    with here.database.read() as session:
        return candidates.list_candidates(session, person, job_id, filters, sort, cursor, limit)


@router.get(
    "/jobs/{job_id}/frontier",
    operation_id="get_frontier",
    summary="The frontier of a target",
    response_model=FrontierView,
    responses={
        200: {
            "description": "The frontier with its baseline, by rising decoder parameters",
            "content": {
                "application/json": {"example": kept(examples.FRONTIER)},
                "text/csv": {"schema": {"type": "string"}, "example": "id,role,latency_ms\r\ncnd_01,search,12.4\r\n"},
            },
        },
        **errors(404),
    },
)
def get_frontier(
    job_id: JobId,
    person: Person,
    here: Here,
    target: TargetName = None,
    max_latency_ms: LatencyBound = None,
    max_memory_mb: MemoryBound = None,
    by: Annotated[
        Quality, Query(description="The measure of quality: the proxy, or the perplexity of trained models")
    ] = "proxy",
    dataset: Annotated[
        str | None,
        Query(
            max_length=200, description="Data set of the trainings. Default: the one with the most trained candidates"
        ),
    ] = None,
    format: Literal["json", "csv"] = "json",  # noqa: A002
) -> Any:
    """Without `target`, that of the job's first. The limits filter the points ("the best under 50 ms and 300 MB")."""
    with here.database.read() as session:
        view = frontier.frontier_view(
            session,
            person,
            job_id,
            target,
            max_latency_ms=max_latency_ms,
            max_memory_mb=max_memory_mb,
            by=by,
            dataset=dataset,
        )
    if format == "json":
        return view
    return Response(
        tables.frontier_csv(view),
        media_type=tables.MEDIA_TYPES["csv"],
        headers={"Content-Disposition": f'attachment; filename="{view.target_id}-frontier.csv"'},
    )


@router.get(
    "/candidates/{candidate_id}",
    operation_id="get_candidate",
    summary="One candidate",
    responses={**answer(examples.CANDIDATE), **errors(404)},
)
def get_candidate(candidate_id: CandidateId, person: Person, here: Here) -> CandidateView:
    with here.database.read() as session:
        return candidates.get_candidate(session, person, candidate_id)


@router.get(
    "/candidates/{candidate_id}/launches",
    operation_id="list_launches",
    summary="The raw launches behind a candidate's numbers",
    responses={**answer(examples.LAUNCHES), **errors(404)},
)
def list_launches(candidate_id: CandidateId, person: Person, here: Here) -> list[LaunchView]:
    """Samples in the order they were taken, memory by parts, and the environment of each launch."""
    with here.database.read() as session:
        return candidates.list_launches(session, person, candidate_id)
