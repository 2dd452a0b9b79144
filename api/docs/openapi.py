"""The OpenAPI document: FastAPI's own, with keys and problem documents filled in for every operation."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from edgefront.api.http import problems
from edgefront.api.http.auth import is_public
from edgefront.core.wire.service import Problem

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

_EXAMPLES: dict[int, tuple[str, str]] = {
    401: ("No key, or an invalid one", "the API key is unknown"),
    403: ("A valid key without the permission", "this needs a key of the role admin, not user"),
    404: ("It does not exist, or belongs to another user", "no job 'job_01'"),
    409: ("Not possible in the current state", "the job is finished: it cannot be paused"),
    410: ("It existed, but was revoked or has ended", "this device was revoked"),
    413: ("A body above the size limit", "the body is larger than 4194304 bytes"),
    415: ("A body that is not JSON", "Send application/json, not text/plain."),
    416: ("A range beyond the file", "the file has 1024 bytes"),
    422: (
        "A value is wrong: the field is named",
        "targets.0.protocol.batch: must be greater than or equal to 1, not 0",
    ),
    429: (
        "The proxy's limits of an address, or of a key's event streams; Retry-After says when to retry",
        "one address may have 512 requests under way and send 500 a second",
    ),
    500: ("An error of the server; `instance` is in its log", "Something went wrong on the server."),
    503: (
        "The service or something that it needs is unavailable; try again after Retry-After",
        "the database is unavailable; try again",
    ),
}
"""Status → what its problem document means, and the detail of an example."""
_MORE: dict[int, dict[str, Any]] = {
    422: {
        "in": "body",
        "field": "targets.0.protocol.batch",
        "value": 0,
        "allowed": "greater than or equal to 1",
    },
    500: {"instance": "urn:uuid:6f1f2f0e-5c3e-4f5a-9d55-0d8f5b7f6c11"},
}
"""Further members of an example."""
_ALWAYS = (401, 403, 410, 429, 500, 503)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem documents of an operation in addition to those of every operation; for `responses`."""
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
    """A response with its example, and the `errors` of these statuses; for `responses`. `schema` if the media type is
    not the model's JSON.
    """
    content: dict[str, Any] = {"example": kept(example)}
    if schema is not None:
        content["schema"] = schema
    return {status: {"description": description, "content": {media: content}}, **errors(*statuses)}


def event_stream_answer(example: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """A response that is a stream of server-sent events, with its example."""
    description = "An endless stream of events"
    return answer(example, *statuses, media="text/event-stream", description=description, schema={"type": "string"})


def kept(example: Any) -> str:
    """A placeholder for a response's example until the document is built, because FastAPI would drop every null in
    it.
    """
    _KEPT.append(example)
    return f"{_MARK}{len(_KEPT) - 1}"


_KEPT: list[Any] = []
_MARK = "edgefront example "


def _restore_examples(responses: dict[str, Any]) -> None:
    for response in responses.values():
        for content in response.get("content", {}).values():
            example = content.get("example")
            if isinstance(example, str) and example.startswith(_MARK):
                content["example"] = _KEPT[int(example.removeprefix(_MARK))]


def sample(value: Any, summary: str = "An example") -> dict[str, Any]:
    """`openapi_examples` of a body or parameter."""
    return {"example": {"summary": summary, "value": value}}


def build(app: FastAPI) -> dict[str, Any]:
    """The document, built once."""
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
    components["responses"] = {_name_of(status): _problem_response(status) for status in _EXAMPLES}


def _problem_response(status: int) -> dict[str, Any]:
    (description, detail), kind = _EXAMPLES[status], problems.KIND_OF_STATUS[status]
    shown = {
        "type": f"urn:edgefront:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "kind": kind,
        "detail": detail,
        **_MORE.get(status, {}),
    }
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": shown}
    response: dict[str, Any] = {"description": description, "content": {problems.MEDIA_TYPE: content}}
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait"}}
    return response


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    _restore_examples(responses)
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
