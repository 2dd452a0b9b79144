"""`/v1/trainings/{id}/files`, the files of a training; `/archive`, the files of its result as one tar; and `/model`,
its model as one file. `/v1/trainings/import` stores a model with its weights as a completed training.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, StreamingResponse

from edgefront.api.context import AppContext, CurrentUser, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import BINARY, answer, errors, file_answer
from edgefront.api.http.file_responses import IfNoneMatch, send_file
from edgefront.api.http.parameters import TrainingId
from edgefront.api.http.routes import ThreadRoute
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.files import Archive
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.model_files.model_file import ModelFormat
from edgefront.core.schemas.agent import Name
from edgefront.core.schemas.trainings import Licence, TrainingFile, TrainingView
from edgefront.core.services.trainings.downloads import Download, files_of, trained_model
from edgefront.core.services.trainings.imports import begin_import, import_model

router = APIRouter(prefix="/v1/trainings", tags=["trainings"], route_class=ThreadRoute)

_MEDIA = "application/octet-stream"


FilePath = Annotated[
    str,
    PathParameter(
        min_length=1,
        max_length=300,
        pattern=r"^[A-Za-z0-9_.\-/]+$",
        description="A `path` of the list",
        examples=["result/model.safetensors"],
    ),
]


@router.get("/{training_id}/files", summary="A training's files", responses=answer(example("training_files"), 404))
def list_training_files(training_id: TrainingId, viewer: CurrentViewer, context: AppContext) -> list[TrainingFile]:
    """Lists the files of the result once the training is completed, of the newest checkpoint, and for TensorBoard."""
    return files_of(context.database, viewer, training_id, context.settings).listed()


@router.get(
    "/{training_id}/files/{path:path}",
    summary="Download one of a training's files",
    response_class=FileResponse,
    responses=file_answer("The file", {_MEDIA: {"schema": BINARY, "example": "(a safetensors file)"}}, 404, 416),
)
async def download_training_file(
    training_id: TrainingId,
    path: FilePath,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Sends one file of the list. One Range with If-Range resumes an interrupted download."""

    def find() -> Download:
        return files_of(context.database, viewer, training_id, context.settings).file(path)

    return send_file(request, await context.slow.run(find), if_none_match)  # hashing a file may take seconds


@router.get(
    "/{training_id}/archive",
    summary="Download a training's result as one tar archive",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The archive, not compressed",
            "content": {_MEDIA: {"schema": BINARY, "example": "(a tar archive)"}},
        },
        **errors(404, 409),
    },
)
async def download_training_archive(training_id: TrainingId, viewer: CurrentViewer, context: AppContext) -> Response:
    """Sends an archive of the listed files, without the prefix `result/`, in one folder named after the training's id,
    like `edgefront train download`; `POST /v1/trainings/import` takes them at the top of an archive.

    The archive is made while it is sent. If a file is missing or changes its size, the download is aborted, so that no
    incomplete archive looks complete.
    """

    def begin() -> tuple[Archive, int]:
        archive = files_of(context.database, viewer, training_id, context.settings).archive()
        return archive, archive.size

    archive, size = await context.slow.run(begin)
    headers = {
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="{training_id}.tar"',
        "Content-Length": str(size),
    }
    return StreamingResponse(archive, headers=headers, media_type=_MEDIA)


@router.get(
    "/{training_id}/model",
    summary="Download a trained model as one file",
    response_class=FileResponse,
    responses=file_answer(
        "With the trained weights", {_MEDIA: {"schema": BINARY, "example": "(a GGUF file)"}}, 404, 409, 416
    ),
)
async def download_trained_model(
    training_id: TrainingId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    format: Annotated[  # noqa: A002  (the name on the wire)
        ModelFormat,
        Query(
            description="As for a candidate's model; `formats` of the training lists those that it has. gguf, for "
            "llama.cpp, and transformers have the tokenizer inside"
        ),
    ] = "transformers",
    numbers: Annotated[NumberFormat, Query(description="Number format, as for a candidate's model")] = "float32",
    logits: Annotated[
        Logits | None,
        Query(
            description="As for a candidate's model. If absent those that were measured of the training's candidate "
            "where the trained model scores tokens; else all"
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Builds the file at the first request and keeps it. One Range with If-Range resumes a download."""
    build = partial(trained_model, context.database, viewer, training_id, format, context.settings, numbers, logits)
    return send_file(request, await context.slow.run(build), if_none_match)


_WRITE_BYTES = 4 << 20
"""Bytes of a body per write."""
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
    user: CurrentUser,
    context: AppContext,
    response: Response,
    name: Annotated[Name | None, Query(description="Shown to people; if absent that which the folder records")] = None,
    licence: Annotated[
        Licence | None, Query(description="Of the weights; if absent that which the folder records, or not stated")
    ] = None,
) -> TrainingView:
    """Checks the weights and stores them with the results of trainings, so that the model can be downloaded in every
    format and be the `start` of trainings of its architecture. The same weights and tokenizer of an owner give one
    training, however often they are sent. A body that is refused or incomplete leaves nothing behind.
    """
    draft = await context.slow.run(partial(begin_import, context.database, user, context.settings))
    try:
        waiting = bytearray()
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= _WRITE_BYTES:
                await run_in_threadpool(draft.write, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(draft.write, bytes(waiting))
        work = partial(import_model, context.database, user, draft, context.settings, name=name, licence=licence)
        training, made = await context.slow.run(work)
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(draft.close)
    if made:
        context.changed()
    else:
        response.status_code = 200
    response.headers["Location"] = f"/v1/trainings/{training.id}"
    return training
