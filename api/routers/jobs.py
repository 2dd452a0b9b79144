"""Endpoints of search jobs, `/v1/jobs`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import AppContext, CurrentUser, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.file_responses import send_view
from edgefront.api.http.parameters import Cursor, IdempotencyKey, JobId, LimitsQuery, TargetName, TrainingBudgetQuery
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.states import JobState
from edgefront.core.schemas.jobs import NO_BUDGET, AddedTargetRequest, JobPage, JobRequest, JobView
from edgefront.core.schemas.predictions import JobEstimate
from edgefront.core.schemas.recommendations import ChoicesView, RecommendationView
from edgefront.core.schemas.service import JobLawView
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.jobs.answers import choices, law, recommendation
from edgefront.core.services.prediction import estimates
from edgefront.core.services.prediction.estimates import check_limits

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=JsonRoute)


@router.post(
    "",
    status_code=201,
    summary="Submit a search job",
    responses=answer(example("job"), 404, 409, status=201, description="The job; Location is its URL"),
)
async def create_job(
    request: Annotated[JobRequest, Body(openapi_examples=example("job_requests"))],
    user: CurrentUser,
    context: AppContext,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobView:
    """Stores the job; its search begins at once. If no device is online, the job waits, and `note` says so."""
    validate_limits = partial(check_limits, context.database, user, fits=context.fits)
    work = partial(jobs.submit_job, context.database, user, request, validate_limits, idempotency_key, context.settings)
    job = await context.slow.run(work)
    context.changed()
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.post(
    "/estimate",
    summary="What a job would take, without submitting it",
    response_model=JobEstimate,
    responses=answer(example("estimate")),
)
async def estimate_job(
    request: Annotated[JobRequest, Body(openapi_examples=example("job_requests"))],
    user: CurrentUser,
    context: AppContext,
) -> Response:
    """Estimates the job without storing it. `refusals` lists every reason why a submission would be refused."""
    work = partial(estimates.estimate, context.database, user, request, context.fits, context.settings)
    return await context.slow.answer(work)


@router.get("", summary="List jobs, newest first", responses=answer(example("job_page")))
def list_jobs(
    viewer: CurrentViewer,
    context: AppContext,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: Annotated[JobState | None, Query(description="Only jobs in this state")] = None,
) -> JobPage:
    """Lists the caller's own jobs; an admin sees all jobs."""
    with context.database.read() as session:
        now = context.database.now(session)
        return jobs.list_jobs(session, viewer, now, cursor=cursor, limit=limit, state=state)


@router.get("/{job_id}", summary="One job with its targets' progress", responses=answer(example("job"), 404))
def get_job(job_id: JobId, viewer: CurrentViewer, context: AppContext) -> JobView:
    with context.database.read() as session:
        return jobs.get_job(session, viewer, job_id, context.database.now(session))


@router.get(
    "/{job_id}/recommendation",
    summary="The best measured model within limits",
    response_model=RecommendationView,
    responses=answer(example("recommendation"), 404),
)
async def get_recommendation(
    job_id: JobId,
    viewer: CurrentViewer,
    context: AppContext,
    limits: LimitsQuery,
    budget: TrainingBudgetQuery,
    target: TargetName = None,
) -> Response:
    """Returns the best model, compares it with the largest stock model (default model) within the same limits, and
    lists the trade-offs of the next best models.

    Uses the current results for any limits, also while the job runs; the target's limits are the default. Without
    `target`, the job's first target is meant. With `train_tokens` it is the best model to train on that many tokens,
    with `train_hours` and `trainer` the best model to train on that worker for that time.
    """
    work = partial(recommendation.answer, context.database, viewer, job_id, target, limits, budget)
    if budget != NO_BUDGET:
        return await context.slow.answer(work)
    return await run_in_threadpool(lambda: send_view(work()))


@router.get(
    "/{job_id}/choices",
    summary="The best published model, format and runtime within limits",
    responses=answer(example("choices"), 404),
)
def get_choices(job_id: JobId, viewer: CurrentViewer, context: AppContext, limits: LimitsQuery) -> ChoicesView:
    """For a job among published models, over the targets of a device: the highest published score within the limits,
    the trade-offs of other models, and the frontier over score, bits per weight, latency and peak memory. In a job over
    several devices, `elsewhere` has the results of the other devices.

    Uses the current results for any limits, also while the job runs; the limits of the device's targets are the
    default.
    """
    with context.database.read() as session:
        inputs = choices.read_inputs(session, viewer, job_id, limits)
    return choices.answer(inputs)


@router.get(
    "/{job_id}/law",
    summary="The job's scaling law, and how far it agrees with trainings",
    responses=answer(example("job_law"), 404),
)
async def get_job_law(job_id: JobId, viewer: CurrentViewer, context: AppContext) -> JobLawView:
    """Returns the job's scaling law. The search uses the law of the job's start; recommendations use the law as refined
    by your latest trainings.
    """
    return await context.slow.run(partial(law.job_law_view, context.database, viewer, job_id))


@router.post("/{job_id}/pause", summary="Pause a job", responses=answer(example("job"), 404, 409))
def pause_job(job_id: JobId, user: CurrentUser, context: AppContext) -> JobView:
    """Stops further launches; running measurements are still accepted."""
    return context.command(jobs.pause_job, user, job_id)


@router.post("/{job_id}/resume", summary="Resume a paused job", responses=answer(example("job"), 404, 409))
def resume_job(job_id: JobId, user: CurrentUser, context: AppContext) -> JobView:
    """Resumes the job where it was paused."""
    return context.command(jobs.resume_job, user, job_id)


@router.post("/{job_id}/cancel", summary="Cancel a job", responses=answer(example("job"), 404, 409))
def cancel_job(job_id: JobId, user: CurrentUser, context: AppContext) -> JobView:
    """Ends the job permanently and keeps its results."""
    return context.command(jobs.cancel_job, user, job_id)


@router.post(
    "/{job_id}/targets",
    status_code=201,
    summary="Add a device to a job",
    responses=answer(example("job"), 404, 409, status=201, description="The job with the target"),
)
async def extend_job(
    job_id: JobId,
    request: Annotated[AddedTargetRequest, Body(openapi_examples=sample(example("added_target")))],
    user: CurrentUser,
    context: AppContext,
) -> JobView:
    """Adds a device: measures the baselines and about ten spread-out candidates of the job on the device, predicts all
    candidates, and measures the predicted frontier (or the best candidates within the limits). A finished job runs
    again. Starts when the job's own targets have ended.
    """
    validate_limits = partial(check_limits, context.database, user, fits=context.fits)
    work = partial(jobs.extend_job, context.database, user, job_id, request, validate_limits)
    job = await context.slow.run(work)
    context.changed()
    return job


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Delete a job",
    responses={204: {"description": "Deleted"}, **errors(404, 409)},
)
def delete_job(job_id: JobId, user: CurrentUser, context: AppContext) -> None:
    """Removes the job with its candidates and events. Measurements are kept for use by other jobs."""
    with context.database.write() as session:
        jobs.delete_job(session, user, job_id, context.database.now(session))
    context.changed()
