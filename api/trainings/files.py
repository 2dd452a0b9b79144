"""`/v1/trainings/{id}/files`: the files of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from starlette.responses import FileResponse

from edgefront.api.docs import training_examples as examples
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Person
from edgefront.api.http.parameters import TrainingId
from edgefront.api.http.sending import IfNoneMatch, send_chunks, send_file
from edgefront.core.services.trainings.files.downloads import Download, files_of
from edgefront.core.wire.trainings import TrainingFile

router = APIRouter(prefix="/v1/trainings", tags=["trainings"])

_BINARY = {"type": "string", "format": "binary"}
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


@router.get(
    "/{training_id}/files",
    operation_id="list_training_files",
    summary="A training's files",
    responses={**answer(examples.FILES), **errors(404)},
)
async def list_training_files(training_id: TrainingId, person: Person, here: Here) -> list[TrainingFile]:
    """The result once it is done, and the newest checkpoint."""

    def look() -> list[TrainingFile]:
        with here.database.read() as session:
            files = files_of(session, person, training_id, here.settings)
        return files.listed()

    return await anyio.to_thread.run_sync(look, limiter=here.fetching)


@router.get(
    "/{training_id}/files/{path:path}",
    operation_id="download_training_file",
    summary="Download one of a training's files",
    response_class=FileResponse,
    responses={
        200: {
            "description": "The file",
            "headers": {"ETag": {"schema": {"type": "string"}, "description": "SHA-256 of the bytes, in quotes"}},
            "content": {_MEDIA: {"schema": _BINARY, "example": "(a safetensors file)"}},
        },
        206: {
            "description": "The part that Range selects",
            "content": {_MEDIA: {"schema": _BINARY, "example": "(a part)"}},
        },
        304: {"description": "Not modified: If-None-Match contains its ETag"},
        **errors(404, 416),
    },
)
async def download_training_file(
    training_id: TrainingId,
    path: FilePath,
    request: Request,
    person: Person,
    here: Here,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Only files of the list. One Range with If-Range resumes an interrupted download."""

    def find() -> Download:
        with here.database.read() as session:
            files = files_of(session, person, training_id, here.settings)
        return files.file(path)

    # Hashing a local file may take seconds.
    file = await anyio.to_thread.run_sync(find, limiter=here.slow)
    if isinstance(file.source, Path):
        return send_file(
            request,
            file.source,
            sha256=file.sha256,
            size=file.size,
            name=file.name,
            media_type=_MEDIA,
            if_none_match=if_none_match,
        )
    return await send_chunks(
        request,
        file.source,
        sha256=file.sha256,
        size=file.size,
        name=file.name,
        media_type=_MEDIA,
        if_none_match=if_none_match,
        limiter=here.slow,
    )
