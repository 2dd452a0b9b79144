"""Every error is a problem document (RFC 9457) that says what was wrong, and nothing of the inside."""

from __future__ import annotations

import json
import logging
import socket
import time
from typing import Any

import httpx
import pytest
from running_api import Service, job, problem

from edgefront.api.routers import health

LARGE = 10**30


def post_job(client: httpx.Client, body: bytes | str, **headers: str) -> httpx.Response:
    return client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json", **headers})


def test_unknown_address_and_wrong_method(service: Service) -> None:
    client = service.client()
    assert problem(client.get("/v1/nothing"), 404)["kind"] == "not-found"
    refused = client.put("/v1/keys")
    assert problem(refused, 405)["kind"] == "method-not-allowed"
    assert refused.headers["allow"]


def test_all_wrong_fields_are_named_with_value_and_what_is_allowed(service: Service) -> None:
    client = service.client()
    document = problem(
        post_job(
            client, json.dumps({"targets": [{"protocol": {"batch": 0, "threads": "x"}}], "seed": -1, "colour": 1})
        ),
        422,
    )
    assert document["kind"] == "invalid-input"
    assert document["field"] == "targets.0.protocol.batch"
    assert document["value"] == 0
    assert "greater than or equal to 1" in document["allowed"]
    assert {place["field"] for place in document["errors"]} == {
        "targets.0.protocol.batch",
        "targets.0.protocol.threads",
        "seed",
        "colour",
    }
    document = problem(client.get("/v1/jobs", params={"limit": 0}), 422)
    assert (document["in"], document["field"]) == ("query", "limit")
    document = problem(client.get("/v1/jobs/job%20!"), 422)
    assert (document["in"], document["field"]) == ("path", "job_id")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"targets": [{"protocol": {"batch": True}}]}, "targets.0.protocol.batch"),
        ({"targets": [{"protocol": {"mode": "decode", "memory_length": "5"}}]}, "targets.0.protocol.memory_length"),
        ({"targets": [{"limits": {"latency_ms": "5"}}]}, "targets.0.limits.latency_ms"),
        ({"budget": {"candidates": "5"}}, "budget.candidates"),
        ({"parameters": {"max_total": "9"}}, "parameters.max_total"),
        ({"baseline_layers": [1, True]}, "baseline_layers.1"),
        ({"seed": "1"}, "seed"),
    ],
)
def test_a_value_that_is_not_a_number_counts_as_missing(service: Service, changes: dict[str, Any], field: str) -> None:
    document = problem(post_job(service.client(), json.dumps(job(**changes))), 422)
    assert document["field"] == field
    assert document["allowed"] in ("an integer", "a number")
    assert [place["field"] for place in document["errors"]] == [field]


@pytest.mark.parametrize(
    ("body", "field", "detail", "allowed"),
    [
        ({"targets": []}, "targets", "targets: must have at least 1 item, not 0", "at least 1 item"),
        ({}, "targets", "targets is missing", "a value for it: it has no default"),
        ([], "", "the body: must be an object, not []", "an object"),
        ({"targets": [{}], "space": 3}, "space", "space: must be an object, not 3", "an object"),
        ({"targets": [{}], "name": 3}, "name", "name: must be text, not 3", "text"),
        (
            {"targets": [{"device": "a", "device_class": "b"}]},
            "targets.0",
            "targets.0: give device or device_class, not both",
            "give device or device_class, not both",
        ),
    ],
    ids=str,
)
def test_errors_are_worded_for_json(service: Service, body: Any, field: str, detail: str, allowed: str) -> None:
    document = problem(post_job(service.client(), json.dumps(body)), 422)
    assert (document["field"], document["detail"], document["allowed"]) == (field, detail, allowed)


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("trainings", {"model": "gpt2", "data": "texts"}, "data: there is no such field; do you mean dataset?"),
        ("jobs", {"targets": [{"limit": {}}]}, "targets.0.limit: there is no such field; do you mean limits?"),
        ("keys", {"name": "a", "q": 1}, "q: there is no such field; there are name, role, owner, days"),
    ],
)
def test_an_unknown_field_names_the_one_that_it_resembles(service: Service, path: str, body: Any, detail: str) -> None:
    document = problem(service.client().post(f"/v1/{path}", json=body), 422)
    assert document["errors"][0]["detail"] == detail
    assert detail.split()[-1].rstrip("?") in document["allowed"].split(", ")


