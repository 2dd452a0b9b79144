"""Wrong descriptions and wrong narrowings over REST: one problem document each, which names the field."""

from __future__ import annotations

import json
from typing import Any

from running_api import Service, problem
from wrong_descriptions import WRONG

NARROWINGS: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("hybrid", {"kind": ["mamba", "attention"]}, "kind", "attention, feed_forward, srupp, identity"),
    ("par-32", {"kind": ["feed_forward"]}, "min_attention_percent", "none attends to other tokens"),
    ("par-32", {"kind": ["identity"]}, "kind", "identity"),
    ("par-32", {"n_block": {"min": -4, "max": -1}}, "n_block", "2 to 32"),
    ("srupp", {"attends": "source"}, "attends", "self, none"),
    ("srupp", {"attn_ratio": 3}, "attn_ratio", "2 to 10 in steps of 2"),
    ("bert", {"n_head": [5]}, "n_head", "2, 4, 8, 12, 16"),
    ("par-32", {"n_block": "9" * 9000}, "n_block", "2 to 32"),
    ("par-32", {"pattern": "(sf)x3"}, "pattern", "n_block"),
    ("lts-transformer-xl", {"d_model": -64}, "d_model", "128 to 1024 in steps of 64"),
)
"""Space, narrowing, the gene that is named, and words of the error."""


def test_a_wrong_description_is_named_by_field(service: Service) -> None:
    client = service.client()
    for case in WRONG:
        document = problem(client.post("/v1/catalogue/describe", json=case.description), 422)
        assert (document["kind"], document["field"]) == ("invalid-architecture", case.field), case.title
        assert len(json.dumps(document)) < 5000, case.title


def test_a_wrong_narrowing_is_named_by_gene(service: Service) -> None:
    service.enrol("board", "simulated board")
    client = service.client()
    for space, narrow, gene, words in NARROWINGS:
        request = {"targets": [{"device_class": "simulated board"}], "space": {"name": space, "narrow": narrow}}
        document = problem(client.post("/v1/jobs", json=request), 422)
        assert (document["kind"], document["field"]) == ("invalid-space", f"space.narrow.{gene}"), (space, narrow)
        assert words in document["detail"], (space, narrow)
        assert document["allowed"], (space, narrow)
        assert len(json.dumps(document)) < 5000


def test_a_value_that_is_listed_over_and_over_is_not_kept(service: Service) -> None:
    service.enrol("board", "simulated board")
    client = service.client()
    space = {"name": "lts-gpt2", "narrow": {"n_head": [4] * 100_000}}
    request = {"targets": [{"device_class": "simulated board"}], "space": space}
    document = problem(client.post("/v1/jobs", json=request), 422)
    assert (document["kind"], document["field"], document["value"]) == ("invalid-space", "space.narrow.n_head", 4)
    assert client.get("/v1/jobs").json()["items"] == []
