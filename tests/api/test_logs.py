"""Log lines: one form in every process, with what a line is about, and an audit log of what people change."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from running_api import Service
from simulated_agent import CLASS

from edgefront.core.common.logs import LogLines, add_log_facts, log_facts


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the service logs, as JSON."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LogLines("json"))
    logger = logging.getLogger("edgefront")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.removeHandler(handler)
    logger.setLevel(level)


def of(lines: io.StringIO, logger: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in every if line["logger"] == f"edgefront.{logger}"]


def test_the_audit_log_says_who_created_and_deleted_what(service: Service, lines: io.StringIO) -> None:
    service.enrol("board", CLASS)
    user, admin = service.client("user", "bob"), service.client("admin", "root")
    made = service.submit(user)
    key = admin.post("/v1/keys", json={"name": "x"}).json()
    admin.delete(f"/v1/keys/{key['id']}")
    user.get(f"/v1/jobs/{made['id']}")
    assert admin.delete("/v1/keys/key_unknown").status_code == 404  # changes nothing
    created, new_key, deleted = of(lines, "audit")
    assert created["owner"] == "bob"
    assert created["message"].endswith(f"POST /v1/jobs /v1/jobs/{made['id']}")
    assert created["message"].startswith("key_")
    assert (new_key["owner"], new_key["made"]) == ("root", key["id"])
    assert deleted["message"].rstrip().endswith(f"DELETE /v1/keys/{key['id']}")
    assert key["key"] not in lines.getvalue()


def test_access_lines_name_request_owner_and_device(service: Service, lines: io.StringIO) -> None:
    agent = service.agent("board", CLASS)
    answer = service.client("user", "bob").get("/v1/jobs?limit=1", headers={"X-Request-ID": "abc-7"})
    agent.post("/v1/leases", json={"wait_s": 0}, headers={"X-Request-ID": "bad\tid"})
    service.client(None).get("/v1/ready")
    jobs, leases = of(lines, "access")
    assert answer.status_code == 200
    assert (jobs["request"], jobs["owner"], jobs["level"]) == ("abc-7", "bob", "info")
    assert jobs["message"].startswith("GET /v1/jobs 200 ")
    assert leases["device"].startswith("dev_")
    assert "owner" not in leases
    assert leases["request"] != "bad\tid"


def test_facts_belong_to_their_block() -> None:
    record = logging.LogRecord("edgefront.x", logging.WARNING, "", 0, "said %d", (3,), None)
    with log_facts(job="job_1"):
        with log_facts(owner="ada"):
            add_log_facts(made="key_1")
            assert LogLines().format(record).endswith("Z WARNING edgefront.x: said 3 job=job_1 owner=ada made=key_1")
        assert LogLines().format(record).endswith("said 3 job=job_1")
    add_log_facts(made="key_2")
    assert LogLines().format(record).endswith("said 3")
