"""Small bodies that are expensive to validate: validation stops at the first error of a list."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from running_api import Service, problem

from edgefront.api.docs.examples import example
from edgefront.api.http.auth import ENROL_PATH
from edgefront.api.http.middleware import ENROL_BYTES, PUBLIC_BYTES
from edgefront.api.http.routes import MAX_FIELDS
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import ArchitectureError
from edgefront.core.measurement.record import MAX_ENVIRONMENT_BYTES, LaunchResult
from edgefront.core.schemas.agent import DeviceFacts, LeaseRequest, ReportRequest
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.schemas.predictions import PredictionRequest

MANY = 50_000
ALL_WRONG = ["x"] * MANY


def send(client: httpx.Client, path: str, body: str) -> httpx.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (JobRequest, {"targets": [1] * MANY}),
        (JobRequest, {"targets": [{}], "baseline_layers": ALL_WRONG}),
        (PredictionRequest, {"architectures": [1] * MANY}),
        (ReportRequest, {"reports": [1] * MANY}),
        (LeaseRequest, {"facts": {"cpu_features": [1] * MANY, "runtimes": [1] * MANY, "gpus": [1] * MANY}}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_list_that_is_wrong_throughout_is_few_errors(model: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        model.model_validate(body)
    assert error.value.error_count() < 20


def test_blocks_that_are_wrong_throughout_are_few_errors() -> None:
    with pytest.raises(ArchitectureError) as error:
        Architecture.parse({"d_model": 64, "embedding": {"vocab_size": 100}, "blocks": [{"kind": "x"}] * MANY})
    assert error.value.field == "blocks.0.kind"
    assert isinstance(error.value.__context__, ValidationError)
    assert error.value.__context__.error_count() < 3


def test_an_object_of_many_fields_is_refused_before_each_is_an_error(service: Service) -> None:
    many = {f"x{number}": 1 for number in range(MAX_FIELDS + 1)}
    client = service.client()
    document = problem(send(client, "/v1/jobs", json.dumps(many)), 422)
    assert document["detail"] == f"the body: must have at most {MAX_FIELDS} fields, not {MAX_FIELDS + 1}"
    nested = problem(send(client, "/v1/jobs", json.dumps({"targets": [{"limits": many}]})), 422)
    assert nested["field"] == "targets.0.limits"
    assert problem(send(client, "/v1/catalogue/describe", json.dumps(many)), 422)["allowed"]


def test_without_a_key_a_body_is_small(service: Service) -> None:
    nobody = service.client(None)
    document = problem(send(nobody, "/v1/session", json.dumps({"key": "x" * PUBLIC_BYTES})), 413)
    assert str(PUBLIC_BYTES) in document["detail"]
    chunks = (b" " * 4096 for _ in range(8))
    answer = nobody.post("/v1/session", content=chunks, headers={"Content-Type": "application/json"})
    assert problem(answer, 413)["kind"] == "too-large"
    unknown = service.client(None)
    unknown.headers["Authorization"] = f"Bearer efe_{'x' * 43}"
    assert problem(send(unknown, ENROL_PATH, " " * (ENROL_BYTES + 1)), 413)["kind"] == "too-large"


@pytest.mark.parametrize("number", ["1e999", "-1E+400", "10.0e308", "9" * 310 + ".5"])
def test_a_number_that_overflows_is_refused_by_its_field(service: Service, number: str) -> None:
    body = '{"targets": [{}], "algorithm": {"settings": {"a": [0, ' + number + "]}}}"
    document = problem(send(service.client(), "/v1/jobs", body), 422)
    assert document["field"] == "algorithm.settings.a.1"
    assert "finite" in document["allowed"]


ESCAPES = "\x1b]0;owned\x07\x9b2J\u202e\x00"


def test_what_devices_say_has_no_control_characters() -> None:
    facts = DeviceFacts.model_validate(
        {**example("enrol_request")["facts"], "cpu": f"good {ESCAPES}cpu", "extra": {f"a{ESCAPES}": f"b\n{ESCAPES}"}}
    )
    assert facts.cpu == "good  ]0;owned  2J  cpu"
    assert facts.extra == {"a ]0;owned  2J  ": "b\n ]0;owned  2J  "}
    result = LaunchResult(outcome="failed", reason="crashed", message=f"first\nsecond{ESCAPES}")
    assert result.message == "first\nsecond ]0;owned  2J  "


def test_an_environment_is_small() -> None:
    shown = {f"fact {number}": "é" * 1000 for number in range(8)}
    assert LaunchResult(outcome="failed", reason="crashed", environment=shown).environment == shown
    with pytest.raises(ValidationError, match=f"at most {MAX_ENVIRONMENT_BYTES} bytes"):
        LaunchResult(outcome="failed", reason="crashed", environment={f"f{number}": "é" * 1000 for number in range(30)})


def test_work_beyond_what_can_be_counted_is_refused(service: Service) -> None:
    """Else it would be stored, and the databases refuse it."""
    service.enrol(device_class="lab")
    wide = 1 << 16
    attention = {"kind": "attention", "n_head": 512, "bias": "none"}
    feed_forward = {"kind": "feed_forward", "d_inner": wide, "gated": True, "bias": False}
    model = {
        "d_model": wide,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "silu",
        "embedding": {"vocab_size": 100},
        "blocks": [attention, feed_forward] * 250,
    }
    protocol = {"batch": 1024, "sequence_length": 65536}
    asked = {"space": {"model": model}, "targets": [{"device_class": "lab", "protocol": protocol}]}
    client = service.client("user", "eve")
    assert problem(client.post("/v1/jobs", json=asked), 422)["field"] == "targets.0.protocol.batch"
    predicted = {"device_class": "lab", "protocol": protocol, "architectures": [model]}
    assert problem(client.post("/v1/predictions", json=predicted), 422)["field"] == "architectures.0.batch"
