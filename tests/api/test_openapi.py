"""The OpenAPI document: complete, with examples that are true, and held to by the service."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from openapi_spec_validator import validate
from running_api import Service

from edgefront.api import routers
from edgefront.api.app import create_app
from edgefront.api.docs import examples
from edgefront.api.docs.examples import example
from edgefront.api.http.auth import is_public
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.models import named_model
from edgefront.core.schemas.agent import PROTOCOL_VERSION
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services.quality.trust import trust_of
from edgefront.core.services.settings import Settings
from edgefront.core.store.tables import Job


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def resolved(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        target: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


def schema_errors(document: dict[str, Any], schema: dict[str, Any], value: Any) -> list[str]:
    whole = {**schema, "components": document["components"]}
    return [error.message for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(value)]


def test_every_router_is_served() -> None:
    served = {route.path for route in create_app(Settings()).routes}  # type: ignore[attr-defined]
    for found in pkgutil.iter_modules(routers.__path__):
        module = importlib.import_module(f"{routers.__name__}.{found.name}")
        routes = module.router.routes if hasattr(module, "router") else ()
        assert {route.path for route in routes} <= served, f"api/app.py includes no router of {found.name}"


def test_every_operation_is_named_tagged_and_summed_up(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names)) >= 39
    tags = {tag["name"] for tag in document["tags"]}
    for method, path, operation in operations(document):
        assert re.fullmatch(r"[a-z_]+", operation["operationId"]), path
        assert set(operation["tags"]) <= tags, f"{method} {path}"
        assert operation["summary"], f"{method} {path}"


def test_clients_are_generated_from_it_without_a_warning(document: dict[str, Any]) -> None:
    """Generators warn of two models with one name, and leave out answers of media types that they do not know."""
    validate(document)
    assert document["servers"]
    for name, schema in document["components"]["schemas"].items():
        assert re.fullmatch(r"[A-Za-z]+", name), f"{name}: another model has this name"
        assert schema["title"] == name
    media_types = re.compile(r"application/(json|octet-stream)|text/.*")
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            media = list(response.get("content", ())) if int(status) < 300 else []
            assert not media or any(map(media_types.fullmatch, media)), f"{method} {path}: {media}"


def test_every_operation_but_the_public_ones_needs_a_key(document: dict[str, Any]) -> None:
    public = set()
    for method, path, operation in operations(document):
        if is_public(method.upper(), path):
            public.add((method, path))
        else:
            assert operation["security"] == [{"bearer": []}, {"cookie": []}], f"{method} {path}"
            assert "401" in operation["responses"]
    assert public == {("get", "/v1/health"), ("get", "/v1/ready"), ("post", "/v1/session")}


def test_every_error_is_a_problem_document(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400 and (path, status) != ("/v1/ready", "503"):
                content = resolved(document, response)["content"]
                assert list(content) == ["application/problem+json"], f"{method} {path} {status}"
                assert content["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert "500" in operation["responses"]


def test_every_request_and_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        place = f"{method} {path}"
        if "requestBody" in operation:
            ((media, content),) = operation["requestBody"]["content"].items()
            assert media == "application/json" or "example" in content, place
            assert content.get("examples") or media != "application/json", place
            for example in content.get("examples", {}).values():
                assert schema_errors(document, content["schema"], example["value"]) == [], place
        for status, response in operation["responses"].items():
            described = resolved(document, response)
            for media, content in described.get("content", {}).items():
                assert "example" in content, f"{place} {status} {media}"
                if media in ("application/json", "application/problem+json") and "schema" in content:
                    errors = schema_errors(document, content["schema"], content["example"])
                    assert errors == [], f"{place} {status}: {errors}"


def test_examples_of_descriptions_are_models(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/catalogue/describe"]["post"]["requestBody"]["content"]["application/json"]
    described = {name: Architecture.parse(example["value"]) for name, example in content["examples"].items()}
    assert described["pattern"] == named_model("par-base").architecture
    answer = document["paths"]["/v1/catalogue/describe"]["post"]["responses"]["200"]["content"]["application/json"]
    assert answer["example"]["digest"] == described["example"].digest


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/catalogue/spaces/par-32", "space"),
        ("/v1/catalogue/models/srupp-small", "model"),
        ("/v1/catalogue/published/Qwen/Qwen3-0.6B", "published_model"),
        ("/v1/quality/laws/lts-gpt2-wikitext103", "quality_law"),
    ],
)
def test_examples_of_the_catalogue_are_what_the_service_answers(service: Service, path: str, name: str) -> None:
    assert service.client().get(path).json() == example(name)


def test_examples_of_descriptions_are_what_the_service_answers(service: Service) -> None:
    client = service.client()
    assert client.post("/v1/catalogue/describe", json=example("architecture")).json() == example("costs")
    assert client.post("/v1/models/import", json=example("huggingface_config")).json() == example("imported_model")
    (recipe,) = example("recipes")
    assert recipe in client.get("/v1/catalogue/recipes").json()


def test_examples_about_one_model_agree(service: Service) -> None:
    """Costs of the example's architecture, and what a job and a device say of themselves."""
    costs, candidate = example("costs"), example("candidate")
    for field in ("digest", "decoder_parameters", "total_parameters", "weight_bytes", "flops"):
        assert candidate[field] == costs[field]
        assert example("predictions")["predictions"][0][field] == costs[field]
    assert example("training")["digest"] == example("anchor")["digest"] == costs["digest"]
    (item,) = example("lease_response")["items"]
    assert (item["digest"], item["architecture"]) == (costs["digest"], example("architecture"))
    job = example("job")
    assert job["request"] == example("job_requests")["frontier"]["value"]
    with service.database.read() as session:
        trust = trust_of(session, Job(owner="ann"), JobRequest.model_validate(job["request"]))
    assert job["proxy_trust"] == trust.model_dump(mode="json")
    for name in ("enrol_request", "enrol_response", "lease_request", "report_request"):
        assert example(name)["protocol_version"] == PROTOCOL_VERSION


def test_every_example_of_a_request_is_accepted(service: Service) -> None:
    """But for rows that it refers to, which this service does not have."""
    service.enrol()
    client, missing = service.client(), []
    requests = [("/v1/jobs", each["value"], name) for name, each in example("job_requests").items()]
    requests += [("/v1/trainings", each["value"], name) for name, each in example("training_requests").items()]
    singles = {"predictions": "prediction_request", "keys": "key_request", "enrolment-tokens": "token_request"}
    requests += [(f"/v1/{path}", example(name), name) for path, name in singles.items()]
    for path, body, name in requests:
        answer = client.post(path, json=body)
        if answer.status_code in (404, 409):
            missing.append(f"{path} {name}")
        else:
            assert answer.is_success, f"{path} {name}: {answer.text}"
    assert not [each for each in missing if each.startswith("/v1/jobs")]


def test_every_file_of_examples_is_used() -> None:
    folder = Path(examples.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.parents[1].glob("*/*.py"))
    source += (folder.parents[1] / "app.py").read_text(encoding="utf-8")
    names = {file.stem for file in folder.glob("*.json")}
    assert names == set(re.findall(r'\bexample\("(\w+)"\)', source))


def test_every_path_parameter_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                assert parameter["schema"].get("examples"), f"{method} {path} {parameter['name']}"


def test_the_document_is_served_with_a_key(service: Service, document: dict[str, Any]) -> None:
    assert service.client("user", "bob").get("/v1/openapi.json").json() == document


def test_no_page_loads_scripts_from_elsewhere(service: Service) -> None:
    for path in ("/redoc", "/openapi.json"):
        assert service.client().get(path).status_code == 404
