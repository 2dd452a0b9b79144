"""The OpenAPI document: FastAPI's document, to which keys and problem documents of every operation are added."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from edgefront.api.http import problems
from edgefront.api.http.auth import is_public
from edgefront.core.schemas.service import Problem

TAGS = [
    {"name": "jobs", "description": "Searches: submit, follow, pause, resume, cancel, delete."},
    {"name": "candidates", "description": "Candidates, proposed and measured; frontiers and exports."},
    {"name": "models", "description": "Candidates' models for download, with untrained weights."},
    {
        "name": "trainings",
        "description": "The training pool: train models of a frontier or any others, follow the training, download "
        "the result.",
    },
    {"name": "devices", "description": "The fleet, and the tokens with which new devices enrol."},
    {"name": "predictions", "description": "What a model would take on a device, without measuring it."},
    {"name": "agents", "description": "The agents' requests: enrolment, leases, reports."},
    {"name": "catalogue", "description": "Search spaces, named models, algorithms and recipes."},
    {"name": "identifiers", "description": "Whole identifiers from a part of them."},
    {"name": "access", "description": "Keys and browser sessions."},
    {"name": "service", "description": "Health and metrics."},
]

DESCRIPTION = """\
edgefront finds the language model that fits a device. Every request but health names an API key
(`Authorization: Bearer efk_…`); browsers trade a key for a cookie. Errors are problem documents (RFC 9457) whose `kind`
is a stable identifier; `field`, `value` and `allowed` describe the first error of a request, `errors` lists all of
them.
"""

_DOCUMENTED = (401, 403, 404, 409, 410, 413, 415, 416, 422, 429, 500, 503)
_ALWAYS = (401, 403, 410, 429, 500, 503)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the problem documents of an operation, beside those of all operations; for `responses`."""
    return {status: {"$ref": f"#/components/responses/{_name_of(status)}"} for status in statuses}


def _name_of(status: int) -> str:
    return "".join(part.capitalize() for part in problems.KIND_OF_STATUS[status].split("-"))


def answer(
    example: Any,
    *statuses: int,
    status: int = 200,
    media: str = "application/json",
    description: str = "Done",
    schema: Any = None,
) -> dict[int | str, dict[str, Any]]:
    """Returns a response with its example, and the `errors` of these statuses; for `responses`. `schema` is given if
    the media type is not the model's JSON.
    """
    content: dict[str, Any] = {"example": kept(example)}
    if schema is not None:
        content["schema"] = schema
    return {status: {"description": description, "content": {media: content}}, **errors(*statuses)}


BINARY = {"type": "string", "format": "binary"}


def file_answer(
    description: str,
    contents: dict[str, Any],
    *statuses: int,
    headers: dict[str, Any] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Returns a file response with ranges and ETag; for `responses`. `contents`: media type → its content."""
    etag = {"schema": {"type": "string"}, "description": "SHA-256 of the bytes, in quotes"}
    part = {media: {"schema": BINARY, "example": "(a part)"} for media in contents}
    return {
        200: {"description": description, "headers": {"ETag": etag, **(headers or {})}, "content": contents},
        206: {"description": "The part that Range selects", "content": part},
        304: {"description": "Not modified: If-None-Match contains its ETag"},
        **errors(*statuses),
    }


def event_stream_answer(example: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns a response that is a stream of server-sent events, with its example."""
    description = "An endless stream of events"
    return answer(example, *statuses, media="text/event-stream", description=description, schema={"type": "string"})


def kept(example: Any) -> str:
    """Returns a placeholder for a response's example, because FastAPI would drop nulls from the example."""
    _KEPT.append(example)
    return f"{_MARK}{len(_KEPT) - 1}"


_KEPT: list[Any] = []
_MARK = "edgefront example "


def sample(value: Any, summary: str = "An example") -> dict[str, Any]:
    """Returns the `openapi_examples` of a body or parameter."""
    return {"example": {"summary": summary, "value": value}}


def build(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI document, which is built only once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=app.routes,
            tags=TAGS,
            servers=[{"url": "/", "description": "This service"}],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        _add_components(document)
        for path, item in document["paths"].items():
            for method, operation in item.items():
                _complete(path, method, operation)
        app.openapi_schema = document
    return app.openapi_schema


def _add_components(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, definitions = models_json_schema([(Problem, "serialization")], ref_template="#/components/schemas/{model}")
    schemas.update(definitions["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or an agent's credential"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "edgefront_session", "description": "Browser session"},
    }
    components["responses"] = {_name_of(status): _problem_response(status) for status in _DOCUMENTED}


def _problem_response(status: int) -> dict[str, Any]:
    kind, phrase = problems.KIND_OF_STATUS[status], HTTPStatus(status).phrase
    title = kind.replace("-", " ").capitalize()
    shown = {"type": f"urn:edgefront:problem:{kind}", "title": title, "status": status, "kind": kind, "detail": phrase}
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": shown}
    response: dict[str, Any] = {"description": phrase, "content": {problems.MEDIA_TYPE: content}}
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait"}}
    return response


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    for response in responses.values():
        for content in response.get("content", {}).values():
            example = content.get("example")
            if isinstance(example, str) and example.startswith(_MARK):
                content["example"] = _KEPT[int(example.removeprefix(_MARK))]
    public = is_public(method.upper(), path)
    statuses = {500, 503} if public else set(_ALWAYS)
    if "requestBody" in operation:
        statuses |= {413, 415, 422}
    if "requestBody" in operation or operation.get("parameters"):
        statuses.add(422)
        responses.pop("422", None)
    for status in sorted(statuses):
        responses.setdefault(str(status), errors(status)[status])
    operation["responses"] = dict(sorted(responses.items()))
    if not public:
        operation["security"] = [{"bearer": []}, {"cookie": []}]