def test_an_error_of_the_project_inside_a_model_keeps_its_own_words(service: Service) -> None:
    protocol = {"runtime": "onnxruntime", "memory": "allocator"}
    document = problem(post_job(service.client(), json.dumps({"targets": [{"protocol": protocol}]})), 422)
    assert document["field"] == "targets.0.protocol.memory"
    assert "the method allocator needs PyTorch" in document["detail"]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        *((f'"budget": {{"minutes": {token}}}', "budget.minutes", "") for token in ("NaN", "Infinity", "-Infinity")),
        ('"space": {"narrow": {"n_layer": [1, NaN]}}', "space.narrow.n_layer.1", ""),
        ('"algorithm": {"settings": {"a": {"b": "x\\u0000"}}}', "algorithm.settings.a.b", ""),
        (f'"space": {{"narrow": {{"n_layer": {{"max": {LARGE}}}}}}}', "space.narrow.n_layer.max", "64 bits"),
        (f'"parameters": {{"max_total": {LARGE}}}', "parameters.max_total", "64 bits"),
        (f'"algorithm": {{"settings": {{"p": [-{LARGE}]}}}}', "algorithm.settings.p.0", "64 bits"),
        ('"name": "  "', "name", ""),
    ],
)
def test_what_no_database_keeps_is_refused_by_field(service: Service, fields: str, field: str, said: str) -> None:
    document = problem(post_job(service.client(), f'{{"targets": [{{}}], {fields}}}'), 422)
    assert document["field"] == field
    assert said in document["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe",
        b'{"targets": [' + b"[" * 100_000,
        b"[" * 3000 + b"]" * 3000,
        b'{"seed": 1' + b"0" * 10_000 + b"}",
        b'{"name": "\x00"}',
        b'{"name": "\\ud800"}',
        b"null",
        b"[]",
        b'"text"',
    ],
    ids=["cut", "bytes", "unclosed", "deep", "huge number", "raw NUL", "surrogate", "null", "array", "text"],
)
def test_an_invalid_job_file_is_refused(service: Service, body: bytes) -> None:
    assert problem(post_job(service.client(), body), 422)["kind"] == "invalid-input"


def test_only_json_is_read(service: Service) -> None:
    client = service.client()
    assert problem(client.post("/v1/jobs", content="targets=1", headers={"Content-Type": "text/plain"}), 415)
    assert problem(client.post("/v1/jobs", data={"targets": "1"}), 415)
    assert problem(client.post("/v1/jobs"), 422)["detail"] == "the body is missing"


def test_large_bodies_are_refused_declared_or_chunked(service: Service) -> None:
    client = service.client()
    large = b'{"name": "' + b"x" * (service.settings.http.max_body_bytes) + b'"}'
    assert problem(post_job(client, large), 413)["kind"] == "too-large"

    def chunks() -> Any:
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]

    chunked = client.post("/v1/jobs", content=chunks(), headers={"Content-Type": "application/json"})
    assert problem(chunked, 413)["kind"] == "too-large"


def test_long_input_is_shortened_in_errors(service: Service) -> None:
    document = problem(post_job(service.client(), json.dumps({"targets": [{}], "seed": "9" * 100_000})), 422)
    assert len(json.dumps(document)) < 5000
    document = problem(post_job(service.client(), json.dumps({f"x{number}": 1 for number in range(1000)})), 422)
    assert len(document["errors"]) == 20


def test_a_crash_reveals_only_an_instance_that_is_logged(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "VERSION", object())
    with caplog.at_level(logging.ERROR, "edgefront.api"):
        document = problem(service.client(None).get("/v1/health"), 500)
    assert document["kind"] == "internal-error"
    assert "VERSION" not in json.dumps(document)
    assert "object" not in json.dumps(document)
    assert document["instance"].startswith("urn:uuid:")
    assert document["instance"] in caplog.text
    assert "Traceback" in caplog.text


def test_a_client_that_disconnects_during_its_body_is_no_crash(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    url = httpx.URL(service.url)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key()}\r\n"
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
    assert service.client().get("/v1/me").status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_answers_carry_safe_headers(service: Service) -> None:
    for response in (service.client().get("/v1/me"), service.client(None).get("/v1/jobs")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-frame-options"] == "DENY"
        assert "server" not in response.headers
