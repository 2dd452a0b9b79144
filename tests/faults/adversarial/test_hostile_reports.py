"""What agents send has the types that it should have, and is small: all else is refused by its field."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx
import pytest
from dishonest import Device, Fleet, honest
from running_api import problem

from edgefront.api.docs.examples import example
from edgefront.core.schemas.agent import MAX_FACTS_BYTES, LeaseItem

HOLE = "a place for raw JSON"


def put(value: Any, path: str, raw: str) -> str:
    """The value as JSON, with this text instead of what is at the path; a path may go on where there is nothing yet."""
    place = value
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        place = place[step]
    place[last] = HOLE
    return json.dumps(value).replace(json.dumps(HOLE), raw)


def post(client: httpx.Client, path: str, body: str) -> httpx.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.fixture
def device(fleet: Fleet) -> Device:
    member = fleet.device("device")
    fleet.submit()
    return member


def fields(client: httpx.Client, path: str, body: dict[str, Any], changes: list[tuple[str, str]]) -> list[str]:
    """Of each change to the body, the field that the error names."""
    answers = [post(client, path, put(copy.deepcopy(body), *change)) for change in changes]
    return [problem(answer, 422)["field"] for answer in answers]


def whole(item: LeaseItem) -> dict[str, Any]:
    report = {"launch_id": item.launch_id, "fence": item.fence, "result": {**honest(item), "environment": {}}}
    return {"reports": [report], "busy_s": 1.0}


HUGE = "9" * 30
REPORTS = [
    ("reports.0.fence", '"1"'),
    ("reports.0.fence", "1.0"),
    ("reports.0.fence", "true"),
    ("reports.0.fence", HUGE),
    ("reports.0.launch_id", '"lau_\\u0000"'),
    ("reports.0.launch_id", "1"),
    ("reports.0.result.outcome", "true"),
    ("reports.0.result.message", "5"),
    ("reports.0.result.message", '"\\u0000"'),
    ("reports.0.result.message", json.dumps("x" * 4001)),
    ("reports.0.result.build_s", "true"),
    ("reports.0.result.wall_s", '"5"'),
    ("reports.0.result.wall_s", "1e400"),
    ("reports.0.result.measuring_s", "-1e400"),
    ("reports.0.result.measuring_s", "true"),
    ("reports.0.result.latency.samples_ms", json.dumps([1.0] * 1001)),
    ("reports.0.result.latency.samples_ms", '{"0": 1.0}'),
    ("reports.0.result.latency.samples_ms.0", '"1"'),
    ("reports.0.result.latency.samples_ms.0", "true"),
    ("reports.0.result.latency.samples_ms.2", "null"),
    ("reports.0.result.latency.samples_ms.2", HUGE),
    ("reports.0.result.latency.warmup_ms", json.dumps([1.0] * 101)),
    ("reports.0.result.latency.warmup_ms.0", "true"),
    ("reports.0.result.memory.peak_bytes", "1.5"),
    ("reports.0.result.memory.peak_bytes", '"1"'),
    ("reports.0.result.memory.forward_peak_bytes", "true"),
    ("reports.0.result.memory.build_peak_bytes", '"1"'),
    ("reports.0.result.memory.peak_bytes", HUGE),
    ("reports.0.result.environment.load", HUGE),
    ("reports.0.result.environment.load", "1e400"),
    ("reports.0.result.environment.load", "[[[1]]]"),
    ("reports.0.result.environment.conditions", json.dumps("x" * 8001)),
    ("busy_s", '"1"'),
    ("busy_s", "true"),
]


def test_a_report_of_another_type_is_refused_by_its_field(device: Device) -> None:
    item = device.lease(1).items[0]
    assert fields(device.http, "/v1/reports", whole(item), REPORTS) == [path for path, _ in REPORTS]
    assert device.report(item, honest(item))["outcome"] == "accepted"


UNREADABLE = (
    '"\\ud800"',
    '"\\udc00 there"',
    "[" * 10_000 + "]" * 10_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    "9" * 5000,
    "-" + "9" * 4000,
)
"""Half a character, what is nested, and numbers of very many digits."""


def test_what_no_text_and_no_number_can_be_is_refused(device: Device) -> None:
    item = device.lease(1).items[0]
    for raw in UNREADABLE:
        for path in ("reports.0.result.message", "reports.0.result.environment.load", "reports.0.fence"):
            problem(post(device.http, "/v1/reports", put(whole(item), path, raw)), 422)
        facts = put({"wait_s": 0, "facts": example("enrol_request")["facts"]}, "facts.cpu", raw)
        problem(post(device.http, "/v1/leases", facts), 422)


FACTS = [
    ("cores", "10000"),
    ("cores", '"4"'),
    ("cores", "true"),
    ("cores", "4.0"),
    ("cores", HUGE),
    ("memory_bytes", '"1"'),
    ("memory_bytes", "1e400"),
    ("hostname", "5"),
    ("hostname", '"a\\u0000"'),
    ("cpu_features", json.dumps(["x"] * 257)),
    ("cpu_features.0", "true"),
    ("gpus", json.dumps([{}] * 65)),
    ("modes.0", '"dream"'),
    ("runtimes.0.providers.0", "1"),
    ("extra", json.dumps({f"f{number}": 1 for number in range(65)})),
    ("extra.core_gflops", "1e400"),
    ("extra.core_gflops", HUGE),
    ("extra.core_gflops", "[1]"),
    ("extra.note", '"a\\u0000"'),
]


def test_facts_of_another_type_are_refused_by_their_field(device: Device) -> None:
    asked = {"wait_s": 0, "facts": example("enrol_request")["facts"]}
    changes = [(f"facts.{path}", raw) for path, raw in FACTS]
    assert fields(device.http, "/v1/leases", asked, changes) == [path for path, _ in changes]
    assert device.lease(1).items


def test_facts_are_bounded_in_bytes(fleet: Fleet, device: Device) -> None:
    facts = example("enrol_request")["facts"]
    few = {f"f{number}": "\N{GREEK SMALL LETTER ALPHA}" * 6000 for number in range(6)}
    assert sum(map(len, few.values())) < MAX_FACTS_BYTES  # though in bytes they are twice as many
    answer = device.http.post("/v1/leases", json={"wait_s": 0, "facts": {**facts, "extra": few}})
    assert problem(answer, 422)["field"] == "facts"
    assert "bytes" in answer.json()["detail"]
    enrolled = fleet.admin.post("/v1/enrolment-tokens", json={"name": "more"}).json()
    body = {"name": "more", "device_class": "more", "facts": {**facts, "extra": few}}
    headers = {"Authorization": f"Bearer {enrolled['token']}"}
    refused = fleet.service.client_with(headers).post("/v1/agents/enrol", json=body)
    assert problem(refused, 422)["field"] == "facts"
    few.popitem()
    assert device.http.post("/v1/leases", json={"wait_s": 0, "facts": {**facts, "extra": few}}).status_code == 200
