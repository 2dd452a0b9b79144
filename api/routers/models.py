"""Endpoints `/v1/candidates/{id}/model` and `/v1/models/import`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from starlette.responses import FileResponse

from edgefront.api.context import AppContext, CurrentPrincipal, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import BINARY, answer, file_answer, sample
from edgefront.api.http.file_responses import IfNoneMatch, send_file
from edgefront.api.http.parameters import CandidateId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.architectures.huggingface import from_config
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.model_files.model_file import ModelFormat
from edgefront.core.schemas.service import ImportedModel
from edgefront.core.services.jobs.answers.model_files import artifact_for

router = APIRouter(prefix="/v1", tags=["models"], route_class=JsonRoute)


@router.get(
    "/candidates/{candidate_id}/model",
    summary="Download a candidate's model",
    response_class=FileResponse,
    responses=file_answer(
        "The file. Its weights are untrained: random numbers from the candidate's seed.",
        {
            "application/onnx": {"schema": BINARY, "example": "(an ONNX file)"},
            "application/octet-stream": {"schema": BINARY, "example": "(a safetensors file)"},
            "application/x-tar": {"schema": BINARY, "example": "(a tar archive)"},
            "application/json": {
                "schema": {"type": "object", "description": "The canonical description (format=architecture)"},
                "example": example("architecture"),
            },
        },
        404,
        413,
        416,
        headers={
            "Content-Disposition": {"schema": {"type": "string"}, "description": "A file name that also says so"},
            "X-Edgefront-Weights": {"schema": {"type": "string", "enum": ["untrained-random", "none"]}},
        },
    ),
)
@router.head("/candidates/{candidate_id}/model", include_in_schema=False, response_class=FileResponse)
async def download_model(
    candidate_id: CandidateId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    format: Annotated[  # noqa: A002  (the name on the wire)
        ModelFormat,
        Query(
            description="onnx: a forward pass over whole sequences. onnx-prefill and onnx-decode: the two files that "
            "generate text token by token. onnx-generate: one file that generates, its cache written in place, of "
            "models with learned, sinusoidal or rotary positions. onnx-segment: segment by segment, with a memory. "
            "Encoders have none of these four, models with a source neither generate nor segment. gguf: for llama.cpp, "
            "of GPT-2, Llama, Qwen and LFM2 stacks. transformers: a tar archive with the folder that Hugging Face's "
            "from_pretrained loads, of models with one layer throughout. architecture: the description alone"
        ),
    ] = "onnx",
    numbers: Annotated[
        NumberFormat | None,
        Query(
            description="Number format of an ONNX or GGUF file. int8, int4 (ONNX): float32 with the blocks' linear "
            "layers quantised, as a protocol's weights. q8_0, q4_0, q4_k_m, q5_k_m, q6_k, iq4_nl (GGUF): all matrices. "
            "Other formats are float32 only. If absent that which was measured, where the file has it, or float32"
        ),
    ] = None,
    logits: Annotated[
        Logits | None,
        Query(
            description="Positions whose logits the graph of format onnx or onnx-segment computes, or none of them but "
            "the hidden states. If absent those that were measured. Other ONNX files compute the last ones"
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Builds the file at the first request, caches it, and streams it. One Range with If-Range resumes a download."""
    folder = context.settings.artifact_folder
    max_bytes = context.settings.data.max_model_bytes
    build = partial(artifact_for, context.database, viewer, candidate_id, format, folder, numbers, max_bytes, logits)
    headers = {"X-Edgefront-Weights": "none" if format == "architecture" else "untrained-random"}
    return send_file(request, await context.slow.run(build), if_none_match, headers)


@router.post(
    "/models/import",
    summary="A Hugging Face config.json as an architecture description",
    responses=answer(example("imported_model")),
)
def import_model(
    config: Annotated[dict[str, Any], Body(openapi_examples=sample(example("huggingface_config")))],
    _principal: CurrentPrincipal,
) -> ImportedModel:
    """Converts the config.json of a causal language model in the body. Stores nothing. If fields cannot be expressed,
    `errors` of the problem document lists each with field, value, allowed and detail.
    """
    architecture = from_config(config)
    return ImportedModel(digest=architecture.digest, architecture=architecture.canonical)
