"""`/v1/jobs/{id}/candidates`, `/v1/jobs/{id}/frontier`, `/v1/candidates/{id}`."""

from __future__ import annotations

from functools import partial
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from edgefront.api.context import AppContext, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import BINARY, answer, errors, kept
from edgefront.api.http.file_responses import send_view
from edgefront.api.http.parameters import (
    CandidateId,
    Cursor,
    JobId,
    LimitsQuery,
    TargetName,
)
from edgefront.api.http.routes import ThreadRoute
from edgefront.api.routers import candidate_tables
from edgefront.core.common.states import CandidateRole, CandidateState
from edgefront.core.schemas import points as points_wire
from edgefront.core.schemas.candidates import (
    CandidateDetails,
    CandidatePage,
    CandidateParts,
    CandidateView,
    FrontierView,
    Group,
    LaunchView,
)
from edgefront.core.schemas.jobs import Quality
from edgefront.core.services.jobs.answers import candidate_details, candidates, exports, frontier_view, points
from edgefront.core.services.jobs.answers.candidates import DERIVED, SORTABLE, CandidateFilter, PageRequest
from edgefront.core.services.prediction.predictions import candidate_parts

router = APIRouter(prefix="/v1", tags=["candidates"], route_class=ThreadRoute)

Number = Annotated[int | None, Query(ge=0, le=1 << 53)]
Id = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")]
Figure = Annotated[float | None, Query(ge=-1e300, le=1e300, allow_inf_nan=False)]


async def _filter(
    limits: LimitsQuery,
    target: TargetName = None,
    state: CandidateState | None = None,
    role: Literal[CandidateRole.BASELINE, CandidateRole.SEARCH] | None = None,
    on_frontier: Annotated[bool | None, Query(description="Only members of the frontier, or only the others")] = None,
    generation: Annotated[int | None, Query(ge=-1, le=1 << 30, description="-1: baselines")] = None,
    min_decoder_parameters: Number = None,
    max_decoder_parameters: Number = None,
    group: Annotated[Group | None, Query(description="Every candidate belongs to one of them")] = None,
    ids: Annotated[list[Id], Query(max_length=500, description="Only these")] = [],  # noqa: B006  (FastAPI copies it)
    text: Annotated[
        str | None,
        Query(
            max_length=200,
            pattern=r"^[^\x00]*$",
            description="A number, the beginning or end of an id, the beginning of a digest, an operator, or part of a "
            "reason",
        ),
    ] = None,
) -> CandidateFilter:
    return CandidateFilter(
        target=target,
        state=state,
        role=role,
        on_frontier=on_frontier,
        generation=generation,
        limits=limits,
        min_decoder_parameters=min_decoder_parameters,
        max_decoder_parameters=max_decoder_parameters,
        group=group,
        ids=tuple(ids),
        text=text,
    )


Filter = Annotated[CandidateFilter, Depends(_filter)]
Sort = Annotated[
    str,
    Query(
        pattern=f"^-?({'|'.join((*SORTABLE, *DERIVED))})$",
        description="A figure, with `-` before it for descending order; candidates without it always come last. "
        f"{', '.join(DERIVED)}: of one target, the first if none is named",
        examples=["-proxy"],
    ),
]


@router.get(
    "/jobs/{job_id}/candidates",
    summary="Candidates of a job: filtered, sorted, paged or exported",
    response_model=CandidatePage,
    responses={
        200: {
            "description": "A page, or with format=csv or parquet all of them as a file",
            "content": {
                "application/json": {"example": kept(example("candidate_page"))},
                "text/csv": {"schema": {"type": "string"}, "example": "id,number,state\r\ncnd_01,17,measured\r\n"},
                candidate_tables.PARQUET: {"schema": BINARY, "example": "PAR1..."},
            },
        },
        **errors(404),
    },
)
async def list_candidates(
    job_id: JobId,
    viewer: CurrentViewer,
    context: AppContext,
    filters: Filter,
    sort: Sort = "number",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[
        int | None,
        Query(ge=0, le=1 << 30, description="Candidates before the page, instead of a cursor; it then has a `place`"),
    ] = None,
    around: Annotated[
        Id | None,
        Query(description="Id of a candidate: the page that it is on"),
    ] = None,
    format: Annotated[  # noqa: A002  (the name on the wire)
        Literal["json", "csv", "parquet"], Query(description="csv and parquet contain every candidate, without pages")
    ] = "json",
) -> Any:
    """Lists candidates that match all filters, as in "measured, on the frontier, under 50 ms and 300 MB"."""
    if format == "json":
        page = PageRequest(cursor, limit, offset, around)

        def read() -> Response:
            with context.database.read() as session:
                return send_view(candidates.list_candidates(session, viewer, job_id, filters, sort, page))

        return await run_in_threadpool(read)
    rows = partial(exports.export_rows, principal=viewer, job_id=job_id, filters=filters, sort=sort)
    write = partial(candidate_tables.write_export, context.database, rows, format)
    # Written completely before it is sent: a slow reader must not hold a database connection.
    file = await context.slow.run(write)
    return _Export(
        file,
        candidate_tables.chunks(file),
        media_type=candidate_tables.MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="{job_id}-candidates.{format}"'},
    )


