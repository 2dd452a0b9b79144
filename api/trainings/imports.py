"""`/v1/trainings/import`: a model with its weights becomes a training that is done from the start."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Person
from edgefront.api.http.threads import ThreadRoute
from edgefront.core.services.model_imports import begin_import, import_model
from edgefront.core.services.trainings.files.drafts import Draft
from edgefront.core.wire.agent import Name
from edgefront.core.wire.trainings import Licence, TrainingView

router = APIRouter(prefix="/v1/trainings", tags=["trainings"], route_class=ThreadRoute)

_WRITE_BYTES = 4 << 20
"""Bytes of a body that are written at once."""
_DONE = "The training; Location is its URL"
_FORMER = "The training that there is of these weights and this tokenizer"


@router.post(
    "/import",
    status_code=201,
    summary="Import a model with its weights",
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "An uncompressed tar archive of a folder of ours: `model.safetensors` and "
            "`architecture.json`, and where there are any the tokenizer's files, `result.json` and `cuts.safetensors`. "
            "`EDGEFRONT_DATA__MAX_IMPORT_BYTES` bounds it",
            "content": {
                "application/x-tar": {"schema": {"type": "string", "format": "binary"}, "example": "(a tar archive)"}
            },
        }
    },
    responses={
        **answer(example("imported_training"), status=201, description=_DONE),
        200: {**answer(example("imported_training"), description=_FORMER)[200], "model": TrainingView},
        **errors(409, 413),
    },
)
async def import_model_as_training(
    request: Request,
    person: Person,
    here: Here,
    response: Response,
    name: Annotated[Name | None, Query(description="Shown to people; if absent that which the folder records")] = None,
    licence: Annotated[
        Licence | None, Query(description="Of the weights; if absent that which the folder records, or not stated")
    ] = None,
) -> TrainingView:
    """Checks the weights and stores them where results of trainings are: it can be downloaded in every format, and be
    the `start` of trainings of its architecture. The same weights and tokenizer of an owner give one training, however
    often they are sent. Nothing remains of a body that is refused or breaks off.
    """
    draft = await here.slow.run(partial(begin_import, here.database, person, here.settings))
    try:
        await _receive(request, draft)
        work = partial(import_model, here.database, person, draft, here.settings, name=name, licence=licence)
        training, made = await here.slow.run(work)
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(draft.close)
    if made:
        here.changed()
    else:
        response.status_code = 200
    response.headers["Location"] = f"/v1/trainings/{training.id}"
    return training


async def _receive(request: Request, draft: Draft) -> None:
    """Writes the body to the disk as it arrives."""
    waiting = bytearray()
    async for chunk in request.stream():
        waiting += chunk
        if len(waiting) >= _WRITE_BYTES:
            await run_in_threadpool(draft.write, bytes(waiting))
            waiting.clear()
    await run_in_threadpool(draft.write, bytes(waiting))
