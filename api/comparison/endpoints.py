"""`/v1/comparison`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.threads import ThreadRoute
from edgefront.core.services.prediction.comparing import compare
from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.comparisons import MAX_TARGETS, ComparisonView

router = APIRouter(prefix="/v1", tags=["candidates"], route_class=ThreadRoute)


@router.get(
    "/comparison",
    summary="Several targets beside each other, of one job or of several",
    response_model=ComparisonView,
    responses={**answer(example("comparison")), **errors(404)},
)
async def compare_targets(
    person: Reader,
    here: Here,
    target: Annotated[
        list[Identifier], Query(max_length=MAX_TARGETS, description="Ids of targets, in the order of the comparison")
    ] = [],  # noqa: B006
    job: Annotated[
        list[Identifier], Query(max_length=MAX_TARGETS, description="Ids of jobs: all of their targets")
    ] = [],  # noqa: B006
) -> Response:
    """Architectures on the frontiers of these targets, and their baselines, each with its latency and memory on every
    target: measured there by any job, or predicted from what was measured. It may take seconds. Ratios are against the
    first target.
    """
    return await here.slow.answer(partial(compare, here.database, person, target, job, here.fits))
