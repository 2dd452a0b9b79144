"""Endpoints of trainings, `/v1/trainings`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import PlainTextResponse

from edgefront.api.context import AppContext, CurrentUser, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.parameters import Cursor, IdempotencyKey, TrainingId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.states import TrainingState
from edgefront.core.schemas.trainings import (
    MetricPage,
    ProbabilitiesView,
    TrainingEstimate,
    TrainingPage,
    TrainingRequest,
    TrainingView,
)
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.downloads import files_of
from edgefront.core.services.trainings.folder import mark_deleted, remove_folder
from edgefront.core.services.trainings.lifecycle import MAX_METRICS, MAX_RECORDS

router = APIRouter(prefix="/v1/trainings", tags=["trainings"], route_class=JsonRoute)

_ID = r"^[A-Za-z0-9_\-]+$"


@router.post(
    "",
    status_code=201,
    summary="Train an architecture, a candidate, or points of a frontier",
    responses=answer(
        example("training_page"), 404, 409, status=201, description="The trainings; Location is the URL of the first"
    ),
)
async def create_trainings(
    request: Annotated[TrainingRequest, Body(openapi_examples=example("training_requests"))],
    user: CurrentUser,
    context: AppContext,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> TrainingPage:
    """Stores one training for each architecture. A worker with free capacity takes the oldest waiting training of the
    next owner in turn.
    """
    work = partial(trainings.submit_trainings, context.database, user, request, context.settings, idempotency_key)
    made = await context.slow.run(work)
    context.changed()
    response.headers["Location"] = f"/v1/trainings/{made[0].id}"
    return TrainingPage(items=made)


@router.post(
    "/estimate",
    summary="What a request for trainings would make, without submitting it",
    response_model=TrainingEstimate,
    responses=answer(example("training_estimate"), 404),
)
async def estimate_trainings(
    request: Annotated[TrainingRequest, Body(openapi_examples=example("training_requests"))],
    user: CurrentUser,
    context: AppContext,
) -> Response:
    """Returns recipe, data set and tokens. Refuses like a submission, except trainings that already exist."""
    work = partial(trainings.estimate_trainings, context.database, user, request, context.settings)
    return await context.slow.answer(work)


@router.get("", summary="List trainings, newest first", responses=answer(example("training_page")))
def list_trainings(
    viewer: CurrentViewer,
    context: AppContext,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: Annotated[TrainingState | None, Query(description="Only trainings in this state")] = None,
    job: Annotated[
        str | None,
        Query(min_length=1, max_length=64, pattern=_ID, description="Only trainings of this job's candidates"),
    ] = None,
    digest: Annotated[
        str | None,
        Query(pattern=r"^[0-9a-f]{64}$", description="Only trainings of this architecture", examples=["0" * 64]),
    ] = None,
) -> TrainingPage:
    """Lists the caller's own trainings; an admin sees all trainings."""
    with context.database.read() as session:
        return trainings.list_trainings(
            session, viewer, state=state, job_id=job, digest=digest, cursor=cursor, limit=limit
        )


@router.get("/{training_id}", summary="One training", responses=answer(example("training"), 404))
def get_training(training_id: TrainingId, viewer: CurrentViewer, context: AppContext) -> TrainingView:
    """Returns the training with its progress, its scores, and the measurements of its candidate."""
    with context.database.read() as session:
        return trainings.get_training(session, viewer, training_id)


@router.get(
    "/{training_id}/metrics", summary="A training's curves", responses=answer(example("training_metric_page"), 404)
)
def list_training_metrics(
    training_id: TrainingId,
    viewer: CurrentViewer,
    context: AppContext,
    after: Annotated[int, Query(ge=-1, le=1 << 53, description="Only steps after this one")] = -1,
    limit: Annotated[int, Query(ge=1, le=MAX_METRICS)] = 1000,
) -> MetricPage:
    """Returns the reports of the run, by increasing step. Steps that were repeated after a crash appear once."""
    with context.database.read() as session:
        return trainings.list_metrics(session, viewer, training_id, after=after, limit=limit)


@router.get(
    "/{training_id}/log",
    summary="The log of a training",
    response_class=PlainTextResponse,
    responses=answer(
        example("training_log"), 404, media="text/plain", description="The last lines", schema={"type": "string"}
    ),
)
def read_training_log(
    training_id: TrainingId,
    viewer: CurrentViewer,
    context: AppContext,
    tail: Annotated[int, Query(ge=1, le=100_000, description="Number of last lines, at most 1 MiB")] = 200,
) -> Response:
    """Returns standard output and error of all processes of the training, over all starts."""
    return PlainTextResponse(files_of(context.database, viewer, training_id, context.settings).log(tail))


@router.post("/{training_id}/pause", summary="Pause a training", responses=answer(example("training"), 404, 409))
def pause_training(training_id: TrainingId, user: CurrentUser, context: AppContext) -> TrainingView:
    """Stops the training after the current step with a checkpoint, and frees its slot for other trainings."""
    return context.command(trainings.pause_training, user, training_id)


@router.post(
    "/{training_id}/resume",
    summary="Resume a paused or failed training",
    responses=answer(example("training"), 404, 409),
)
def resume_training(training_id: TrainingId, user: CurrentUser, context: AppContext) -> TrainingView:
    """Resumes from the latest checkpoint, once a worker has free capacity. The attempts of a failed training are
    counted from zero again.
    """
    return context.command(trainings.resume_training, user, training_id)


@router.post("/{training_id}/cancel", summary="Cancel a training", responses=answer(example("training"), 404, 409))
def cancel_training(training_id: TrainingId, user: CurrentUser, context: AppContext) -> TrainingView:
    """Ends the training permanently and keeps its checkpoints."""
    return context.command(trainings.cancel_training, user, training_id)


@router.delete(
    "/{training_id}",
    status_code=204,
    summary="Delete a training",
    responses={204: {"description": "Deleted"}, **errors(404, 409)},
)
def delete_training(training_id: TrainingId, user: CurrentUser, context: AppContext) -> None:
    """Removes the training with its log, curves and files, and stops it. Its architecture keeps the scores."""
    with context.database.write() as session:
        free = trainings.delete_training(session, user, training_id)
    context.changed()
    if free:
        remove_folder(context.settings, training_id)
    else:
        mark_deleted(context.settings, training_id)


Records = Annotated[int, Query(ge=1, le=MAX_RECORDS, description="Maximum number of records per seed, evenly spread")]


@router.get(
    "/{training_id}/probabilities",
    operation_id="read_probabilities",
    summary="Block probabilities of a supernet's layers",
    responses=answer(example("probabilities"), 404),
)
def read(
    training_id: TrainingId, viewer: CurrentViewer, context: AppContext, records: Records = 100
) -> ProbabilitiesView:
    """Returns the probability of each block in each layer over the steps, per seed. For supernets only."""
    with context.database.read() as session:
        return trainings.read_probabilities(session, viewer, training_id, records)
