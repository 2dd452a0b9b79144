"""`/v1/predictions` and `/v1/comparison`: predictions of models, and comparisons of targets."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from edgefront.api.context import AppContext, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, sample
from edgefront.api.http.routes import JsonRoute
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.jobs import MAX_TARGETS
from edgefront.core.schemas.predictions import ComparisonView, PredictionRequest, PredictionsView
from edgefront.core.services.prediction.comparing import compare
from edgefront.core.services.prediction.predictions import predict as predicted

router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post(
    "/predictions",
    tags=["predictions"],
    summary="Predict latency, memory and quality of architectures on a device",
    response_model=PredictionsView,
    responses=answer(example("predictions"), 404, 409),
)
async def predict(
    request: Annotated[PredictionRequest, Body(openapi_examples=sample(example("prediction_request")))],
    viewer: CurrentViewer,
    context: AppContext,
) -> Response:
    """Predicts without running a model, from all measurements on the device by this protocol, of any job. Status 409 if
    there are fewer than three different architectures.
    """
    work = partial(predicted, context.database, viewer, request, context.fits)
    return await context.slow.answer(work)


@router.get(
    "/comparison",
    tags=["candidates"],
    summary="Several targets beside each other, of one job or of several",
    response_model=ComparisonView,
    responses=answer(example("comparison"), 404),
)
async def compare_targets(
    viewer: CurrentViewer,
    context: AppContext,
    target: Annotated[
        list[Identifier], Query(max_length=MAX_TARGETS, description="Ids of targets, in the order of the comparison")
    ] = [],  # noqa: B006
    job: Annotated[
        list[Identifier], Query(max_length=MAX_TARGETS, description="Ids of jobs: all of their targets")
    ] = [],  # noqa: B006
) -> Response:
    """Returns the architectures on the frontiers of these targets, and their baselines, each with its latency and
    memory on every target: measured there by any job, or predicted from measurements. May take seconds. Ratios are
    relative to the first target.
    """
    return await context.slow.answer(partial(compare, context.database, viewer, target, job, context.fits))