class _Export(StreamingResponse):
    """A response that closes the exported file when it is sent or the client has disconnected."""

    def __init__(self, file: IO[bytes], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


@router.get(
    "/jobs/{job_id}/points",
    summary="The points of a target's chart, thinned to a fixed number, as typed columns",
    response_class=Response,
    responses={
        200: {
            "description": "The length of a JSON header (unsigned 32-bit, little-endian), the header, then the columns "
            "that it names, each padded to 8 bytes",
            "content": {points_wire.MEDIA_TYPE: {"schema": BINARY, "example": "..."}},
        },
        **errors(404),
    },
)
def get_points(
    job_id: JobId,
    viewer: CurrentViewer,
    context: AppContext,
    target: TargetName = None,
    axis: Annotated[points_wire.Axis, Query(description="What stands for quality: the proxy or predicted")] = "proxy",
    most: Annotated[
        int, Query(ge=1, le=points.MAX_POINTS, description="Points beside those that are always kept")
    ] = 1000,
    min_latency_ms: Figure = None,
    max_latency_ms: Figure = None,
    min_quality: Figure = None,
    max_quality: Figure = None,
    keep: Annotated[
        list[Id],
        Query(max_length=50, description="Ids of candidates that must be among them"),
    ] = [],  # noqa: B006  (FastAPI copies it)
) -> Response:
    """Returns the points of a target's chart: always the frontier, the baselines, trained candidates and the candidates
    of `keep`; further candidates are spread over the window that the bounds define. `total` in the header is the number
    of candidates in the window.
    """
    bounds = (min_latency_ms, max_latency_ms, min_quality, max_quality)
    zoom = None if all(bound is None for bound in bounds) else points.Zoom(*bounds)
    with context.database.read() as session:
        body = points.read(session, viewer, job_id, target, axis=axis, zoom=zoom, most=most, keep=keep)
    return Response(body, media_type=points_wire.MEDIA_TYPE)


@router.get(
    "/jobs/{job_id}/frontier",
    summary="The frontier of a target",
    response_model=FrontierView,
    responses={
        200: {
            "description": "The frontier with its baseline, by rising decoder parameters",
            "content": {
                "application/json": {"example": kept(example("frontier"))},
                "text/csv": {"schema": {"type": "string"}, "example": "id,role,latency_ms\r\ncnd_01,search,12.4\r\n"},
            },
        },
        **errors(404),
    },
)
def get_frontier(
    job_id: JobId,
    viewer: CurrentViewer,
    context: AppContext,
    limits: LimitsQuery,
    target: TargetName = None,
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
    """Returns the frontier of `target`, by default the job's first target. The limits filter the points ("the best
    under 50 ms and 300 MB").
    """
    with context.database.read() as session:
        view = frontier_view.frontier_view(
            session,
            viewer,
            job_id,
            target,
            limits,
            by=by,
            dataset=dataset,
        )
    if format == "json":
        return view
    return Response(
        candidate_tables.frontier_csv(view),
        media_type=candidate_tables.MEDIA_TYPES["csv"],
        headers={"Content-Disposition": f'attachment; filename="{view.target_id}-frontier.csv"'},
    )


@router.get("/candidates/{candidate_id}", summary="One candidate", responses=answer(example("candidate"), 404))
def get_candidate(candidate_id: CandidateId, viewer: CurrentViewer, context: AppContext) -> CandidateView:
    with context.database.read() as session:
        return candidates.get_candidate(session, viewer, candidate_id)


@router.get(
    "/candidates/{candidate_id}/details",
    summary="One candidate with its blocks, its ancestors and the formats of its model",
    responses=answer(example("candidate_details"), 404),
)
def get_candidate_details(candidate_id: CandidateId, viewer: CurrentViewer, context: AppContext) -> CandidateDetails:
    with context.database.read() as session:
        return candidate_details.candidate_details(session, viewer, candidate_id)


@router.get(
    "/candidates/{candidate_id}/parts",
    summary="Where a candidate's milliseconds and bytes go",
    response_model=CandidateParts,
    responses=answer(example("candidate_parts"), 404),
)
async def get_candidate_parts(candidate_id: CandidateId, viewer: CurrentViewer, context: AppContext) -> Response:
    """Predicts latency and memory of each part of the model, from all measurements on its device by its protocol. Takes
    up to seconds.
    """
    work = partial(candidate_parts, context.database, viewer, candidate_id, context.fits)
    return await context.slow.answer(work)


@router.get(
    "/candidates/{candidate_id}/launches",
    summary="The raw launches behind a candidate's numbers",
    responses=answer(example("launches"), 404),
)
def list_launches(candidate_id: CandidateId, viewer: CurrentViewer, context: AppContext) -> list[LaunchView]:
    """Returns the samples in the order of measurement, memory by parts, and the environment of each launch."""
    with context.database.read() as session:
        return candidates.list_launches(session, viewer, candidate_id)
