"""`/v1/predictions`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Response

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.services.prediction.predictions import predict as predicted
from edgefront.core.wire.predictions import PredictionRequest, PredictionsView

router = APIRouter(prefix="/v1/predictions", tags=["predictions"], route_class=JsonRoute)


@router.post(
    "",
    summary="Predict latency, memory and quality of architectures on a device",
    response_model=PredictionsView,
    responses={**answer(example("predictions")), **errors(404, 409)},
)
async def predict(
    request: Annotated[PredictionRequest, Body(openapi_examples=sample(example("prediction_request")))],
    person: Reader,
    here: Here,
) -> Response:
    """Nothing is run: predictors learn from everything that was measured on the device by this protocol, whichever job
    asked. 409 where that is fewer than three different architectures."""
    work = partial(predicted, here.database, person, request, here.fits)
    return await here.slow.answer(work)
